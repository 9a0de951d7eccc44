"""Where samples come from: one module per kind of source, each giving a :class:`packer.sources.files.FoundFiles`."""
