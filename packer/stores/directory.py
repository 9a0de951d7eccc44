"""A dataset in a directory: a local disk, NFS, CephFS."""

import errno
import fcntl
import os
from typing import TYPE_CHECKING, Self

from packer.stores.base import ALIGNMENT_BYTES, GrowingFile
from shards.files import PartialFile, create_partial, is_partial_name, read_regular_file, write_file
from shards.index import ShardIndex
from shards.ranges import FileRanges

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


MAX_WHOLE_FILE_BYTES = 4 * 1024**3
"""Most that is read in one piece: the index of some fifty million samples."""


_NOT_DIRECT = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
"""How a filesystem says that it does not write past the page cache."""


class DirectoryStore:
    """The files below one directory; see :class:`packer.stores.base.DatasetStore`."""

    def __init__(self, path: str) -> None:
        self.location = path

    def size_of(self, name: str) -> int | None:
        """Size of a file, or None when it is not there."""
        try:
            return os.stat(self._path(name)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def version_of(self, name: str) -> str | None:
        """None: a file may be changed within one tick of its clock."""
        return None

    def read_file(self, name: str) -> bytes:
        """Read a manifest, plan or index; what is no regular file is refused, not waited for."""
        return read_regular_file(self._path(name), max_bytes=MAX_WHOLE_FILE_BYTES)

    def open_index(self, name: str) -> ShardIndex:
        """Map the index of a shard."""
        return ShardIndex.open(self._path(name))

    def open_reader(self, name: str, *, is_sequential: bool = True) -> FileRanges:
        """Open a file for reads in ranges."""
        fd = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        if is_sequential:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        return FileRanges(fd)

    def list_names(self) -> list[str]:
        """Names of all files, ascending, without hidden ones."""
        found = []
        for directory, below, names in os.walk(self.location):
            below[:] = [name for name in below if not name.startswith(".")]
            prefix = os.path.relpath(directory, self.location)
            found += [
                name if prefix == "." else f"{prefix}/{name}".replace(os.sep, "/")
                for name in names
                if not name.startswith(".")
            ]
        return sorted(found, key=os.fsencode)

    def list_leftovers(self) -> list[str]:
        """Names of partials at the top of the directory."""
        return sorted(name for name in os.listdir(self.location) if is_partial_name(name))

    def create(self, name: str, size_bytes: int) -> GrowingFile:
        """Begin a file under a partial's name."""
        return _GrowingPartial(create_partial(self._path(name)))

    def put(self, name: str, data: bytes) -> None:
        """Write a small file durably."""
        write_file(self._path(name), data)

    def _path(self, name: str) -> str:
        return os.path.join(self.location, name)


class _GrowingPartial:
    """A partial that is sent to the disk while it grows, past the page cache where that can be done.

    It is synced before it gets its name and nobody reads it soon, so its pages in the cache would be made only to be
    thrown away. See ``docs/adr/0014``.
    """

    def __init__(self, partial: PartialFile) -> None:
        self._partial = partial
        self._size_bytes = 0
        self._is_direct = _is_on_block_device(partial.fd) and _try_direct(partial.fd)

    def write(self, data: "ReadableBuffer") -> None:
        """Append all of ``data``; see :data:`packer.stores.base.ALIGNMENT_BYTES`."""
        with memoryview(data) as view, view.cast("B") as piece:
            start = 0
            if self._is_direct:
                start = self._write_direct(piece[: len(piece) - len(piece) % ALIGNMENT_BYTES])
            if start < len(piece):
                self._stop_direct()  # what was written so far does not end at a block, or nothing may be direct
                self._partial.write(piece[start:])
                # On Linux this starts writing dirty pages to the disk and does not wait for it. The fsync at commit
                # then finds little left to do.
                os.posix_fadvise(self._partial.fd, self._size_bytes, len(piece), os.POSIX_FADV_DONTNEED)
            self._size_bytes += len(piece)

    def commit(self, expected_bytes: int) -> None:
        """Give the file its final name, durably."""
        self._partial.commit(expected_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._partial.__exit__(None, None, None)

    def _write_direct(self, piece: memoryview) -> int:
        """Write whole blocks; gives the bytes written, fewer if the filesystem refuses to go on in this way."""
        try:
            self._partial.write(piece)
        except OSError as error:
            if error.errno not in _NOT_DIRECT:
                raise
            # it took the flag and refuses the write, or this memory, or it ended one amid a block
            return os.lseek(self._partial.fd, 0, os.SEEK_CUR) - self._size_bytes
        return len(piece)

    def _stop_direct(self) -> None:
        if self._is_direct:
            self._is_direct = False
            fcntl.fcntl(self._partial.fd, fcntl.F_SETFL, fcntl.fcntl(self._partial.fd, fcntl.F_GETFL) & ~os.O_DIRECT)


def _is_on_block_device(fd: int) -> bool:
    """Whether the file lies on a disk of this machine.

    What has no device of its own has major number 0: network filesystems, FUSE, overlays, tmpfs.
    """
    return os.major(os.fstat(fd).st_dev) != 0


def _try_direct(fd: int) -> bool:
    """Write past the page cache from now on, if the filesystem offers that."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError as error:
        if error.errno not in _NOT_DIRECT:
            raise
        return False
    return True
