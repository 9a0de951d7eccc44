"""Shards that somebody else made, opened as they are: found by name, indexed once, then read like a packed dataset."""
