"""A dataset below a URL: whatever driver does the requests, this is what is done with their answers.

Rules:
    * A request that brings no byte for a while is given up, and so is its connection. What counts is progress, not how
      long the whole takes: a slow link is not a dead one.
    * A range is asked for with the version that is wanted (If-Match), and the version of the answer is compared all the
      same: some servers do not look at the condition.
    * When a token has expired, credentials are read anew, once for all requests that notice it.
    * When a server answers in a way that the driver refuses, another driver goes on, if there is one that may take it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from shards.errors import RemoteBusyError, RemoteChangedError, printable
from stager.remotes.base import ListedFile, RemoteVersion, is_hidden
from stager.remotes.driver import CHANGED, RANGE_IGNORED, ObjectDriver, ObjectFacts, StoreError
from stager.remotes.explain import explain, is_expired

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class ObjectRemote:
    """Reads objects below a URL.

    Args:
        driver: does the requests.
        url: of the dataset; for messages, without secrets.
        prefix: what stands before each name in a key; empty or with a slash at the end.
        stall_seconds: how long a request may bring nothing.
        make_fallback: gives another driver for servers that the first one refuses; None when there is none.
    """

    def __init__(
        self,
        driver: ObjectDriver,
        url: str,
        prefix: str,
        stall_seconds: float,
        make_fallback: Callable[[], ObjectDriver] | None = None,
    ) -> None:
        self.url = url
        self._driver = driver
        self._prefix = prefix
        self._stall_seconds = stall_seconds
        self._make_fallback = make_fallback
        self._retired: list[ObjectDriver] = []
        self._renewal = asyncio.Lock()
        self._num_renewals = 0

    async def stat(self, name: str) -> RemoteVersion:
        """Observe an object; see :meth:`stager.remotes.base.Remote.stat`."""
        facts = await self._request(name, lambda driver: self._head(driver, name))
        return RemoteVersion(facts.size_bytes, facts.tag, facts.etag)

    async def read_range(self, name: str, offset: int, buffer: memoryview, version: RemoteVersion) -> None:
        """Fill a buffer; see :meth:`stager.remotes.base.Remote.read_range`."""
        if len(buffer) == 0:  # a range of no bytes cannot be asked for
            self._check_version(name, version, (await self.stat(name)).token)
            return
        await self._request(name, lambda driver: self._fill(driver, name, offset, buffer, version))

    async def list_files(self) -> list[ListedFile]:
        """List all files; see :meth:`stager.remotes.base.Remote.list_files`."""
        return await self._request("", self._list)

    async def close(self) -> None:
        """Close the drivers."""
        for driver in [*self._retired, self._driver]:
            await driver.close()

    async def _list(self, driver: ObjectDriver) -> list[ListedFile]:
        now = asyncio.get_running_loop().time
        found = []
        async with self._watched("") as timeout:
            async for key, facts in driver.list_below(self._prefix):
                timeout.reschedule(now() + self._stall_seconds)
                name = key.removeprefix(self._prefix)
                # a key that ends in a slash marks a folder
                if not is_hidden(name) and not name.endswith("/"):
                    found.append(ListedFile(name, facts.size_bytes, facts.tag))
        return sorted(found, key=lambda file: file.name)

    async def _head(self, driver: ObjectDriver, name: str) -> ObjectFacts:
        key = self._prefix + name
        async with self._watched(name):
            try:
                return await driver.head(key)
            except StoreError as error:
                status = error.failure.status
                if error.failure.code or status is None or status == 429 or status >= 500:
                    raise
                # an answer to HEAD has no body: the same question once more, with an answer in words
                async with driver.open_range(key, 0, 1, None):
                    pass
                raise

    async def _fill(
        self, driver: ObjectDriver, name: str, offset: int, buffer: memoryview, version: RemoteVersion
    ) -> None:
        key, now = self._prefix + name, asyncio.get_running_loop().time
        done = 0
        async with (
            self._watched(name) as timeout,
            driver.open_range(key, offset, offset + len(buffer), version.etag) as answer,
        ):
            if answer.tag is not None:
                self._check_version(name, version, answer.tag)
            async for chunk in answer.chunks:
                timeout.reschedule(now() + self._stall_seconds)
                with memoryview(chunk) as view, view.cast("B") as piece:
                    if done + len(piece) > len(buffer):
                        raise RemoteBusyError(f"{self._where(name)} gave more bytes than were asked for")
                    buffer[done : done + len(piece)] = piece
                    done += len(piece)
        if done < len(buffer):
            raise RemoteBusyError(f"{self._where(name)} gave {done} bytes instead of {len(buffer)} from byte {offset}")

    async def _request(self, name: str, call: Callable[[ObjectDriver], Awaitable[Result]]) -> Result:
        """Call a driver; renew credentials, or change the driver, and call again where that helps."""
        driver, num_renewals = self._driver, self._num_renewals
        try:
            return await call(driver)
        except StoreError as error:
            failure = error.failure
            if failure.code == RANGE_IGNORED and await self._fall_back(driver):
                pass
            elif is_expired(failure):
                await self._renew(num_renewals)
            else:
                raise self._explained(error, name) from error
        try:
            return await call(self._driver)
        except StoreError as error:
            raise self._explained(error, name) from error

    def _explained(self, error: StoreError, name: str) -> Exception:
        if error.failure.code == CHANGED:
            return RemoteChangedError(self._where(name), "the version that was seen first", "another one")
        return explain(error.failure, self._where(name))

    async def _fall_back(self, refused_by: ObjectDriver) -> bool:
        if self._driver is refused_by:
            if self._make_fallback is None:
                return False
            logger.warning(
                "the server ignores ranges in a way that the fast driver refuses; going on with the other driver",
                extra={"source": self.url},
            )
            make, self._make_fallback = self._make_fallback, None
            self._retired.append(refused_by)
            self._driver = make()
        return True

    async def _renew(self, seen: int) -> None:
        async with self._renewal:
            if self._num_renewals == seen:
                logger.info("credentials have expired, reading them anew", extra={"source": self.url})
                await self._driver.renew()
                self._num_renewals += 1

    @asynccontextmanager
    async def _watched(self, name: str) -> AsyncIterator[asyncio.Timeout]:
        try:
            async with asyncio.timeout(self._stall_seconds) as timeout:
                yield timeout
        except TimeoutError as error:
            raise RemoteBusyError(f"{self._where(name)} sent nothing for {self._stall_seconds:g} s") from error

    def _check_version(self, name: str, expected: RemoteVersion, actual_tag: str) -> None:
        if actual_tag != expected.token:
            raise RemoteChangedError(self._where(name), expected.token, actual_tag)

    def _where(self, name: str) -> str:
        return printable(f"{self.url}/{name}")
