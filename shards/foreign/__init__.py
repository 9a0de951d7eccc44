"""Shards that somebody else made, without manifest and index: which files they are, and what lies in them."""
