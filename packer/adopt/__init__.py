"""``pack adopt``: manifest and indexes for shards that somebody else made, without touching the shards."""
