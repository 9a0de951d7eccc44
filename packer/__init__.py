"""Many small files → few big shards: plan first, then write, then publish."""
