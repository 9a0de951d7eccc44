"""Blocks between memory and a local file: read and hash, verify and write, find what a partial already has.

Everything here blocks and is meant to run in a thread. Writes are idempotent: a block is only ever written with the
bytes that its digest promises, so two processes that write the same block of the same file do no harm.
"""

import os
from typing import Self

from shards.digests import block_digest, digest_text
from shards.direct import ALIGNMENT_BYTES, NOT_DIRECT, reopen_direct


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


class BlockWriter:
    """Writes blocks into a file from any thread, past the page cache where that can be done; a context manager.

    The trainer reads a shard later, and mostly more of them than memory holds; until then their pages would only push
    out others, and be charged to the stager's container.

    Args:
        fd: the file, open for writing; stays open.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._direct_fd = reopen_direct(fd, os.O_WRONLY)
        self._is_direct = self._direct_fd is not None

    def write_verified(self, offset: int, view: memoryview, expected: bytes) -> bytes:
        """Write a block if its digest is the expected one, and give the digest that it has.

        Args:
            offset: where the block starts.
            view: the block.
            expected: raw digest; on another one nothing is written.
        """
        actual = block_digest(view)
        if actual == expected:
            self._write(offset, view)
        return actual

    def write_hashed(self, offset: int, view: memoryview) -> bytes:
        """Write a block of which no digest is known, and give the one that it has."""
        self._write(offset, view)
        return block_digest(view)

    def _write(self, offset: int, view: memoryview) -> None:
        done = self._write_direct(offset, view[: len(view) - len(view) % ALIGNMENT_BYTES])
        write_at(self._fd, offset + done, view[done:])

    def _write_direct(self, offset: int, view: memoryview) -> int:
        """Write what can be; gives how many bytes from the start were."""
        done = 0
        while self._is_direct and self._direct_fd is not None and done < len(view):
            try:
                done += os.pwrite(self._direct_fd, view[done:], offset + done)
            except OSError as error:
                if error.errno not in NOT_DIRECT:
                    raise
                self._is_direct = False  # it took the flag and refuses this write
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._direct_fd is not None:
            os.close(self._direct_fd)


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
