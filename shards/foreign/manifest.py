"""The manifest of scanned shards; pure."""

from collections.abc import Mapping, Sequence

from shards.digests import BLOCK_BYTES
from shards.foreign.names import ForeignShards
from shards.foreign.scan import ScannedShard
from shards.index_schema import index_name
from shards.manifest import ExtensionEntry, Manifest, ShardEntry, SplitEntry
from shards.strict_json import JsonValue


def make_manifest(
    files: ForeignShards,
    shards: Sequence[ScannedShard],
    *,
    packer: Mapping[str, JsonValue],
    source: Mapping[str, JsonValue],
) -> Manifest:
    """Describe shards as a dataset.

    Args:
        files: which shards belong to which split.
        shards: what was found in each, in the order of ``files``; none has a fault.
        packer: who made the manifest.
        source: where from.
    """
    by_split: dict[str, list[ScannedShard]] = {}
    for file, shard in zip(files.files, shards, strict=True):
        by_split.setdefault(file.split, []).append(shard)
    return Manifest(
        shard_format=files.format_name,
        block_bytes=BLOCK_BYTES,
        splits=tuple(_split_entry(name, found) for name, found in sorted(by_split.items())),
        packer=packer,
        source=source,
    )


def _split_entry(name: str, shards: Sequence[ScannedShard]) -> SplitEntry:
    num_samples = sum(shard.num_samples for shard in shards)
    extensions = sorted({extension for shard in shards for extension in shard.extensions})
    totals = {}
    for extension in extensions:
        counts = [shard.extensions[extension] for shard in shards if extension in shard.extensions]
        present = sum(count for count, _ in counts)
        totals[extension] = ExtensionEntry(
            num_present=present,
            num_missing=num_samples - present,
            size_bytes=sum(size_bytes for _, size_bytes in counts),
        )
    return SplitEntry(
        name=name,
        num_samples=num_samples,
        size_bytes=sum(shard.size_bytes for shard in shards),
        shards=tuple(_shard_entry(shard) for shard in shards),
        extensions=totals,
    )


def _shard_entry(shard: ScannedShard) -> ShardEntry:
    return ShardEntry(
        name=shard.name,
        size_bytes=shard.size_bytes,
        digest=shard.digest,
        num_samples=shard.num_samples,
        index_name=index_name(shard.name),
        index_size_bytes=shard.index_size_bytes,
        index_digest=shard.index_digest,
    )
