"""``pack verify --readers``: do all readers of tar shards see the samples that the index has?

Three views of each stored name are compared: ours, the rules of the webdataset library, and that of readers
which split at the last dot. TFRecord shards hold key and extensions as such; there is nothing to split.
"""

from collections.abc import Iterator
from typing import BinaryIO, cast

from packer.foreign_view import webdataset_view
from packer.stores.base import DatasetStore
from packer.stores.open import open_store
from packer.unpack.compare import Offenders
from shards.formats import find_format
from shards.keys import LAST_DOT, Keyless, split_name
from shards.manifest import MANIFEST_NAME, Manifest
from shards.ranges import ReaderStream


def reader_faults(location: str, manifest: Manifest) -> list[str]:
    """Name the members that some reader sees otherwise, by kind, the first of each and then a count.

    Raises:
        TarFormatError, OSError, RemoteError: a shard cannot be read.
    """
    if find_format(manifest.shard_format, where=MANIFEST_NAME).has_example_records:
        return []
    store = open_store(location)
    webdataset, last_dot = Offenders(), Offenders()
    for _, shard in manifest.shards():
        for name in _stored_names(store, shard.name):
            _look_at(name, webdataset, last_dot)
    return [
        *webdataset.lines("webdataset sees another key or extension"),
        *last_dot.lines("readers that split at the last dot see another key or extension"),
    ]


def _look_at(name: str, webdataset: Offenders, last_dot: Offenders) -> None:
    ours = split_name(name)
    theirs = webdataset_view(name)
    if theirs != (None if isinstance(ours, Keyless) else tuple(ours)):
        webdataset.add(f"{name} (key {theirs[0]}, extension {theirs[1]})" if theirs else f"{name} (left out)")
    elif split_name(name, LAST_DOT) != ours:
        last_dot.add(name)


def _stored_names(store: DatasetStore, shard_name: str) -> Iterator[str]:
    from shards.tar.member import MemberKind  # noqa: PLC0415 (only tar shards come here)
    from shards.tar.reader import read_members  # noqa: PLC0415

    with store.open_reader(shard_name) as reader:
        for member in read_members(cast("BinaryIO", ReaderStream(reader)), shard_name):
            if member.kind in {MemberKind.FILE, MemberKind.HARD_LINK}:
                yield member.name
