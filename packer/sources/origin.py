"""The seam between a source and the packer processes: where members lie, and how their bytes are read.

A source is looked through once, in the main process. What it found travels to the processes as an :class:`Origin`, a
small picklable value without open files. Each process opens one :class:`MemberReader` of it and asks for members by
locator. A locator is whatever the source needs to find the bytes again: a path, an offset in an archive, an object's
name. It is opaque to everything between the source and its reader.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

PIECE_BYTES = 1024 * 1024
"""Members are read in pieces of at most this size, which bounds memory and keeps the copy in the cache."""


class MemberReader(Protocol):
    """Reads members as they were planned. Safe to use from several threads."""

    def read_into(self, locator: bytes, size: int, stamp: int, target: memoryview, offset: int) -> int:
        """Read a whole member into a place of a buffer.

        Args:
            locator: of the member, as the source gave it.
            size: planned size in bytes.
            stamp: of the planned version; see :class:`packer.sources.files.SourceFiles`.
            target: writable bytes; ``offset + size`` of them at least.
            offset: where in the target the data go.

        Returns:
            CRC-32C of the data.

        Raises:
            SourceChangedError: the member is not as planned.
            SourceError: it cannot be read.
            RemoteError: a store does not answer, or refuses.
            FormatError: what holds it is damaged.
        """

    def pieces(self, locator: bytes, size: int, stamp: int) -> Iterator[bytes]:
        """Read a member in pieces, ``size`` bytes in all; checked before the last piece is given.

        Raises: as :meth:`read_into`.
        """

    def close(self) -> None:
        """Give back files, connections and caches."""


class Origin(Protocol):
    """Where the members of a source lie; picklable."""

    def local_paths(self) -> Sequence[bytes]:
        """Files and directories, absolute, that a process must see to read the source; none in an object store."""

    def open_reader(self) -> MemberReader:
        """Make the reader of one process."""
