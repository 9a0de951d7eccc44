"""Digests of files on the local disk, in pieces, so that hashing a big file can be stopped at any piece."""

import os

from shards.digests import BlockHasher, block_ranges
from stager.blocks import read_into, whole_file_digest, write_at
from stager.connections import Connections


async def digest_file(connections: Connections, path: str) -> str:
    """Digest of a whole file, as in a manifest's ``index_digest``.

    Raises:
        OSError: the file cannot be read.
    """
    return whole_file_digest(await _hash_file(connections, path, block_bytes=None))


async def hash_blocks(connections: Connections, path: str) -> tuple[bytes, ...]:
    """Raw digest of each block of a file.

    Raises:
        OSError: the file cannot be read.
    """
    return await _hash_file(connections, path, block_bytes=connections.block_bytes)


async def _hash_file(connections: Connections, path: str, *, block_bytes: int | None) -> tuple[bytes, ...]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size_bytes = os.fstat(fd).st_size
        hasher = BlockHasher(block_bytes or max(size_bytes, 1))
        async with connections.buffer() as buffer:
            for start, end in block_ranges(size_bytes, connections.block_bytes):
                with buffer[: end - start] as view:
                    await connections.on_disk(_read_and_hash, hasher, fd, start, view)
    finally:
        os.close(fd)
    return hasher.finish().digests


def hash_and_write(hasher: BlockHasher, fd: int, offset: int, view: memoryview) -> None:
    """Hash the next piece of a file and write it at an offset; blocks."""
    hasher.update(view)
    write_at(fd, offset, view)


def _read_and_hash(hasher: BlockHasher, fd: int, offset: int, view: memoryview) -> None:
    with view[: read_into(fd, offset, view)] as piece:
        hasher.update(piece)
