"""Walks the samples of a finished dataset, index by index, in constant memory."""

from collections.abc import Iterator
from typing import NamedTuple

from packer.stores.base import DatasetStore
from shards.errors import LoadError
from shards.index import IndexedMember
from shards.manifest import Manifest, ShardEntry, SplitEntry


class ListedSample(NamedTuple):
    """One sample and where it lies."""

    split: str
    shard: str
    number: int
    """In the shard."""
    key: str
    members: tuple[IndexedMember, ...]


def choose_shards(manifest: Manifest, split: str | None) -> list[tuple[SplitEntry, ShardEntry]]:
    """The shards of one split, or of all.

    Raises:
        LoadError: there is no such split.
    """
    if split is None:
        return list(manifest.shards())
    try:
        entry = manifest.split(split)
    except ValueError as error:
        raise LoadError(str(error)) from error
    return [(entry, shard) for shard in entry.shards]


def walk_samples(store: DatasetStore, manifest: Manifest, split: str | None = None) -> Iterator[ListedSample]:
    """Give every sample in manifest order; one index is open at a time.

    Raises:
        LoadError: there is no such split.
        IndexFormatError, OSError, RemoteError: an index is damaged or missing.
    """
    for entry, shard in choose_shards(manifest, split):
        yield from walk_shard(store, entry.name, shard.name, shard.index_name)


def walk_shard(store: DatasetStore, split: str, shard_name: str, index_name: str) -> Iterator[ListedSample]:
    """Give every sample of one shard."""
    with store.open_index(index_name) as index:
        for number in range(index.num_samples):
            yield ListedSample(split, shard_name, number, index.key(number), index.members(number))
