"""A read-only mirror of a directory in which every ``open`` of a file takes a given time, as on network storage.

    python latencyfs.py SOURCE MOUNTPOINT --open-ms 2

Serves the mount until it is unmounted (``fusermount3 -u MOUNTPOINT``) or ended by a signal. Prints ``ready`` once the
mount answers. Needs Linux with FUSE and the program fusermount3 (Debian, Ubuntu: apt-get install fuse3).

Rules:
    * The delay is the only thing that is slow: names, attributes and data stay in the kernel's cache, so a second
      reader of a file pays for the open and for nothing else.
    * Any number of opens wait at the same time, as with a real server. One thread speaks the kernel's protocol itself
      and answers from a queue ordered by due time; a thread for each waiting open would be slower than the thing it
      measures.
    * The source must not change while it is mounted: nothing is ever looked up twice.

Protocol: linux/fuse.h, version 7.31; all numbers in native order.
"""

import argparse
import array
import errno
import heapq
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable

LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 5, 14, 15, 17, 18
INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 26, 27, 28, 29, 36, 38, 42
UNANSWERED = frozenset({FORGET, BATCH_FORGET, INTERRUPT})

IN_HEADER = struct.Struct("=IIQQIIIHH")  # length, opcode, unique, node, uid, gid, pid, extensions, padding
OUT_HEADER = struct.Struct("=IiQ")  # length, negative errno, unique
INIT_IN = struct.Struct("=IIII")  # major, minor, max_readahead, flags
INIT_OUT = struct.Struct("=IIIIHHIIHHI28x")  # …, max_background, congestion_threshold, max_write, time_gran, pages, …
ATTRIBUTES = struct.Struct("=QQQQQQIIIIIIIIII")
ENTRY_OUT = struct.Struct("=QQQQII")  # node, generation, entry_valid, attr_valid, and their nanoseconds
ATTR_OUT = struct.Struct("=QII")  # valid, nanoseconds, padding
OPEN_OUT = struct.Struct("=QII")  # handle, flags, padding
READ_IN = struct.Struct("=QQI")  # handle, offset, size, …
RELEASE_IN = struct.Struct("=Q")  # handle, …
DIRENT = struct.Struct("=QQII")  # inode, next offset, length of the name, type
STATFS_OUT = struct.Struct("=QQQQQIIII24x")

PROTOCOL = (7, 31)
ASYNC_READ, PARALLEL_DIROPS = 1 << 0, 1 << 18
KEEP_CACHE, CACHE_DIR = 1 << 1, 1 << 3
ROOT_NODE = 1

CACHE_SECONDS = 24 * 3600
"""How long the kernel may keep names and attributes: longer than any benchmark."""

REQUEST_BYTES = 128 * 1024
"""Longer than any request; the kernel refuses to hand requests to a buffer under 8 KiB."""

BURST = 64
"""Requests taken before the queue of waiting opens is looked at again."""

_NOBODY_WAITS = frozenset({errno.ENOENT, errno.ENODEV, errno.EPERM})
"""Errors of an answer whose request was taken back, or whose mount is gone."""

Answer = tuple[bytes, ...]


class LatencyServer:
    """Answers the kernel's requests for one mount.

    Args:
        fuse_fd: the opened and mounted /dev/fuse.
        source: directory to mirror.
        open_seconds: what each open of a file takes.
    """

    def __init__(self, fuse_fd: int, source: bytes, open_seconds: float) -> None:
        self._fd = fuse_fd
        self._open_seconds = open_seconds
        self._paths = {ROOT_NODE: source}
        self._nodes: dict[bytes, int] = {source: ROOT_NODE}
        self._directories: dict[int, list[bytes]] = {}
        self._waiting: list[tuple[float, int, int]] = []
        """(due time, unique number of the request, node) of each open, as a heap."""
        self._handlers: dict[int, Callable[[int, memoryview], Answer]] = {
            INIT: self._init,
            LOOKUP: self._lookup,
            GETATTR: self._getattr,
            READLINK: self._readlink,
            READ: self._read,
            RELEASE: self._release,
            OPENDIR: self._opendir,
            READDIR: self._readdir,
            RELEASEDIR: self._releasedir,
            STATFS: self._statfs,
            DESTROY: lambda _node, _body: (),
        }

    def serve(self) -> None:
        """Answer until the mount is gone."""
        os.set_blocking(self._fd, False)
        buffer = memoryview(bytearray(REQUEST_BYTES))
        while True:
            pause = None
            if self._waiting:
                pause = max(0.0, self._waiting[0][0] - time.monotonic())
            ready, _, _ = select.select([self._fd], [], [], pause)
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, unique, node = heapq.heappop(self._waiting)
                self._answer(unique, self._open, node, buffer[:0])
            if ready and not self._take_requests(buffer):
                return

    def _take_requests(self, buffer: memoryview) -> bool:
        """Take some requests; False when the mount is gone."""
        for _ in range(BURST):
            try:
                length = os.readv(self._fd, [buffer])
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return False
                if error.errno in (errno.ENOENT, errno.EINTR):  # the request was taken back
                    continue
                raise
            _, opcode, unique, node, *_ = IN_HEADER.unpack_from(buffer)
            if opcode == OPEN:
                heapq.heappush(self._waiting, (time.monotonic() + self._open_seconds, unique, node))
            elif opcode not in UNANSWERED:
                handler = self._handlers.get(opcode, _refuse)
                self._answer(unique, handler, node, buffer[IN_HEADER.size : length])
        return True

    def _answer(self, unique: int, handler: Callable[[int, memoryview], Answer], node: int, body: memoryview) -> None:
        try:
            answer, code = handler(node, body), 0
        except OSError as error:
            answer, code = (), error.errno or errno.EIO
        length = OUT_HEADER.size + sum(map(len, answer))
        try:
            os.writev(self._fd, (OUT_HEADER.pack(length, -code, unique), *answer))
        except OSError as error:
            if error.errno not in _NOBODY_WAITS:
                raise

    def _init(self, _node: int, body: memoryview) -> Answer:
        _, _, max_readahead, offered = INIT_IN.unpack_from(body)
        flags = offered & (ASYNC_READ | PARALLEL_DIROPS)
        return (INIT_OUT.pack(*PROTOCOL, max_readahead, flags, 64, 48, 4096, 1, 0, 0, 0),)

    def _lookup(self, node: int, body: memoryview) -> Answer:
        path = self._paths[node] + b"/" + bytes(body).rstrip(b"\0")
        attributes = _attributes(os.lstat(path))
        number = self._nodes.setdefault(path, len(self._nodes) + ROOT_NODE)
        self._paths[number] = path
        return ENTRY_OUT.pack(number, 0, CACHE_SECONDS, CACHE_SECONDS, 0, 0), attributes

    def _getattr(self, node: int, _body: memoryview) -> Answer:
        return ATTR_OUT.pack(CACHE_SECONDS, 0, 0), _attributes(os.lstat(self._paths[node]))

    def _readlink(self, node: int, _body: memoryview) -> Answer:
        return (os.readlink(self._paths[node]),)

    def _open(self, node: int, _body: memoryview) -> Answer:
        return (OPEN_OUT.pack(os.open(self._paths[node], os.O_RDONLY | os.O_CLOEXEC), KEEP_CACHE, 0),)

    def _read(self, _node: int, body: memoryview) -> Answer:
        handle, offset, size = READ_IN.unpack_from(body)
        return (os.pread(handle, size, offset),)

    def _release(self, _node: int, body: memoryview) -> Answer:
        os.close(*RELEASE_IN.unpack_from(body))
        return ()

    def _opendir(self, node: int, _body: memoryview) -> Answer:
        if node not in self._directories:
            self._directories[node] = _directory_entries(self._paths[node])
        return (OPEN_OUT.pack(0, KEEP_CACHE | CACHE_DIR, 0),)

    def _readdir(self, node: int, body: memoryview) -> Answer:
        _, offset, size = READ_IN.unpack_from(body)
        chosen: list[bytes] = []
        for entry in self._directories[node][offset:]:
            size -= len(entry)
            if size < 0:
                break
            chosen.append(entry)
        return (b"".join(chosen),)

    def _releasedir(self, _node: int, _body: memoryview) -> Answer:
        return ()

    def _statfs(self, _node: int, _body: memoryview) -> Answer:
        facts = os.statvfs(self._paths[ROOT_NODE])
        numbers = (facts.f_blocks, facts.f_bfree, facts.f_bavail, facts.f_files, facts.f_ffree)
        return (STATFS_OUT.pack(*numbers, facts.f_bsize, facts.f_namemax, facts.f_frsize, 0),)


def _refuse(_node: int, _body: memoryview) -> Answer:
    # for FLUSH, ACCESS, extended attributes and others this also tells the kernel not to ask again
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def _attributes(status: os.stat_result) -> bytes:
    times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    return ATTRIBUTES.pack(
        status.st_ino,
        status.st_size,
        status.st_blocks,
        *(value // 10**9 for value in times),
        *(value % 10**9 for value in times),
        status.st_mode,
        status.st_nlink,
        status.st_uid,
        status.st_gid,
        0,
        status.st_blksize,
        0,
    )


def _directory_entries(path: bytes) -> list[bytes]:
    """The entries of a directory as the protocol has them; the offset of each is the number of the next."""
    entries = []
    with os.scandir(path) as found:
        for number, entry in enumerate(found, 1):
            kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) >> 12
            data = DIRENT.pack(entry.inode(), number, len(entry.name), kind) + entry.name
            entries.append(data + bytes(-len(data) % 8))
    return entries


def mount(mountpoint: str) -> int:
    """Mount an empty FUSE filesystem with the help of fusermount3; returns the descriptor to serve it through."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        subprocess.run(
            ["fusermount3", "-o", "ro,nosuid,nodev,fsname=latencyfs,subtype=latencyfs", "--", mountpoint],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            check=True,
        )
        _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(array.array("i").itemsize))
    descriptors = array.array("i")
    descriptors.frombytes(ancillary[0][2])
    return descriptors[0]


def main() -> int:
    """Mount and serve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("mountpoint")
    parser.add_argument("--open-ms", type=float, default=2.0, help="what each open takes, in milliseconds (default: 2)")
    given = parser.parse_args()
    source = os.path.realpath(os.fsencode(given.source))
    fuse_fd = mount(given.mountpoint)

    def unmount(_number: int, _frame: object) -> None:
        subprocess.run(["fusermount3", "-u", "-z", "--", given.mountpoint], check=False)

    signal.signal(signal.SIGTERM, unmount)
    signal.signal(signal.SIGINT, unmount)
    print("ready", flush=True)
    LatencyServer(fuse_fd, source, given.open_ms / 1000).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
