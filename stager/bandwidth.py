"""How fast all stagers of a cache together may read from sources: a limit that is kept in a file of the cache.

The file holds one number: when the line will be free again, on the clock that all containers of a node share
(``CLOCK_BOOTTIME``). Who wants to read moves it on by the time that his bytes take at the limit, and waits until it was
his turn. Nothing has to be given back, and a process that is killed has used up what it took and no more.
"""

import asyncio
import fcntl
import json
import os
from collections.abc import Callable

from shards.leases import boottime_seconds, read_boot_id
from stager.local import open_private
from stager.remotes.base import ListedFile, Remote, RemoteVersion

BURST_SECONDS = 0.25
"""How much of unused time is kept: short stops must not cost throughput, long ones must not end in a flood."""

LONGEST_WAIT_SECONDS = 300.0
"""A number that says more was not written by a stager of this node."""

_MAX_BYTES = 4096


class Bandwidth:
    """The limit.

    Args:
        path: of the file; made when it is not there.
        bytes_per_second: the limit. Stagers that are told different ones take shares of different sizes.
        clock: seconds since the boot.
    """

    def __init__(self, path: str, bytes_per_second: int, clock: Callable[[], float] = boottime_seconds) -> None:
        if bytes_per_second < 1:
            raise ValueError(f"a limit of {bytes_per_second} bytes per second lets nothing through")
        self._path = path
        self._bytes_per_second = bytes_per_second
        self._clock = clock

    def take(self, num_bytes: int) -> float:
        """Take the time for some bytes; give for how many seconds to wait before they may be read. Blocks shortly.

        Where there is no cache yet, nothing is limited.

        Raises:
            OSError: the file cannot be read or written.
        """
        try:
            fd = open_private(self._path)
        except FileNotFoundError:
            return 0.0
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            now, boot_id = self._clock(), read_boot_id()
            turn = max(self._read(fd, boot_id, now), now - BURST_SECONDS)
            free_at = turn + num_bytes / self._bytes_per_second
            data = json.dumps({"boot_id": boot_id, "free_at_seconds": free_at}).encode("ascii")
            os.pwrite(fd, data, 0)
            os.ftruncate(fd, len(data))
        finally:
            os.close(fd)
        return max(turn - now, 0.0)

    def _read(self, fd: int, boot_id: str, now: float) -> float:
        """When the line is free; 0 where the file does not say it for this boot, or says what cannot be."""
        try:
            document = json.loads(os.pread(fd, _MAX_BYTES, 0))
            free_at = float(document["free_at_seconds"]) if document["boot_id"] == boot_id else 0.0
        except (ValueError, KeyError, TypeError):
            return 0.0
        return free_at if free_at <= now + LONGEST_WAIT_SECONDS else 0.0


class LimitedRemote:
    """A remote that waits for its turn before each range.

    Args:
        inner: does the work.
        bandwidth: the limit.
    """

    def __init__(self, inner: Remote, bandwidth: Bandwidth) -> None:
        self._inner = inner
        self._bandwidth = bandwidth

    @property
    def url(self) -> str:
        """Where the dataset lies."""
        return self._inner.url

    async def stat(self, name: str) -> RemoteVersion:
        """Observe a file; see :meth:`Remote.stat`."""
        return await self._inner.stat(name)

    async def list_files(self) -> list[ListedFile]:
        """List all files; see :meth:`Remote.list_files`."""
        return await self._inner.list_files()

    async def read_range(self, name: str, offset: int, buffer: memoryview, version: RemoteVersion) -> None:
        """Fill a buffer; see :meth:`Remote.read_range`."""
        await asyncio.sleep(await asyncio.to_thread(self._bandwidth.take, len(buffer)))
        await self._inner.read_range(name, offset, buffer, version)

    async def close(self) -> None:
        """Close the inner remote."""
        await self._inner.close()
