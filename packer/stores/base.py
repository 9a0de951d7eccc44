"""What the packer asks of the place where a dataset lies, and the reading that all places share.

Rules for every implementation:
    * Names are those of the manifest: relative, with ``/``. Names are never looked up outside of the dataset.
    * A name is seen only when the content under it is complete.
    * A missing file is ``FileNotFoundError``. Other failures are ``OSError`` (directories) or
      :class:`shards.errors.RemoteError` (object stores).
"""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, Self

from shards.index import ShardIndex

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

READ_BYTES = 8 * 1024 * 1024
"""Read at once when a whole file is read."""


ALIGNMENT_BYTES = 4096
"""Pieces that begin and end at a multiple of this, in memory and in the file, are written quickest: past the page
cache where the store offers that. No usual device or filesystem wants more."""


class RangeReader(Protocol):
    """One open file; a context manager."""

    @property
    def size_bytes(self) -> int:
        """Size of the file when it was opened."""

    def read_at(self, num_bytes: int, offset: int) -> bytes:
        """Read a range; fewer bytes only at the end of the file."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class GrowingFile(Protocol):
    """A file being written; a context manager that leaves no trace unless it was committed."""

    def write(self, data: "ReadableBuffer") -> None:
        """Append all of ``data``; the buffer may be used again when this returns."""

    def commit(self, expected_bytes: int) -> None:
        """Make the file visible under its name.

        Raises:
            SizeMismatchError: it has another size; nothing was made visible.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class DatasetStore(Protocol):
    """The files of one dataset."""

    @property
    def location(self) -> str:
        """Path or URL, for messages; carries no secrets."""

    def size_of(self, name: str) -> int | None:
        """Size of a file, or None when it is not there."""

    def version_of(self, name: str) -> str | None:
        """A token that changes whenever the content does, or None where there is no such thing."""

    def read_file(self, name: str) -> bytes:
        """Read a small file."""

    def open_index(self, name: str) -> ShardIndex:
        """Open the index of a shard."""

    def open_reader(self, name: str, *, is_sequential: bool = True) -> RangeReader:
        """Open a file for reads in ranges; sequential reads may be served from what was read ahead."""

    def list_names(self) -> list[str]:
        """Names of all files, ascending; those of hidden files and directories are left out."""

    def list_leftovers(self) -> list[str]:
        """What killed runs left unfinished, as far as it can be seen."""

    def create(self, name: str, size_bytes: int) -> GrowingFile:
        """Begin a big file that will have this size."""

    def put(self, name: str, data: bytes) -> None:
        """Write a small file durably, replacing the one that was there."""


def read_pieces(reader: RangeReader, num_bytes: int = READ_BYTES) -> Iterator[bytes]:
    """Read a whole file in pieces."""
    offset = 0
    while piece := reader.read_at(num_bytes, offset):
        yield piece
        offset += len(piece)


class ReaderStream(io.RawIOBase):
    """A file object over a reader, for what wants to seek and read."""

    def __init__(self, reader: RangeReader) -> None:
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
