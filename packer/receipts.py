"""Receipts: what was proven of a shard in an object store, so that a later run need not read it again.

A receipt is a small object that names the version (ETag) of the shard and of its index, and what they were found to be.
It is written after both are visible, and believed only while both still have those versions. Directories have no
versions that could be trusted this far; there, shards are read.
"""

from packer.stores.base import DatasetStore
from packer.write import ShardResult
from shards.digests import is_digest
from shards.index_schema import index_name
from shards.names import STATE_NAME
from shards.strict_json import JsonError, JsonFields, JsonValue, parse_json, render_json


def receipt_name(shard_name: str) -> str:
    """Name of the receipt of a shard."""
    return f"{STATE_NAME}/receipts/{shard_name}.json"


def write_receipt(store: DatasetStore, result: ShardResult) -> None:
    """Write the receipt of a shard that was just written, or read and checked; nothing where there are no versions."""
    version, index_version = store.version_of(result.name), store.version_of(index_name(result.name))
    if version is None or index_version is None:
        return
    value: dict[str, JsonValue] = {
        "version": version,
        "size_bytes": result.size_bytes,
        "digest": result.digest,
        "num_samples": result.num_samples,
        "index_version": index_version,
        "index_size_bytes": result.index_size_bytes,
        "index_digest": result.index_digest,
    }
    store.put(receipt_name(result.name), render_json(value).encode("ascii") + b"\n")


def read_receipt(store: DatasetStore, shard_name: str, size_bytes: int) -> ShardResult | None:
    """Give what is proven of a shard; None when nothing is.

    Args:
        store: of the dataset.
        shard_name: of the shard.
        size_bytes: that the shard must have.
    """
    version = store.version_of(shard_name)
    if version is None:
        return None
    try:
        fields = JsonFields(parse_json(store.read_file(receipt_name(shard_name))), "")
        found = ShardResult(
            name=shard_name,
            size_bytes=fields.count("size_bytes"),
            digest=fields.string("digest"),
            num_samples=fields.count("num_samples"),
            index_size_bytes=fields.count("index_size_bytes"),
            index_digest=fields.string("index_digest"),
            is_kept=True,
        )
        versions = (fields.string("version"), fields.string("index_version"))
    except (FileNotFoundError, JsonError):
        return None
    is_believed = (
        versions == (version, store.version_of(index_name(shard_name)))
        and found.size_bytes == size_bytes
        and is_digest(found.digest)
        and is_digest(found.index_digest)
    )
    return found if is_believed else None
