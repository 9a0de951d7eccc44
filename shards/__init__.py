"""The on-disk contract of Shardferry: names, tar, TFRecord, index, manifest, digests, durable files, node cache.

``packer``, ``stager`` and ``loaders`` meet only here, in files. This package imports none of them.
``docs/format.md`` is the normative text of everything below.
"""
