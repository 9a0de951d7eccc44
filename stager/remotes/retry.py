"""Repeats a remote's calls while its errors are transient: a wrapper, so that no remote knows about repeating.

Both calls are safe to repeat: they change nothing at the remote, and a range is delivered whole or not at all.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from shards.errors import RemoteError
from stager.remotes.base import Remote, RemoteVersion

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


def backoff_delays(num_retries: int, *, first_seconds: float, limit_seconds: float) -> Iterator[float]:
    """Yield the longest wait before each repeat: doubling from ``first_seconds``, never above ``limit_seconds``."""
    for attempt in range(num_retries):
        yield min(first_seconds * 2.0**attempt, limit_seconds)


class RetryingRemote:
    """A remote that repeats what failed transiently, a bounded number of times.

    Args:
        inner: the remote that does the work.
        delays: makes the waits before each repeat, in seconds; how many it yields is how often is repeated.
        jitter: a number in [0, 1) each time it is called; each wait is multiplied with it ("full jitter", so that
            the nodes of a job that failed together do not come back together).
    """

    def __init__(self, inner: Remote, delays: Callable[[], Iterator[float]], jitter: Callable[[], float]) -> None:
        self.num_retries = 0
        self._inner = inner
        self._delays = delays
        self._jitter = jitter

    @property
    def url(self) -> str:
        """Where the dataset lies."""
        return self._inner.url

    async def stat(self, name: str) -> RemoteVersion:
        """Observe a file; see :meth:`Remote.stat`."""
        return await self._repeat(name, lambda: self._inner.stat(name))

    async def read_range(self, name: str, offset: int, buffer: memoryview, version: RemoteVersion) -> None:
        """Fill a buffer; see :meth:`Remote.read_range`."""
        await self._repeat(name, lambda: self._inner.read_range(name, offset, buffer, version))

    async def close(self) -> None:
        """Close the inner remote."""
        await self._inner.close()

    async def _repeat(self, name: str, call: Callable[[], Awaitable[Result]]) -> Result:
        for longest_seconds in self._delays():
            try:
                return await call()
            except RemoteError as error:
                if not error.is_transient:
                    raise
                self.num_retries += 1
                delay_seconds = longest_seconds * self._jitter()
                logger.warning(
                    "source failed, trying again",
                    extra={"file": name, "reason": str(error), "delay_seconds": round(delay_seconds, 3)},
                )
                await asyncio.sleep(delay_seconds)
        return await call()
