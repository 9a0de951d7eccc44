"""Durable files: a final name exists only when the file under it is complete and on disk.

The recipe, once, for everybody: a partial with a unique name in the same directory → size check → mode 0444 whatever
the umask → fsync → rename → fsync of the directory. Digests are checked by the caller before it commits. A process
killed at any moment leaves at most a partial, whose name :func:`is_partial_name` recognises.

The rename replaces a file that already has the final name, atomically: a reader sees the old one or the new one, and
who has the old one open keeps it. Whether something may be replaced is for the caller to decide beforehand.

Errors are ``OSError`` with the file's name in them, so that a message can say which disk is full.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from shards.errors import FormatError, SizeMismatchError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

FINAL_MODE = 0o444
"""Nobody changes a committed file, and every user of a node may read it, whatever umask its writer had."""

_GROWTH_BYTES = 4096
"""By how much a small file may have grown since its size was asked for."""

_PARTIAL_NAME = re.compile(r"\..+\.[0-9a-f]{16}\.partial", re.DOTALL)
_MAX_NAME_BYTES = 255
_PARTIAL_EXTRA_BYTES = len("..0123456789abcdef.partial")

# Filesystems that have no such thing as a mode, or no fsync on directories, say so with one of these.
_NOT_OFFERED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


def is_partial_name(name: str) -> bool:
    """Whether a base name is one that :func:`create_partial` gives."""
    return _PARTIAL_NAME.fullmatch(name) is not None


def is_partial_of(name: str, final_name: str) -> bool:
    """Whether a base name is one that :func:`create_partial` gives for a file with this final name."""
    prefix = f".{_partial_stem(final_name)}."
    return is_partial_name(name) and name.startswith(prefix) and name.count(".", len(prefix)) == 1


class PartialFile:
    """A file being written under a partial's name; a context manager that removes it unless it was committed."""

    def __init__(self, fd: int, path: str, final_path: str) -> None:
        self.fd = fd
        """Open for reading and writing until commit or exit."""
        self.path = path
        """Where the partial lies: in the directory of ``final_path``."""
        self.final_path = final_path
        self._is_open = True

    def write(self, data: "Buffer") -> None:
        """Append all of ``data``."""
        write_all(self.fd, data, path=self.final_path)

    def commit(self, expected_bytes: int) -> None:
        """Make the file durable under its final name; see :func:`commit_open_file`. Closes :attr:`fd`."""
        commit_open_file(self.fd, self.path, self.final_path, expected_bytes)
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_open:
            try:
                self._close()
            finally:
                _remove_if_there(self.path)

    def _close(self) -> None:
        self._is_open = False
        os.close(self.fd)


def create_partial(final_path: str) -> PartialFile:
    """Create an empty partial for ``final_path``, named ``.{name}.{16 random hex digits}.partial``.

    A name too long for that is cut; the random part keeps it unique. Until it is committed, only its owner can
    read the partial (mode 0600).
    """
    directory, name = os.path.split(final_path)
    if not name:
        raise ValueError(f"no file name in {final_path!r}")
    stem = _partial_stem(name)
    while True:
        path = os.path.join(directory, f".{stem}.{secrets.token_hex(8)}.partial")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        return PartialFile(fd, path, final_path)


def _partial_stem(final_name: str) -> str:
    return os.fsdecode(os.fsencode(final_name)[: _MAX_NAME_BYTES - _PARTIAL_EXTRA_BYTES])


def commit_open_file(fd: int, partial_path: str, final_path: str, expected_bytes: int) -> None:
    """Give a completely written file its final name, durably.

    Args:
        fd: the partial, open for writing; stays open.
        partial_path: its name now.
        final_path: its name afterwards, in the same directory. A file there is replaced.
        expected_bytes: the size it must have.

    Raises:
        SizeMismatchError: it has another size; nothing was renamed.
        OSError: nothing was renamed, or (from the fsync of the directory) the whole file is there under its final
            name but a loss of power might still take the name away.
    """
    actual_bytes = os.fstat(fd).st_size
    if actual_bytes != expected_bytes:
        raise SizeMismatchError(final_path, expected_bytes, actual_bytes, "nothing was committed")
    with _naming(final_path):
        with _if_offered():
            os.fchmod(fd, FINAL_MODE)  # before the fsync, so that the mode is as durable as the data
        os.fsync(fd)
    os.replace(partial_path, final_path)
    fsync_directory(os.path.dirname(final_path) or ".")


def write_all(fd: int, data: "Buffer", *, path: str) -> None:
    """Write all of ``data``, however many calls it takes.

    Args:
        fd: where to.
        data: contiguous buffer.
        path: name of the file for the ``OSError``, since a descriptor has none.
    """
    with memoryview(data) as view, view.cast("B") as piece, _naming(path):
        start = 0
        while start < len(piece):
            start += os.write(fd, piece[start:])


def write_file(path: str, data: "Buffer") -> None:
    """Write a small file durably, replacing the one that was there."""
    with create_partial(path) as partial:
        partial.write(data)
        partial.commit(memoryview(data).nbytes)


def read_regular_file(path: str, *, max_bytes: int) -> bytes:
    """Read a whole small file. What is no regular file is never waited for, what is too big never read.

    Args:
        path: the file.
        max_bytes: most that such a file can have.

    Raises:
        FormatError: it is no regular file, or bigger.
        OSError: it cannot be read.
    """
    # O_NONBLOCK: to open a fifo would else wait until somebody writes into it
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(path, None, "it is not a regular file")
        if status.st_size > max_bytes:
            raise FormatError(path, None, f"{status.st_size} bytes, at most {max_bytes} are accepted")
        with _naming(path), open(fd, "rb", closefd=False) as file:
            # not max_bytes: a buffer of that size would be asked for, and refused where memory is not overcommitted
            return file.read(min(max_bytes, status.st_size + _GROWTH_BYTES))
    finally:
        os.close(fd)


def fsync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _naming(path), _if_offered():
            os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: str, mode: int = 0o755) -> None:
    """Make a directory, and the missing ones above it, durably and with exactly this mode whatever the umask.

    Directories that exist already keep their mode.

    Raises:
        OSError: not possible, for instance because the path is a file.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path.rstrip("/")) or "."
    if parent != path:
        make_directory(parent, mode)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if os.path.isdir(path):  # another process was quicker
            return
        raise
    with _if_offered():
        os.chmod(path, mode | os.stat(path).st_mode & stat.S_ISGID)  # a directory shared by a group hands its bit on
    fsync_directory(parent)


def free_bytes(path: str) -> int:
    """How many bytes an ordinary user may still write on the filesystem of ``path``.

    A path that does not exist yet stands for the nearest directory above it that does.
    """
    while True:
        try:
            facts = os.statvfs(path or ".")
        except FileNotFoundError:
            parent = os.path.dirname(path.rstrip("/"))
            if parent == path or not path:
                raise
            path = parent
        else:
            return facts.f_bavail * facts.f_frsize


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


@contextmanager
def _if_offered() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise


def _remove_if_there(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
