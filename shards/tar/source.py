"""Gives the bytes of a tar shard forward, from a file that can seek, or from a pipe or compressed stream.

A plain file is read around its data: walking the headers of a shard of pictures costs one small read a member.
"""

import io
import os
import stat
from collections.abc import Callable
from typing import BinaryIO, Protocol

from shards.compression import open_decoded
from shards.errors import TarFormatError
from shards.tar.header import is_header

FIRST_READ_BYTES = 4096
"""Read after a jump: one page, which costs no more than one header and also holds a small neighbour."""

MOST_READ_BYTES = 256 * 1024
"""Read at once when members are small. More did not go faster."""


class ByteSource(Protocol):
    """Bytes of a shard, read forward. ``DecodedStream`` is one, :class:`SeekableSource` another."""

    position: int
    """Bytes from the start of the (decompressed) shard."""

    def read_exactly(self, num_bytes: int) -> bytes:
        """Give ``num_bytes`` bytes; fewer only when the shard ends first. Allocates no more than is there."""

    def skip(self, num_bytes: int) -> int:
        """Pass over ``num_bytes`` bytes and give how many there really were."""


class SeekableSource:
    """A plain shard that can be read anywhere."""

    def __init__(self, read_at: Callable[[int, int], bytes], size_bytes: int, position: int = 0) -> None:
        """Start at a position.

        Args:
            read_at: (number of bytes, offset from the start of the shard) → bytes; may give fewer, and ``b""``
                only at the end.
            size_bytes: of the shard.
            position: where to start.
        """
        self.position = position
        self._read_at = read_at
        self._size_bytes = size_bytes
        self._window = b""
        self._window_start = position
        self._readahead = FIRST_READ_BYTES

    def read_exactly(self, num_bytes: int) -> bytes:
        """Give ``num_bytes`` bytes; fewer only when the shard ends first."""
        start = self.position - self._window_start
        end = start + num_bytes
        if end <= len(self._window):
            self.position += num_bytes
            return self._window[start:end]
        return self._read_beyond(start, num_bytes)

    def skip(self, num_bytes: int) -> int:
        """Pass over ``num_bytes`` bytes and give how many there really were; nothing is read."""
        skipped = min(num_bytes, max(0, self._size_bytes - self.position))
        self.position += skipped
        return skipped

    def at(self, position: int) -> "SeekableSource":
        """Give a second, independent source of the same shard."""
        return SeekableSource(self._read_at, self._size_bytes, position)

    def _read_beyond(self, start: int, num_bytes: int) -> bytes:
        gap = start - len(self._window)
        # Grow while the reads follow one another closely, start small again after a jump over data.
        self._readahead = FIRST_READ_BYTES if gap > FIRST_READ_BYTES else min(2 * self._readahead, MOST_READ_BYTES)
        kept = self._window[start:]
        missing = min(num_bytes, self._size_bytes - self.position) - len(kept)
        fetched = self._fetch(max(missing, self._readahead), self.position + len(kept))
        data = kept + fetched[:missing]
        # What is left of a large member goes straight to the caller; only small reads leave a window behind.
        if missing < self._readahead:
            self._window = fetched
            self._window_start = self.position + len(kept)
            self.position += len(data)
        else:
            self._window = b""
            self._window_start = self.position = self.position + len(data)
        return data

    def _fetch(self, num_bytes: int, offset: int) -> bytes:
        # Clamped first, because a file object allocates what it is asked for, and sizes are claims.
        num_bytes = min(num_bytes, self._size_bytes - offset)
        if num_bytes <= 0:
            return b""
        piece = self._read_at(num_bytes, offset)
        if len(piece) == num_bytes:
            return piece
        pieces = [piece]
        while piece and (num_bytes := num_bytes - len(piece)):
            offset += len(piece)
            piece = self._read_at(num_bytes, offset)
            pieces.append(piece)
        return b"".join(pieces)


def open_source(stream: BinaryIO, name: str) -> ByteSource:
    """Choose how to read a shard.

    Args:
        stream: the shard from its current position on; left open, at no particular position. Compression is
            recognised from the content, unless the content is proven to be a tar header by its checksum.
        name: the shard, for messages.

    Raises:
        TarFormatError: the content is compressed in a way that cannot be read.
    """
    base = stream.tell() if stream.seekable() else None
    decoded = open_decoded(stream, name, TarFormatError, is_plain=is_header)
    if base is None or decoded.compression != "none":
        return decoded
    descriptor = _find_regular_file(stream)
    if descriptor is None:
        size_bytes = stream.seek(0, os.SEEK_END) - base

        def read_at(num_bytes: int, offset: int) -> bytes:
            stream.seek(base + offset)
            return stream.read(num_bytes)

    else:
        size_bytes = os.fstat(descriptor).st_size - base

        def read_at(num_bytes: int, offset: int) -> bytes:
            return os.pread(descriptor, num_bytes, base + offset)

    return SeekableSource(read_at, max(0, size_bytes))


def _find_regular_file(stream: BinaryIO) -> int | None:
    # Exactly these classes: others that have a descriptor (GzipFile) do not give the bytes of the file.
    if not isinstance(stream, io.BufferedReader | io.BufferedRandom | io.FileIO):
        return None
    raw = stream if isinstance(stream, io.FileIO) else stream.raw
    if not isinstance(raw, io.FileIO) or not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        return None
    return raw.fileno()
