"""Small files that say what a process does, with a lock that says whether it still lives.

Rules:
    * The content is replaced by rename: a reader sees one whole state, never a mixture. It is not made durable, since
      it means nothing after a reboot.
    * ``NAME.lock`` beside it is locked exclusively for as long as the process lives; the kernel lets go of it however
      the process ends. Forked children keep it as well.
    * Who removes the files of a dead process takes the lock first (:func:`remove_dead_file`).
"""

import os
import stat
import time
from contextlib import suppress
from typing import Self

from shards.files import FINAL_MODE, create_partial, make_directory, read_regular_file
from shards.leases import try_lock

LOCK_SUFFIX = ".lock"

LOCK_MODE = 0o644
"""Everybody on the node may ask whether the process lives."""

OPEN_SECONDS = 2.0
_POLL_SECONDS = 0.01


class LiveFile:
    """A live file of this process; a context manager that lets go of it and leaves the last state.

    Attributes:
        path: of the content.
    """

    def __init__(self, path: str, lock_fd: int) -> None:
        """Hold what is locked already; users call :func:`open_live_file`.

        Args:
            path: of the content.
            lock_fd: the locked file beside it.
        """
        self.path = path
        self._lock_fd = lock_fd

    def write(self, data: bytes) -> None:
        """Replace the content.

        Raises:
            OSError: not possible; the earlier content stays.
        """
        with create_partial(self.path) as partial:
            partial.write(data)
            os.fchmod(partial.fd, FINAL_MODE)
            os.replace(partial.path, self.path)

    def close(self) -> None:
        """Let go; the last content stays, as that of a process which has ended."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def remove(self) -> None:
        """Let go and leave nothing."""
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        with suppress(FileNotFoundError):
            os.unlink(self.path + LOCK_SUFFIX)
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_live_file(path: str, *, directory_mode: int = 0o755, wait_seconds: float = OPEN_SECONDS) -> LiveFile | None:
    """Make a live file this process's own; None when it belongs to another process that lives.

    Args:
        path: of the content.
        directory_mode: of its directory, when that has to be made.
        wait_seconds: how long to try. Who asks whether a process lives holds its lock for a moment.

    Raises:
        OSError: it cannot be made.
        UnsupportedEnvironmentError: this filesystem has no locks.
    """
    make_directory(os.path.dirname(path), directory_mode)
    deadline = time.monotonic() + wait_seconds
    while True:
        fd = _open_lock(path, os.O_RDWR | os.O_CREAT)
        try:
            if try_lock(fd) and _is_at(fd, path):
                return LiveFile(path, fd)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        if time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_SECONDS)


def read_live_file(path: str, *, max_bytes: int) -> tuple[bytes, bool]:
    """Read a live file: its content, and whether its process lives.

    Raises:
        OSError: it is not there, or cannot be read.
        FormatError: it is no regular file, or too big.
    """
    return read_regular_file(path, max_bytes=max_bytes), is_live(path)


def is_live(path: str) -> bool:
    """Whether the process that a live file belongs to lives."""
    try:
        fd = _open_lock(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not try_lock(fd, is_exclusive=False)
    finally:
        os.close(fd)


def remove_dead_file(path: str) -> bool:
    """Remove a live file whose process has ended; whether it has ended.

    Raises:
        OSError: not possible.
    """
    try:
        fd = _open_lock(path, os.O_RDONLY)
    except FileNotFoundError:
        with suppress(FileNotFoundError):
            os.unlink(path)
        return True
    try:
        is_dead = try_lock(fd)
        if is_dead and _is_at(fd, path):
            for name in (path, path + LOCK_SUFFIX):
                with suppress(FileNotFoundError):
                    os.unlink(name)
    finally:
        os.close(fd)
    return is_dead


def _open_lock(path: str, flags: int) -> int:
    fd = os.open(path + LOCK_SUFFIX, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, LOCK_MODE)
    if flags & os.O_CREAT and stat.S_IMODE(os.fstat(fd).st_mode) != LOCK_MODE:
        os.fchmod(fd, LOCK_MODE)
    return fd


def _is_at(fd: int, path: str) -> bool:
    """Whether a lock still has its name: who removes a dead file may have been quicker."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path + LOCK_SUFFIX))
    except FileNotFoundError:
        return False
