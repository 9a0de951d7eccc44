"""Files that are read in ranges, wherever they lie, and a file object over one."""

import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

READ_BYTES = 8 * 1024 * 1024
"""Read at once when a whole file is read."""


class Ranges(Protocol):
    """A file's bytes by range."""

    @property
    def size_bytes(self) -> int:
        """Size of the file when it was opened."""

    def read_at(self, num_bytes: int, offset: int) -> bytes:
        """Read a range; fewer bytes only at the end of the file."""


class RangeReader(Ranges, Protocol):
    """One open file; a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class FileRanges:
    """Reads ranges of one open file; closes it in the end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size_bytes = os.fstat(fd).st_size

    def read_at(self, num_bytes: int, offset: int) -> bytes:
        """Read a range; fewer bytes only at the end of the file."""
        data = os.pread(self._fd, num_bytes, offset)
        if len(data) == num_bytes or not data:
            return data
        parts = [data]
        while data:
            num_bytes -= len(data)
            offset += len(data)
            data = os.pread(self._fd, num_bytes, offset) if num_bytes else b""
            parts.append(data)
        return b"".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def read_pieces(reader: Ranges, num_bytes: int = READ_BYTES) -> Iterator[bytes]:
    """Read a whole file in pieces."""
    offset = 0
    while piece := reader.read_at(num_bytes, offset):
        yield piece
        offset += len(piece)


class ReaderStream(io.RawIOBase):
    """A file object over a reader, for what wants to seek and read."""

    def __init__(self, reader: Ranges) -> None:
        super().__init__()
        self._reader = reader
        self._position = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Offset of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to an offset."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._reader.size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes; all that are left when it is negative."""
        left = max(self._reader.size_bytes - self._position, 0)
        data = self._reader.read_at(left if size < 0 else min(size, left), self._position)
        self._position += len(data)
        return data

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill a buffer."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
