"""Blocks between memory and a local file: read and hash, verify and write, find what a partial already has.

Everything here blocks and is meant to run in a thread. Writes are idempotent: a block is only ever written with the
bytes that its digest promises, so two processes that write the same block of the same file do no harm.
"""

import os

from shards.digests import block_digest, digest_text


def read_into(fd: int, offset: int, view: memoryview) -> int:
    """Read from a file until the buffer is full or the file ends; give the number of bytes read."""
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], offset + done)
        if count == 0:
            break
        done += count
    return done


def has_block(fd: int, offset: int, view: memoryview, expected: bytes) -> bool:
    """Tell whether a file has a block, by hashing it.

    Args:
        fd: the file.
        offset: where the block starts.
        view: memory as long as the block; overwritten.
        expected: raw digest of the block.
    """
    return read_into(fd, offset, view) == len(view) and block_digest(view) == expected


def write_verified(fd: int, offset: int, view: memoryview, expected: bytes) -> bytes:
    """Write a block if its digest is the expected one, and give the digest that it has.

    Args:
        fd: the file.
        offset: where the block starts.
        view: the block.
        expected: raw digest; on another one nothing is written.
    """
    actual = block_digest(view)
    if actual == expected:
        write_at(fd, offset, view)
    return actual


def write_at(fd: int, offset: int, view: memoryview) -> None:
    """Write all of a buffer at an offset."""
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], offset + done)


def data_extents(fd: int, size_bytes: int) -> list[tuple[int, int]]:
    """Give the half-open ranges of a file that are not holes, ascending.

    On a filesystem that does not tell holes from data this is the whole file.
    """
    extents = []
    position = 0
    while position < size_bytes:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole is left; EINVAL: SEEK_DATA is not offered
            if position == 0 and os.fstat(fd).st_blocks > 0:
                return [(0, size_bytes)]
            break
        position = os.lseek(fd, start, os.SEEK_HOLE)
        extents.append((start, position))
    return extents


def whole_file_digest(digests: tuple[bytes, ...]) -> str:
    """Digest text of a file that was hashed as one block; an empty file has none and gets the digest of nothing."""
    return digest_text(digests[0] if digests else block_digest(b""))
