"""The files of staged datasets as they lie under their final names, hashed again; what is bad is set aside.

Everything here blocks. Data that is in the page cache is hashed from there; what the disk would give shows only when it
has to be read.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from shards.cache import CacheLayout
from shards.digests import BlockHasher
from shards.errors import FormatError
from shards.files import fsync_directory, read_regular_file
from shards.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest
from stager.blocks import read_into, whole_file_digest
from stager.local import is_at, observe_file, staged_ids
from stager.quarantine import set_aside
from stager.records import forget_inode

PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A shard or index under its final name."""

    dataset_id: str
    name: str
    path: str
    size_bytes: int
    """That the manifest promises."""
    digest: str
    block_bytes: int
    """Of the shard's digest; 0 for an index, which is hashed as a whole."""


@dataclass(frozen=True, slots=True)
class BadFile:
    """A staged file that is not what the manifest promises."""

    file: StagedFile
    inode: int
    reason: str


def read_staged_manifest(layout: CacheLayout, dataset_id: str) -> Manifest | None:
    """Read the manifest of a dataset, complete or not; None when there is none that can be understood."""
    for path in (os.path.join(layout.dataset_dir(dataset_id), MANIFEST_NAME), layout.wanted_path(dataset_id)):
        with suppress(OSError, FormatError):
            return Manifest.from_json(read_regular_file(path, max_bytes=MAX_MANIFEST_BYTES), name=path)
    return None


def list_staged_files(layout: CacheLayout, dataset_id: str) -> Iterator[StagedFile]:
    """Yield the shards and indexes of a dataset that are there, index before shard, in the manifest's order."""
    manifest = read_staged_manifest(layout, dataset_id)
    if manifest is None:
        return
    for _, shard in manifest.shards():
        facts = (
            (shard.index_name, shard.index_size_bytes, shard.index_digest, 0),
            (shard.name, shard.size_bytes, shard.digest, manifest.block_bytes),
        )
        for name, size_bytes, digest, block_bytes in facts:
            path = os.path.join(layout.dataset_dir(dataset_id), name)
            if observe_file(path) is not None:
                yield StagedFile(
                    dataset_id=dataset_id,
                    name=name,
                    path=path,
                    size_bytes=size_bytes,
                    digest=digest,
                    block_bytes=block_bytes,
                )


def check_staged_file(file: StagedFile, on_bytes: Callable[[int], None]) -> BadFile | None:
    """Hash a staged file; None when it is right, or not there any more.

    Args:
        file: which one.
        on_bytes: called with the size of each piece; what it raises ends the check.
    """
    found = observe_file(file.path)
    if found is None:
        return None
    if found.size_bytes < 0:
        return BadFile(file, found.inode, "it is no regular file")
    if found.size_bytes != file.size_bytes:
        return BadFile(file, found.inode, f"{found.size_bytes} bytes instead of {file.size_bytes}")
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        try:
            actual = _digest(fd, file, on_bytes)
        except OSError as error:
            if error.filename is not None:  # not from reading
                raise
            return BadFile(file, found.inode, f"it cannot be read: {error.strerror}")
        if actual == file.digest or not is_at(fd, file.path):
            return None
    finally:
        os.close(fd)
    return BadFile(file, found.inode, f"digest {actual} instead of {file.digest}")


def set_bad_file_aside(layout: CacheLayout, bad: BadFile) -> bool:
    """Take a bad file away from its final name, so that the next run fetches it; tell whether it was still there.

    The dataset stops passing for complete first. Call it with the lock of the passes held (:mod:`stager.reclaim`).
    """
    found = observe_file(bad.file.path)
    if found is None or found.inode != bad.inode:
        return False
    dataset_dir = layout.dataset_dir(bad.file.dataset_id)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(dataset_dir, MANIFEST_NAME))
        fsync_directory(dataset_dir)
    set_aside(layout, bad.file.path, reason=bad.reason)
    for dataset_id in staged_ids(layout):
        forget_inode(layout, dataset_id, bad.inode)
    return True


def _digest(fd: int, file: StagedFile, on_bytes: Callable[[int], None]) -> str:
    hasher = BlockHasher(file.block_bytes or max(file.size_bytes, 1))
    buffer = bytearray(PIECE_BYTES)
    offset = 0
    with memoryview(buffer) as view:
        while count := read_into(fd, offset, view):
            with view[:count] as piece:
                hasher.update(piece)
            offset += count
            on_bytes(count)
    digests = hasher.finish()
    return digests.shard_digest if file.block_bytes else whole_file_digest(digests.digests)
