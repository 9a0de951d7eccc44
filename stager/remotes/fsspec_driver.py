"""Whatever fsspec has a driver for: one that is asynchronous in this event loop, any other one in threads.

Each thread has a driver of its own: that a connection may be shared between threads is more than they promise.

The interface has no condition for a range and no version in its answer, so the version is asked for after each range.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import fsspec
from fsspec import AbstractFileSystem

from shards.errors import RemoteError
from stager.remotes.driver import Failure, ObjectFacts, RangeAnswer, StoreError
from stager.remotes.network import network_code

_TAGS = ("ETag", "etag", "e_tag", "md5Hash", "content_md5", "checksum", "generation", "version", "mtime")
_LATE_TAGS = ("LastModified", "last_modified", "updated", "modified", "created", "commit_hash", "blob_id", "oid")

_DENYING = ("Auth", "Credential", "Denied", "Forbidden")
"""Words in the names of classes that drivers raise when they may not come in."""


class FsspecDriver:
    """Files of one file system; see :class:`stager.remotes.driver.ObjectDriver`.

    Args:
        url: of a directory, without a slash at the end.
        num_threads: for a driver that blocks.

    Raises:
        RemoteError: there is no driver for it, or it is not installed.
    """

    def __init__(self, url: str, num_threads: int) -> None:
        self._url = url
        self._kind = _find_class(url)
        self._root = str(self._kind._strip_protocol(url)).rstrip("/")  # noqa: SLF001 (as fsspec's own url_to_fs)
        self._filesystem: AbstractFileSystem | None = None
        self._of_thread = threading.local()
        # more than are used at the same time: a call that hangs keeps its thread
        self._executor = ThreadPoolExecutor(2 * num_threads, thread_name_prefix="stage-read")

    async def head(self, key: str) -> ObjectFacts:
        """Ask for size and version."""
        info: Mapping[str, Any] = await self._call("info", key)
        size_bytes = info.get("size")
        if info.get("type") != "file":
            raise StoreError(Failure(code="NoSuchKey", status=404, message="not a file"))
        if size_bytes is None:
            raise StoreError(Failure(code="SizeUnknown", status=200, message="the driver does not know its size"))
        return ObjectFacts(int(size_bytes), None, f"{size_bytes} bytes, {_tag(info)}")

    @asynccontextmanager
    async def open_range(self, key: str, start: int, end: int, etag: str | None) -> AsyncIterator[RangeAnswer]:
        """Read a range, then ask for the version."""
        data: bytes = await self._call("cat_file", key, start, end)
        tag = (await self.head(key)).tag

        async def chunks() -> AsyncIterator[bytes]:
            yield data

        yield RangeAnswer(tag, chunks())

    async def list_below(self, prefix: str) -> AsyncIterator[tuple[str, ObjectFacts]]:
        """List files at once; the interface has no pages."""
        found: Mapping[str, Mapping[str, Any]] = await self._call("find", prefix)
        root = f"{self._root}/"
        for path, info in found.items():
            size_bytes = int(info.get("size") or 0)
            yield path.removeprefix(root), ObjectFacts(size_bytes, None, f"{size_bytes} bytes, {_tag(info)}")

    async def renew(self) -> None:
        """Nothing to do: the driver minds its credentials."""

    async def close(self) -> None:
        """Let the threads end."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _call(self, method: str, key: str, *args: Any) -> Any:
        path = f"{self._root}/{key}"
        options = {"detail": True} if method == "find" else {}
        try:
            if not self._kind.async_impl:
                # a call that hangs is left in its thread
                return await asyncio.get_running_loop().run_in_executor(
                    self._executor, self._call_here, method, path, args, options
                )
            if self._filesystem is None:
                self._filesystem = self._make(asynchronous=True, loop=asyncio.get_running_loop())
            self._filesystem.invalidate_cache()
            call: Callable[..., Awaitable[Any]] = getattr(self._filesystem, f"_{method}")
            return await call(path, *args, **options)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise StoreError(Failure(code="NoSuchKey", status=404, message=str(error))) from error
        except PermissionError as error:
            raise StoreError(Failure(code="Denied", status=403, message=str(error))) from error
        except (ImportError, NotImplementedError, TypeError, ValueError) as error:
            raise StoreError(Failure(code=type(error).__name__, status=400, message=str(error))) from error
        except Exception as error:  # (each driver has classes of its own, and none can be imported here)
            name = type(error).__name__
            message = f"{name}: {error}"
            if any(word in name for word in _DENYING):
                raise StoreError(Failure(code="Denied", status=403, message=message)) from error
            raise StoreError(Failure(code=network_code(error), message=message)) from error

    def _call_here(self, method: str, path: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        filesystem = getattr(self._of_thread, "filesystem", None)
        if filesystem is None:
            filesystem = self._of_thread.filesystem = self._make()
        filesystem.invalidate_cache()
        return getattr(filesystem, method)(path, *args, **options)

    def _make(self, **options: Any) -> AbstractFileSystem:
        """Make a driver; some connect right then. What it has seen in listings is not to be trusted later."""
        from_url = self._kind._get_kwargs_from_urls(self._url)  # noqa: SLF001 (as fsspec's own url_to_fs)
        return self._kind(**from_url, **options, skip_instance_cache=True)


def _find_class(url: str) -> type[AbstractFileSystem]:
    scheme = url.partition("://")[0]
    try:
        kind: type[AbstractFileSystem] = fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise RemoteError(f"no driver for {scheme}:// is installed: {error}", is_transient=False) from error
    return kind


def _tag(info: Mapping[str, Any]) -> str:
    found = next((info[name] for name in _TAGS + _LATE_TAGS if info.get(name)), "")
    # drivers give a time as a number in one call and as a date in another
    return repr(found.timestamp()) if isinstance(found, datetime) else str(found)
