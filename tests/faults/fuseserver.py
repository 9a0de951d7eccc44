"""Serves a read-only directory through FUSE, speaking the kernel's protocol itself; the base of the tests' filesystems.

Rules:
    * The kernel keeps nothing: names, attributes and data are asked for each time, as from a network filesystem whose
      caches are cold.
    * A file that was replaced is another node. An open file goes on to be the one that was opened.
    * :meth:`Server.decide` sees every request before it is answered and may fail, delay, hold or change it. A request
      that is held waits until :meth:`Server.decide` lets it go; whoever made it cannot be killed until then.
    * One thread, which never waits for a single request.

Protocol: linux/fuse.h, version 7.31; all numbers in native order.
"""

import errno
import heapq
import os
import select
import signal
import stat
import struct
import subprocess
import time
from dataclasses import dataclass
from typing import Protocol

from benchmarks.latencyfs import (
    ATTR_OUT,
    ATTRIBUTES,
    DIRENT,
    ENTRY_OUT,
    IN_HEADER,
    INIT_IN,
    INIT_OUT,
    OPEN_OUT,
    OUT_HEADER,
    PROTOCOL,
    READ_IN,
    RELEASE_IN,
    REQUEST_BYTES,
    ROOT_NODE,
    STATFS_OUT,
    UNANSWERED,
    mount,
)

OPERATIONS = {1: "lookup", 3: "getattr", 14: "open", 15: "read", 17: "statfs", 18: "release"}
OPERATIONS |= {26: "init", 27: "opendir", 28: "readdir", 29: "releasedir", 38: "destroy"}

POLL_SECONDS = 0.02
"""How often requests that are held are looked at again."""

GETATTR_IN = struct.Struct("=I4xQ")  # flags, handle
GETATTR_FH = 1 << 0
"""Flag of GETATTR: the attributes of the open file are wanted, whatever has its name now."""


class Files(Protocol):
    """What is served; paths begin with ``/``, except that of the root, which is empty."""

    def lstat(self, path: str) -> os.stat_result: ...
    def fstat(self, handle: int) -> os.stat_result: ...
    def listdir(self, path: str) -> list[str]: ...
    def open(self, path: str) -> int: ...
    def pread(self, handle: int, size: int, offset: int) -> bytes: ...
    def close(self, handle: int) -> None: ...


class LocalFiles:
    """A directory of this machine."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(self._root + path)

    def fstat(self, handle: int) -> os.stat_result:
        return os.fstat(handle)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(self._root + path)

    def open(self, path: str) -> int:
        return os.open(self._root + path, os.O_RDONLY | os.O_CLOEXEC)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return os.pread(handle, size, offset)

    def close(self, handle: int) -> None:
        os.close(handle)


@dataclass(slots=True)
class Request:
    """One question of the kernel."""

    unique: int
    operation: str
    node: int
    path: str
    body: bytes
    due_at: float = 0.0
    """When it may be answered, on the monotonic clock."""

    @property
    def range(self) -> tuple[int, int]:
        """The half-open range of bytes that a read asks for."""
        if self.operation != "read":
            return 0, 0
        _, offset, size = READ_IN.unpack_from(self.body)
        return offset, offset + size


class Server:
    """Answers the kernel's requests for one mount.

    Args:
        fuse_fd: the opened and mounted /dev/fuse.
        files: what is served.
    """

    def __init__(self, fuse_fd: int, files: Files) -> None:
        self._fd = fuse_fd
        self._files = files
        self._paths = {ROOT_NODE: ""}
        self._nodes: dict[tuple[str, int], int] = {}
        self._held: list[Request] = []
        self._delayed: list[tuple[float, int, Request]] = []

    def decide(self, request: Request) -> bool:
        """Whether to answer now. May set ``due_at``; ``OSError`` is the answer that the reader gets."""
        del request
        return True

    def change(self, request: Request, data: bytes) -> bytes:
        """Change what a read answers."""
        del request
        return data

    def change_size(self, path: str, size_bytes: int) -> int:
        """Change the size that a file is said to have."""
        del path
        return size_bytes

    def serve(self) -> None:
        """Answer until the mount is gone."""
        os.set_blocking(self._fd, False)
        buffer = memoryview(bytearray(REQUEST_BYTES))
        while True:
            pause = POLL_SECONDS if self._held else None
            if self._delayed:
                pause = max(0.0, min(self._delayed[0][0] - time.monotonic(), pause or 3600.0))
            ready, _, _ = select.select([self._fd], [], [], pause)
            while self._delayed and self._delayed[0][0] <= time.monotonic():
                self._answer(heapq.heappop(self._delayed)[2])
            held, self._held = self._held, []
            for request in held:
                self._take(request)
            if ready and not self._read_request(buffer):
                return

    def _read_request(self, buffer: memoryview) -> bool:
        """Take a request; False when the mount is gone."""
        try:
            length = os.readv(self._fd, [buffer])
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno == errno.ENODEV:
                return False
            if error.errno in (errno.ENOENT, errno.EINTR):  # the request was taken back
                return True
            raise
        _, opcode, unique, node, *_ = IN_HEADER.unpack_from(buffer)
        if opcode in UNANSWERED:
            return True
        body = bytes(buffer[IN_HEADER.size : length])
        operation = OPERATIONS.get(opcode, "")
        path = self._paths.get(node, "")
        if operation == "lookup":
            path += "/" + os.fsdecode(body.rstrip(b"\0"))
        self._take(Request(unique, operation, node, path, body))
        return True

    def _take(self, request: Request) -> None:
        try:
            if not self.decide(request):
                self._held.append(request)
            elif request.due_at > time.monotonic():
                heapq.heappush(self._delayed, (request.due_at, request.unique, request))
            else:
                self._answer(request)
        except OSError as error:
            self._reply(request, error.errno or errno.EIO, b"")

    def _answer(self, request: Request) -> None:
        try:
            answer = getattr(self, f"_{request.operation or 'refuse'}")(request)
        except OSError as error:
            self._reply(request, error.errno or errno.EIO, b"")
        else:
            self._reply(request, 0, answer)

    def _reply(self, request: Request, code: int, answer: bytes) -> None:
        try:
            os.writev(self._fd, (OUT_HEADER.pack(OUT_HEADER.size + len(answer), -code, request.unique), answer))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EPERM):  # nobody waits for it any more
                raise

    def _init(self, request: Request) -> bytes:
        _, _, max_readahead, _ = INIT_IN.unpack_from(request.body)
        return INIT_OUT.pack(*PROTOCOL, max_readahead, 0, 64, 48, 4096, 1, 0, 0, 0)

    def _lookup(self, request: Request) -> bytes:
        status = self._files.lstat(request.path)
        node = self._nodes.setdefault((request.path, status.st_ino), len(self._nodes) + ROOT_NODE + 1)
        self._paths[node] = request.path
        return ENTRY_OUT.pack(node, 0, 0, 0, 0, 0) + self._attributes(status, request.path)

    def _getattr(self, request: Request) -> bytes:
        flags, handle = GETATTR_IN.unpack_from(request.body)
        status = self._files.fstat(handle) if flags & GETATTR_FH else self._files.lstat(request.path)
        return ATTR_OUT.pack(0, 0, 0) + self._attributes(status, request.path)

    def _open(self, request: Request) -> bytes:
        return OPEN_OUT.pack(self._files.open(request.path), 0, 0)

    def _read(self, request: Request) -> bytes:
        handle, offset, size = READ_IN.unpack_from(request.body)
        return self.change(request, self._files.pread(handle, size, offset))

    def _release(self, request: Request) -> bytes:
        self._files.close(*RELEASE_IN.unpack_from(request.body))
        return b""

    def _opendir(self, _request: Request) -> bytes:
        return OPEN_OUT.pack(0, 0, 0)

    def _readdir(self, request: Request) -> bytes:
        _, offset, size = READ_IN.unpack_from(request.body)
        entries = b""
        for number, name in enumerate(sorted(self._files.listdir(request.path)), 1):
            encoded = os.fsencode(name)
            kind = stat.S_IFMT(self._files.lstat(f"{request.path}/{name}").st_mode) >> 12
            entry = DIRENT.pack(number, number, len(encoded), kind) + encoded
            entry += bytes(-len(entry) % 8)
            if number > offset and len(entries) + len(entry) <= size:
                entries += entry
        return entries

    def _releasedir(self, _request: Request) -> bytes:
        return b""

    def _statfs(self, _request: Request) -> bytes:
        return STATFS_OUT.pack(1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096, 0)

    def _destroy(self, _request: Request) -> bytes:
        return b""

    def _refuse(self, _request: Request) -> bytes:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def _attributes(self, status: os.stat_result, path: str) -> bytes:
        times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
        return ATTRIBUTES.pack(
            status.st_ino,
            self.change_size(path, status.st_size) if stat.S_ISREG(status.st_mode) else status.st_size,
            status.st_blocks,
            *(value // 10**9 for value in times),
            *(value % 10**9 for value in times),
            status.st_mode,
            status.st_nlink,
            status.st_uid,
            status.st_gid,
            0,
            4096,
            0,
        )


def mount_and_announce(mountpoint: str) -> int:
    """Mount, let SIGTERM unmount, say ``ready``; gives the descriptor to serve through."""
    fuse_fd = mount(mountpoint)

    def unmount(_number: int, _frame: object) -> None:
        subprocess.run(["fusermount3", "-u", "-z", "--", mountpoint], check=False)
        os._exit(0)  # the kernel answers what is held: not connected

    signal.signal(signal.SIGTERM, unmount)
    print("ready", flush=True)
    return fuse_fd
