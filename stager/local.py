"""Single files of the cache: observed, read and opened, whatever lies under their names; everything here blocks."""

import fcntl
import os
import stat

from shards.cache import CacheLayout, dataset_id_of
from shards.errors import FormatError
from shards.files import create_partial, make_directory, read_regular_file
from shards.manifest import MAX_MANIFEST_BYTES
from stager.plan import ObservedFile
from stager.status import DatasetStatus


def is_group_shared(directory: str) -> bool:
    """Whether a directory is one in which a group works together: its setgid bit and the group's right to write."""
    mode = os.stat(directory).st_mode
    return bool(mode & stat.S_ISGID and mode & stat.S_IWGRP)


def make_cache_directory(path: str) -> None:
    """Make a directory of the cache, and the missing ones above it: 0755, or 2775 where a group shares the cache."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    while not os.path.isdir(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    make_directory(path, 0o775 if os.path.isdir(above) and is_group_shared(above) else 0o755)


def open_private(path: str, flags: int = 0) -> int:
    """Open a file that only stagers may open, for reading and writing: 0600, or 0660 where a group shares the cache.

    It is made when it is not there. Who can open a file can lock it, and hold up others.
    """
    flags |= os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    try:
        facts = os.fstat(fd)
        if facts.st_uid == os.geteuid() and not facts.st_mode & stat.S_IWGRP and is_group_shared(os.path.dirname(path)):
            os.fchmod(fd, 0o660)
    except BaseException:
        os.close(fd)
        raise
    return fd


def observe_file(path: str) -> ObservedFile | None:
    """Observe what lies under a final name; None when nothing does.

    What is no regular file has the size -1: nothing that a manifest promises looks like that.
    """
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else -1
    return ObservedFile(size_bytes, status.st_mtime_ns, status.st_ino)


def read_status(path: str) -> DatasetStatus | None:
    """Read a status file; None when there is none that can be read and understood."""
    try:
        return DatasetStatus.from_json(read_regular_file(path, max_bytes=MAX_MANIFEST_BYTES))
    except (OSError, FormatError):
        return None


def open_partial(path: str) -> int:
    """Open a shard's partial for reading and writing; it is made when it is not there."""
    try:
        return open_private(path)
    except PermissionError:
        if os.lstat(path).st_uid == os.geteuid():
            # a commit that was killed between the change of the mode and the rename
            os.chmod(path, 0o600)
        else:
            # of another user of the group, who alone could commit it; the directory is ours to change
            os.unlink(path)
        return open_private(path)


def may_commit(fd: int) -> bool:
    """Whether this process may give an open partial its final mode: it belongs to this user."""
    return os.geteuid() in {0, os.fstat(fd).st_uid}


def take_over(fd: int, path: str) -> int:
    """Put an empty partial of this user, as long and locked, in the place of one of another user; give it, open.

    Only its owner could commit the other one, on which ``fd`` has the lock.
    """
    with create_partial(path) as partial:
        os.ftruncate(partial.fd, os.fstat(fd).st_size)
        taken = os.dup(partial.fd)
        try:
            fcntl.flock(taken, fcntl.LOCK_EX)  # nobody else knows of it yet
            os.fchmod(taken, 0o660)
            os.rename(partial.path, path)
        except BaseException:
            os.close(taken)
            raise
    return taken


def staged_ids(layout: CacheLayout) -> list[str]:
    """Give the ids of the dataset directories of a cache, sorted."""
    try:
        names = sorted(os.listdir(layout.datasets_dir))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [dataset_id for name in names if (dataset_id := dataset_id_of(name)) is not None]


def is_at(fd: int, path: str) -> bool:
    """Whether a name still is that of an open file."""
    try:
        named = os.lstat(path)
    except FileNotFoundError:
        return False
    opened = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
