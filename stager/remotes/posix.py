"""A dataset in a directory: a local disk, or a mount such as NFS or CephFS.

Rules:
    * Each range opens the file anew. An open is one round trip beside 8 MiB of data, and in exchange there is no
      descriptor that can go stale (ESTALE) and a file that was replaced under its name is noticed at once.
    * The file is compared with the wanted version before and after the bytes are read.
    * A shard is read once, and the memory of the container (page cache is charged to it) is better spent on what the
      training will read. So what was not in the page cache does not stay there; what was, somebody else has use for,
      and it stays.
"""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor

from shards.direct import ALIGNMENT_BYTES, NOT_DIRECT, reopen_direct
from shards.errors import (
    RemoteBusyError,
    RemoteChangedError,
    RemoteDeniedError,
    RemoteError,
    RemoteMissingError,
    printable,
)
from stager.page_cache import is_cached
from stager.remotes.base import ListedFile, RemoteVersion, is_hidden
from stager.threads import run_in_thread

_MISSING_ERRNOS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_DENIED_ERRNOS = frozenset({errno.EACCES, errno.EPERM})
_PERMANENT_ERRNOS = frozenset({errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.EMFILE, errno.ENFILE})


class PosixRemote:
    """Reads a dataset directory with ``preadv`` in threads.

    Args:
        root: the directory; need not exist yet, the first :meth:`stat` says so.
        num_threads: reads that run at the same time; more wait in line.
    """

    def __init__(self, root: str, num_threads: int) -> None:
        self._root = os.path.abspath(root)
        self._executor = ThreadPoolExecutor(num_threads, thread_name_prefix="stage-read")

    @property
    def url(self) -> str:
        """The directory's absolute path."""
        return self._root

    async def stat(self, name: str) -> RemoteVersion:
        """Observe a file; see :meth:`stager.remotes.base.Remote.stat`."""
        return await run_in_thread(self._executor, self._stat, name)

    async def read_range(self, name: str, offset: int, buffer: memoryview, version: RemoteVersion) -> None:
        """Fill a buffer; see :meth:`stager.remotes.base.Remote.read_range`."""
        await run_in_thread(self._executor, self._read_range, name, offset, buffer, version)

    async def list_files(self) -> list[ListedFile]:
        """List all files; see :meth:`stager.remotes.base.Remote.list_files`."""
        return await run_in_thread(self._executor, self._list_files)

    async def close(self) -> None:
        """Let the threads end; a read that hangs in the kernel is left behind."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _list_files(self) -> list[ListedFile]:
        found = []

        def refuse(error: OSError) -> None:
            raise error

        try:
            for directory, below, names in os.walk(self._root, onerror=refuse):
                below[:] = [name for name in below if not is_hidden(name)]
                prefix = os.path.relpath(directory, self._root)
                for name in names:
                    path = os.path.join(directory, name)
                    if is_hidden(name) or not os.path.isfile(path):
                        continue
                    version = _version_of(os.stat(path), path)
                    shown = name if prefix == os.curdir else f"{prefix}/{name}"
                    found.append(ListedFile(shown, version.size_bytes, version.token))
        except OSError as error:
            raise _remote_error(error, os.fsdecode(error.filename or self._root)) from error
        return sorted(found, key=lambda file: file.name)

    def _stat(self, name: str) -> RemoteVersion:
        path = os.path.join(self._root, name)
        try:
            return _version_of(os.stat(path), path)
        except OSError as error:
            raise _remote_error(error, path) from error

    def _read_range(self, name: str, offset: int, buffer: memoryview, version: RemoteVersion) -> None:
        path = os.path.join(self._root, name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _remote_error(error, path) from error
        try:
            _check_version(os.fstat(fd), path, version)
            if len(buffer) == 0 or is_cached(fd, offset, len(buffer)):
                _fill(fd, offset, buffer, path)
            else:
                _read_uncached(fd, offset, buffer, path)
            _check_version(os.fstat(fd), path, version)
        except OSError as error:
            raise _remote_error(error, path) from error
        finally:
            os.close(fd)


def _read_uncached(fd: int, offset: int, buffer: memoryview, path: str) -> None:
    """Read what the page cache does not have, and leave nothing there."""
    direct_fd = reopen_direct(fd, os.O_RDONLY)
    done = 0
    if direct_fd is not None:
        try:
            done = _read_direct(direct_fd, offset, buffer)
        finally:
            os.close(direct_fd)
    if done < len(buffer):
        start, rest = offset + done, len(buffer) - done
        # one announced range lets a network mount ask for all of it at once
        os.posix_fadvise(fd, start, rest, os.POSIX_FADV_WILLNEED)
        _fill(fd, start, buffer[done:], path)
        os.posix_fadvise(fd, start, rest, os.POSIX_FADV_DONTNEED)


def _read_direct(fd: int, offset: int, buffer: memoryview) -> int:
    """Read past the page cache; gives how many bytes from the start could be, in whole pages."""
    wanted = len(buffer) - len(buffer) % ALIGNMENT_BYTES
    done = 0
    while done < wanted:
        try:
            count = os.preadv(fd, [buffer[done:wanted]], offset + done)
        except OSError as error:
            if error.errno not in NOT_DIRECT:
                raise
            break
        done += count - count % ALIGNMENT_BYTES
        if count < ALIGNMENT_BYTES:
            break
    return done


def _fill(fd: int, offset: int, buffer: memoryview, path: str) -> None:
    """Read until the buffer is full: a signal or a network filesystem may deliver less than was asked for."""
    done = 0
    while done < len(buffer):
        count = os.preadv(fd, [buffer[done:]], offset + done)
        if count == 0:
            # the size was checked on this descriptor, so the filesystem contradicts itself; NFS heals this by itself
            raise RemoteBusyError(f"{printable(path)} ended at byte {offset + done}, before the size it has")
        done += count


def _version_of(status: os.stat_result, path: str) -> RemoteVersion:
    if not stat.S_ISREG(status.st_mode):
        raise RemoteMissingError(f"{printable(path)} is not a regular file")
    # no device number: it changes when a network mount is mounted again
    return RemoteVersion(status.st_size, f"inode {status.st_ino}, mtime {status.st_mtime_ns} ns")


def _check_version(status: os.stat_result, path: str, expected: RemoteVersion) -> None:
    actual = _version_of(status, path)
    if actual != expected:
        raise RemoteChangedError(path, _describe(expected), _describe(actual))


def _describe(version: RemoteVersion) -> str:
    return f"{version.size_bytes} bytes, {version.token}"


def _remote_error(error: OSError, path: str) -> RemoteError:
    where = f"{printable(path)}: {error.strerror}"
    if error.errno in _MISSING_ERRNOS:
        return RemoteMissingError(where)
    if error.errno in _DENIED_ERRNOS:
        return RemoteDeniedError(f"{where} (this process runs as uid {os.geteuid()}, gid {os.getegid()})")
    return RemoteError(where, is_transient=error.errno not in _PERMANENT_ERRNOS)
