"""Says when a source hangs: which read, and for how long. A read that hangs in the kernel can only be reported."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from stager.remotes.base import ListedFile, Remote, RemoteVersion

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

STALL_SECONDS = 15.0
"""A block takes a second on a slow network; what says nothing for this long is worth a line in the log."""


class WatchedRemote:
    """A remote that remembers which of its calls are under way, and since when.

    Args:
        inner: the remote that does the work.
    """

    def __init__(self, inner: Remote) -> None:
        self._inner = inner
        self._calls: dict[int, tuple[float, str]] = {}
        self._last_end_at = time.monotonic()
        self._number = 0

    @property
    def url(self) -> str:
        """Where the dataset lies."""
        return self._inner.url

    async def stat(self, name: str) -> RemoteVersion:
        """Observe a file; see :meth:`Remote.stat`."""
        return await self._watch(name, self._inner.stat(name))

    async def read_range(self, name: str, offset: int, buffer: memoryview, version: RemoteVersion) -> None:
        """Fill a buffer; see :meth:`Remote.read_range`."""
        await self._watch(f"{name} at byte {offset}", self._inner.read_range(name, offset, buffer, version))

    async def list_files(self) -> list[ListedFile]:
        """List all files; see :meth:`Remote.list_files`."""
        return await self._watch("the listing", self._inner.list_files())

    async def close(self) -> None:
        """Close the inner remote."""
        await self._inner.close()

    def stalled(self) -> tuple[float, str, int] | None:
        """Give for how many seconds no call has ended, the oldest call, and how many there are; None without calls."""
        if not self._calls:
            return None
        started_at, what = min(self._calls.values())
        return time.monotonic() - max(started_at, self._last_end_at), what, len(self._calls)

    async def _watch(self, what: str, call: Awaitable[Result]) -> Result:
        self._number += 1
        number = self._number
        self._calls[number] = time.monotonic(), what
        try:
            return await call
        finally:
            del self._calls[number]
            self._last_end_at = time.monotonic()


@asynccontextmanager
async def report_stalls(remote: Remote, after_seconds: float = STALL_SECONDS) -> AsyncIterator[WatchedRemote]:
    """Log, for the length of a ``with`` block, each time when no read of a remote has ended for a while."""
    watched = WatchedRemote(remote)

    async def watch() -> None:
        while True:
            await asyncio.sleep(after_seconds)
            stalled = watched.stalled()
            if stalled is not None and stalled[0] >= after_seconds:
                seconds, what, num_calls = stalled
                logger.warning(
                    "the source does not answer",
                    extra={
                        "source": remote.url,
                        "read": what,
                        "num_reads": num_calls,
                        "elapsed_seconds": round(seconds, 1),
                    },
                )

    task = asyncio.create_task(watch())
    try:
        yield watched
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
