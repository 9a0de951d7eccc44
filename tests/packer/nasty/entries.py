"""What a nasty tree is made of, as values, and the one function that puts it on disk.

Names are bytes and go to the kernel as they are. Everything is made relative to open directories, so that paths may be
longer than the kernel takes in one piece. File contents follow from the path alone: two different files of four bytes
or more never have the same content, which lets a test tell from a member's bytes which file it came from.
"""

import contextlib
import hashlib
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

DEFAULT_SIZE_BYTES = 24
DEFAULT_MTIME_NS = 1_700_000_000 * 10**9
NULL_DEVICE = os.makedev(1, 3)


class Kind(StrEnum):
    """Kind of a directory entry."""

    FILE = "file"
    SPARSE = "sparse"
    """A regular file that is one hole."""
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARD_LINK = "hard link"
    FIFO = "fifo"
    SOCKET = "socket"
    DEVICE = "device"
    """Character device 1:3, which is /dev/null; only root can make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a tree. Directories above it are made when they are missing."""

    path: bytes
    kind: Kind = Kind.FILE
    size_bytes: int = DEFAULT_SIZE_BYTES
    """Of files."""
    target: bytes = b""
    """Of links. ``BASE`` at the start of a symbolic link's target stands for the directory that holds the source;
    the target of a hard link is a path in the tree."""
    mode: int | None = None
    """Permission bits; None for 0644 and 0755."""
    mtime_ns: int = DEFAULT_MTIME_NS


class CannotPlantError(Exception):
    """This user or filesystem cannot have such an entry."""


def content_of(path: bytes, size_bytes: int) -> bytes:
    """The bytes of the file at a path."""
    return hashlib.shake_128(path).digest(size_bytes)


def plant(base: bytes, root: bytes, entries: Sequence[Entry]) -> None:
    """Make a tree.

    Args:
        base: a directory; symbolic links may point into it.
        root: of the tree, made here.
        entries: in the order to make them.

    Raises:
        CannotPlantError: devices, for all but root; names that the filesystem does not take.
    """
    os.mkdir(root)
    for entry in entries:
        try:
            _plant_entry(base, root, entry)
        except OSError as error:
            raise CannotPlantError(f"{entry.kind} {entry.path!r}: {error.strerror}") from error
    # last, when nothing is made any more: a directory must be open to be filled, and is touched by filling it
    for entry in reversed(entries):
        if entry.kind in (Kind.FILE, Kind.SPARSE, Kind.DIRECTORY):
            parent, name = _open_parent(root, entry.path)
            default = 0o755 if entry.kind is Kind.DIRECTORY else 0o644
            os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=parent)
            os.chmod(name, default if entry.mode is None else entry.mode, dir_fd=parent)
            os.close(parent)


def open_up(root: bytes) -> None:
    """Give the owner all rights on directories again, so that the tree can be removed."""
    os.chmod(root, 0o755)
    for _, names, _, directory in os.fwalk(root):
        for name in names:
            if not stat.S_ISLNK(os.lstat(name, dir_fd=directory).st_mode):
                os.chmod(name, 0o755, dir_fd=directory)


def _plant_entry(base: bytes, root: bytes, entry: Entry) -> None:
    parent, name = _open_parent(root, entry.path)
    try:
        match entry.kind:
            case Kind.FILE | Kind.SPARSE:
                _plant_file(parent, name, entry)
            case Kind.DIRECTORY:
                os.mkdir(name, dir_fd=parent)
            case Kind.SYMLINK:
                target = base + entry.target[4:] if entry.target.startswith(b"BASE") else entry.target
                os.symlink(target, name, dir_fd=parent)
            case Kind.HARD_LINK:
                os.link(os.path.join(root, entry.target), name, dst_dir_fd=parent)
            case Kind.FIFO:
                os.mkfifo(name, dir_fd=parent)
            case Kind.SOCKET:
                with socket.socket(socket.AF_UNIX) as sock:  # a socket's address is short: 107 bytes
                    sock.bind(b"/proc/self/fd/%d/%b" % (parent, name))
            case Kind.DEVICE:
                os.mknod(name, stat.S_IFCHR | 0o666, NULL_DEVICE, dir_fd=parent)
    finally:
        os.close(parent)


def _plant_file(parent: int, name: bytes, entry: Entry) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=parent)
    with open(fd, "wb") as file:
        if entry.kind is Kind.SPARSE:
            file.truncate(entry.size_bytes)
        else:
            file.write(content_of(entry.path, entry.size_bytes))


def _open_parent(root: bytes, path: bytes) -> tuple[int, bytes]:
    """Open the directory that holds a path, made where it is missing; gives it and the path's last component."""
    *directories, name = path.split(b"/")
    parent = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for directory in directories:
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, dir_fd=parent)
        child = os.open(directory, os.O_RDONLY | os.O_DIRECTORY, dir_fd=parent)
        os.close(parent)
        parent = child
    return parent, name
