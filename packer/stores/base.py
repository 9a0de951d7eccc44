"""What the packer asks of the place where a dataset lies, and the reading that all places share.

Rules for every implementation:
    * Names are those of the manifest: relative, with ``/``. Names are never looked up outside of the dataset.
    * A name is seen only when the content under it is complete.
    * A missing file is ``FileNotFoundError``. Other failures are ``OSError`` (directories) or
      :class:`shards.errors.RemoteError` (object stores).
"""

from typing import TYPE_CHECKING, Protocol, Self

from shards.index import ShardIndex
from shards.ranges import RangeReader

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ALIGNMENT_BYTES = 4096
"""Pieces that begin and end at a multiple of this, in memory and in the file, are written quickest: past the page
cache where the store offers that. No usual device or filesystem wants more."""


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
