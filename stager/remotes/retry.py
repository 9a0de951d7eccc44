"""Repeats a remote's calls while its errors are transient: a wrapper, so that no remote knows about repeating.

Both calls are safe to repeat: they change nothing at the remote, and a range is delivered whole or not at all.

Rules:
    * What is bounded is the time that a call may fail for, not the number of its repeats: a gateway that is restarted,
      or a store that asks everybody to slow down, needs minutes, and a quick refusal must not use them up.
    * A source that has not answered anything yet and cannot be connected to is most likely a wrong address: it gets
      less time.
    * Waits are random between nothing and a limit that doubles ("full jitter"), so that the nodes of a job that failed
      together do not come back together. A server that says how long to wait is obeyed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from shards.errors import RemoteBusyError, RemoteError, RemoteUnreachableError
from stager.remotes.base import ListedFile, Remote, RemoteVersion

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long is repeated, in seconds."""

    budget_seconds: float
    """From a call's first failure to its last repeat."""
    unreached_seconds: float = 30.0
    """The same while the source was never reached."""
    first_seconds: float = 0.5
    """Longest wait before the first repeat; doubles with each."""
    limit_seconds: float = 20.0
    """Longest wait."""

    def longest_wait(self, attempt: int) -> float:
        """Longest wait before a repeat, by its 0-based number."""
        return min(self.first_seconds * 2.0 ** min(attempt, 32), self.limit_seconds)


class RetryingRemote:
    """A remote that repeats what failed transiently, for a bounded time.

    Args:
        inner: the remote that does the work.
        policy: how long, and with what waits.
        jitter: a number in [0, 1) each time it is called; the longest wait is multiplied with it.
    """

    def __init__(self, inner: Remote, policy: RetryPolicy, jitter: Callable[[], float]) -> None:
        self.num_retries = 0
        self._inner = inner
        self._policy = policy
        self._jitter = jitter
        self._has_answered = False

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

    async def list_files(self) -> list[ListedFile]:
        """List all files; see :meth:`Remote.list_files`."""
        return await self._repeat("the listing", self._inner.list_files)

    async def close(self) -> None:
        """Close the inner remote."""
        await self._inner.close()

    async def _repeat(self, name: str, call: Callable[[], Awaitable[Result]]) -> Result:
        now = asyncio.get_running_loop().time
        failing_since: float | None = None
        attempt = 0
        while True:
            try:
                result = await call()
            except RemoteError as error:
                if not error.is_transient:
                    raise
                failing_since = now() if failing_since is None else failing_since
                delay_seconds = self._delay(error, attempt)
                failing_seconds = now() - failing_since
                if failing_seconds + delay_seconds > self._budget(error):
                    error.args = (f"{error}; given up after {attempt} repeats in {failing_seconds:.0f} s",)
                    raise
                logger.warning(
                    "source failed, trying again",
                    extra={"file": name, "reason": str(error), "delay_seconds": round(delay_seconds, 3)},
                )
                self.num_retries += 1
                attempt += 1
                await asyncio.sleep(delay_seconds)
            else:
                self._has_answered = True
                return result

    def _delay(self, error: RemoteError, attempt: int) -> float:
        delay_seconds = self._policy.longest_wait(attempt) * self._jitter()
        if isinstance(error, RemoteBusyError) and error.retry_after_seconds is not None:
            # jitter on top: everybody was told the same number
            return error.retry_after_seconds + delay_seconds
        return delay_seconds

    def _budget(self, error: RemoteError) -> float:
        if isinstance(error, RemoteUnreachableError) and not self._has_answered:
            return min(self._policy.unreached_seconds, self._policy.budget_seconds)
        return self._policy.budget_seconds
