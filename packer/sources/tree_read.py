"""Reads the files of a tree as they were planned, or says which one is not what the plan says.

Rules:
    * A file is opened once, read to its end and checked: a regular file, with the planned size and modification time.
      The check comes after the read, so it also catches a change during the read.
    * What was planned as a file and became a fifo or device meanwhile does not block: see ``TreeRoot.open_flags``.
    * A read that fails for a moment is repeated with the file opened anew; see :mod:`packer.sources.persist`.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from packer.sources.files import display_path
from packer.sources.origin import PIECE_BYTES
from packer.sources.persist import Patience, explain_errno
from shards.digests import crc32c
from shards.errors import SourceChangedError, SourceError, printable

NO_FILE = "no such file"

_CHANGED_ERRNOS = {
    errno.ENOENT: NO_FILE,
    errno.ENOTDIR: NO_FILE,
    errno.ELOOP: "a symbolic link",
    errno.EISDIR: "a directory",
    errno.ENXIO: "a special file",
}
"""Errors of open and read that mean: another thing lies there now."""


@dataclass(frozen=True, slots=True)
class TreeRoot:
    """Where the files of a tree lie, for the packer processes: an :class:`packer.sources.origin.Origin`."""

    path: bytes
    """Absolute. The locator of a member is its path below."""
    follows_symlinks: bool

    @property
    def open_flags(self) -> int:
        """Flags for ``os.open``: never blocks on a fifo that took a file's place since the walk."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        return flags if self.follows_symlinks else flags | os.O_NOFOLLOW

    def local_paths(self) -> tuple[bytes, ...]:
        """The root."""
        return (self.path,)

    def open_reader(self) -> "TreeReader":
        """Nothing is opened before a file is read."""
        return TreeReader(self)


class TreeReader:
    """Reads files below one root. Safe to use from several threads."""

    __slots__ = ("_flags", "_prefix", "_surplus")

    def __init__(self, root: TreeRoot) -> None:
        self._prefix = root.path.rstrip(b"/") + b"/"
        self._flags = root.open_flags
        self._surplus = bytearray(1)  # takes bytes that nobody looks at, so threads may share it

    def close(self) -> None:
        """Do nothing: no file stays open between reads."""

    def read_into(self, path: bytes, size: int, mtime_ns: int, target: memoryview, offset: int) -> int:
        """Read a whole file into a place of a buffer.

        Args:
            path: relative to the root.
            size: planned size in bytes.
            mtime_ns: planned modification time.
            target: writable bytes; ``offset + size`` of them at least.
            offset: where in the target the data go.

        Returns:
            CRC-32C of the data.

        Raises:
            SourceChangedError: the file is not as planned.
            SourceError: it cannot be read.
        """
        place = target[offset : offset + size]
        try:
            got, status = self._read(path, place)
        except OSError as error:
            got, status = self._read_again(error, path, place, mtime_ns)
        if got != size or status.st_mtime_ns != mtime_ns or status.st_size != size:
            raise _changed(path, size, mtime_ns, status, got)
        if not stat.S_ISREG(status.st_mode):
            raise SourceChangedError(display_path(path), _describe(size, mtime_ns), "a special file")
        return crc32c(place)

    def pieces(self, path: bytes, size: int, mtime_ns: int) -> Iterator[bytes]:
        """Read a file in pieces of at most :data:`PIECE_BYTES`, ``size`` bytes in all; checked before the last piece.

        Raises:
            SourceChangedError: the file is not as planned.
            SourceError: it cannot be read.
        """
        done = 0
        patience = Patience()
        while True:
            try:
                for piece in self._pieces_from(done, path, size, mtime_ns):
                    done += len(piece)
                    yield piece
            except OSError as error:
                if not patience.wait(error):
                    raise _explain(error, path, size, mtime_ns) from error
            else:
                return

    def _read(self, path: bytes, place: memoryview) -> tuple[int, os.stat_result]:
        """Fill a place with a file; gives how many bytes there were, up to one more, and the status after the read."""
        size = len(place)
        fd = os.open(self._prefix + path, self._flags)
        try:
            # one byte more than planned: a full read then proves the end of the file without another call
            got = os.readv(fd, (place, self._surplus))
            while got < size and (more := os.readv(fd, (place[got:], self._surplus))):
                got += more  # some network filesystems give short reads before the end of a file
            return got, os.fstat(fd)
        finally:
            os.close(fd)

    def _read_again(self, error: OSError, path: bytes, place: memoryview, mtime_ns: int) -> tuple[int, os.stat_result]:
        """Try a read again that has failed."""
        patience = Patience()
        while patience.wait(error):
            try:
                return self._read(path, place)
            except OSError as another:
                error = another
        raise _explain(error, path, len(place), mtime_ns) from error

    def _pieces_from(self, done: int, path: bytes, size: int, mtime_ns: int) -> Iterator[bytes]:
        """The pieces from an offset on."""
        left = size - done
        fd = os.open(self._prefix + path, self._flags)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise SourceChangedError(display_path(path), _describe(size, mtime_ns), "a special file")
            if done:
                os.lseek(fd, done, os.SEEK_SET)
            while left > 0:
                piece = os.read(fd, min(left, PIECE_BYTES))
                left -= len(piece)
                if not piece or left == 0:
                    _check_end(fd, path, size, mtime_ns, size - left)
                yield piece
            if size == 0:
                _check_end(fd, path, size, mtime_ns, 0)
        finally:
            os.close(fd)


def _check_end(fd: int, path: bytes, size: int, mtime_ns: int, num_read: int) -> None:
    status = os.fstat(fd)
    if num_read != size or status.st_size != size or status.st_mtime_ns != mtime_ns or os.read(fd, 1):
        raise _changed(path, size, mtime_ns, status, num_read)


def _changed(path: bytes, size: int, mtime_ns: int, status: os.stat_result, num_read: int) -> SourceChangedError:
    found = _describe(status.st_size, status.st_mtime_ns)
    if status.st_size == size and num_read != size:
        found += f", of which {num_read} bytes could be read"
    return SourceChangedError(display_path(path), _describe(size, mtime_ns), found)


def _describe(size: int, mtime_ns: int) -> str:
    return f"{size} bytes modified at {mtime_ns // 10**9}.{mtime_ns % 10**9:09d}"


def _explain(error: OSError, path: bytes, size: int, mtime_ns: int) -> SourceChangedError | SourceError:
    changed = _CHANGED_ERRNOS.get(error.errno or 0)
    if changed is not None:
        return SourceChangedError(display_path(path), _describe(size, mtime_ns), changed)
    return SourceError(
        f"cannot read source file {printable(display_path(path))}: {explain_errno(error)}; mend the filesystem or give "
        f"uid {os.geteuid()} read access, then run the same command again to go on; or plan anew without the file, by "
        "--exclude and --overwrite"
    )
