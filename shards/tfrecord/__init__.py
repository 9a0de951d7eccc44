"""TFRecord shards: framing of records (``frames``) and the sample format on top of it (``format``)."""
