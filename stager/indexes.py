"""Block digests out of a shard's index, checked against the manifest before anybody trusts them."""

from shards.digests import shard_digest
from shards.errors import IndexFormatError
from shards.manifest import ShardEntry


def read_block_digests(path: str, shard: ShardEntry, block_bytes: int) -> tuple[bytes, ...]:
    """Read the raw digest of each block of a shard.

    Args:
        path: the index file, under its final name or not.
        shard: what the manifest says about the shard.
        block_bytes: what the manifest says about its blocks.

    Raises:
        IndexFormatError: the index is damaged, belongs to another shard, or its block digests do not have the shard
            digest of the manifest.
    """
    from shards.index import ShardIndex  # noqa: PLC0415 (pyarrow: a run that finds everything staged does without)

    with ShardIndex.open(path) as index:
        header = index.header
    facts = [
        ("shard", header.shard_name, shard.name),
        ("shard size", header.shard_bytes, shard.size_bytes),
        ("block size", header.block_bytes, block_bytes),
        ("shard digest, from its block digests", shard_digest(header.block_digests), shard.digest),
    ]
    for fact, found, expected in facts:
        if found != expected:
            raise IndexFormatError(shard.index_name, None, f"{fact} is {found}, but the manifest says {expected}")
    return header.block_digests
