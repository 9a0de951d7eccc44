"""Single files of the cache: observed, read and opened, whatever lies under their names; everything here blocks."""

import os
import stat

from shards.errors import FormatError
from shards.files import read_regular_file
from shards.manifest import MAX_MANIFEST_BYTES
from stager.plan import ObservedFile
from stager.status import DatasetStatus


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
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except PermissionError:
        # a commit that was killed between the change of the mode and the rename
        if os.lstat(path).st_uid != os.geteuid():
            raise
        os.chmod(path, 0o600)
        return os.open(path, flags, 0o600)


def is_at(fd: int, path: str) -> bool:
    """Whether a name still is that of an open file."""
    try:
        named = os.lstat(path)
    except FileNotFoundError:
        return False
    opened = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
