"""Reads members of archives where they lie: at offsets of plain tars and zips, in a forward stream of compressed tars.

An archive must be the one that was looked through: its size and modification time are checked with every read.
"""

import contextlib
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from packer.sources.archive_locator import StoredFile, ZippedFile, parse_locator
from packer.sources.chunks import ChunkedStreams
from packer.sources.origin import PIECE_BYTES
from packer.sources.persist import explain_errno, persist
from packer.sources.zip import unzip
from shards.digests import crc32c
from shards.errors import FormatError, SourceChangedError, SourceError, printable

_MOST_OPEN = 256
"""Archives that stay open; with more, each is opened for every read, as files of a tree are."""

ReadAt = Callable[[int, int], bytes]
"""(offset, size) → bytes."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive as it was looked through."""

    path: str
    size_bytes: int
    mtime_ns: int
    is_compressed: bool
    """A tar as a whole; the members of a zip are compressed each for itself."""


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """Where archives lie; see :class:`packer.sources.origin.Origin`."""

    archives: tuple[Archive, ...]

    def local_paths(self) -> list[bytes]:
        """All archives."""
        return [os.fsencode(archive.path) for archive in self.archives]

    def open_reader(self) -> "ArchiveReader":
        """Archives are opened when first read."""
        return ArchiveReader(self.archives)


class ArchiveReader:
    """Reads members of archives; see :class:`packer.sources.origin.MemberReader`."""

    def __init__(self, archives: tuple[Archive, ...]) -> None:
        self._archives = archives
        self._lock = threading.Lock()
        self._open: dict[int, int] = {}
        self._given_up: list[int] = []
        """Open files that failed and were opened anew; other threads may still be reading them."""
        self._streams = ChunkedStreams([archive.path for archive in archives])

    @property
    def num_stream_starts(self) -> int:
        """How often the stream of a compressed archive was begun."""
        return self._streams.num_starts

    def close(self) -> None:
        """Close all archives."""
        for fd in (*self._open.values(), *self._given_up):
            os.close(fd)
        self._open.clear()
        self._given_up.clear()

    def read_into(self, locator: bytes, size: int, stamp: int, target: memoryview, offset: int) -> int:
        """Read a whole member into a place of a buffer."""
        crc = 0
        for piece in self.pieces(locator, size, stamp):
            target[offset : offset + len(piece)] = piece
            offset += len(piece)
            crc = crc32c(piece, crc)
        return crc

    def pieces(self, locator: bytes, size: int, stamp: int) -> Iterator[bytes]:
        """Read a member in pieces."""
        place = parse_locator(locator)
        archive = self._archives[place.archive]
        try:
            with self._reading(place.archive, stamp) as (read_at, check):
                left = size
                for piece in _pieces(archive, place, size, read_at):
                    left -= len(piece)
                    if left <= 0:
                        check()
                    if left < 0:
                        raise FormatError(archive.path, place.offset, f"a member is longer than its {size} bytes")
                    yield piece
                if left > 0:
                    check()
                    raise FormatError(archive.path, place.offset, f"a member of {size} bytes ends {left} bytes early")
                if size == 0:
                    check()
        except FileNotFoundError as error:
            raise SourceChangedError(archive.path, _describe(archive.size_bytes, stamp), "no such file") from error
        except OSError as error:
            raise SourceError(
                f"cannot read the archive {printable(archive.path)}: {explain_errno(error)}; "
                "mend that, then run the same command again to go on"
            ) from error

    @contextlib.contextmanager
    def _reading(self, number: int, stamp: int) -> Iterator[tuple[ReadAt, Callable[[], None]]]:
        """Give what reads an archive, and what checks that it is still the planned one."""
        archive = self._archives[number]
        keeps_open = len(self._archives) <= _MOST_OPEN
        fd = -1

        def opened() -> int:
            nonlocal fd
            if fd < 0:
                fd = self._open_archive(number, keeps_open=keeps_open)
            return fd

        def forget() -> None:
            nonlocal fd
            if fd >= 0:
                self._forget(number, fd) if keeps_open else os.close(fd)
            fd = -1

        def check() -> None:
            status = persist(lambda: os.fstat(opened()), forget)
            if status.st_size != archive.size_bytes or status.st_mtime_ns != stamp:
                planned = _describe(archive.size_bytes, stamp)
                raise SourceChangedError(archive.path, planned, _describe(status.st_size, status.st_mtime_ns))

        try:
            if archive.is_compressed:
                check()
                yield lambda offset, size: persist(lambda: self._streams.read_at(number, offset, size)), check
            else:
                yield lambda offset, size: persist(lambda: os.pread(opened(), size, offset), forget), check
        except FormatError:
            check()  # damage that comes of a change is a change
            raise
        finally:
            if not keeps_open and fd >= 0:
                os.close(fd)

    def _open_archive(self, number: int, *, keeps_open: bool) -> int:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        if not keeps_open:
            return os.open(self._archives[number].path, flags)
        with self._lock:
            fd = self._open.get(number)
            if fd is None:
                fd = self._open[number] = os.open(self._archives[number].path, flags)
        return fd

    def _forget(self, number: int, fd: int) -> None:
        """Let the next read open an archive anew, unless another thread did so already."""
        with self._lock:
            if self._open.get(number) == fd:
                self._given_up.append(self._open.pop(number))


def _pieces(archive: Archive, place: StoredFile | ZippedFile, size: int, read_at: ReadAt) -> Iterator[bytes]:
    """The data of a member; too many or too few when the archive is not as it says."""
    if isinstance(place, ZippedFile):
        crc = given = 0
        for piece in unzip(archive.path, place.offset, place.stored_size, place.method, read_at):
            crc = zlib.crc32(piece, crc)
            given += len(piece)
            # the last piece is held back until the sum over all is known to be right
            if given == size and crc != place.crc32:
                raise FormatError(archive.path, place.offset, "the data of a zip member do not have their CRC-32")
            yield piece
        return
    filled = 0
    for start, piece_size, offset in (*(place.extents or ((0, size, place.offset),)), (size, 0, 0)):
        for hole in range(filled, start, PIECE_BYTES):
            yield bytes(min(PIECE_BYTES, start - hole))
        for done in range(0, piece_size, PIECE_BYTES):
            wanted = min(PIECE_BYTES, piece_size - done)
            piece = read_at(offset + done, wanted)
            yield piece
            if len(piece) < wanted:
                return
        filled = start + piece_size


def _describe(size: int, mtime_ns: int) -> str:
    return f"an archive of {size} bytes modified at {mtime_ns // 10**9}.{mtime_ns % 10**9:09d}"
