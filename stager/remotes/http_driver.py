"""Plain HTTP servers and what is compatible with them, through aiohttp. The only module that imports it besides s3fs's.

fsspec's own file system for HTTP is not used: it takes every failure to look at a file for a missing one, and the whole
of a file for a range.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import aiohttp
from yarl import URL

from stager.remotes.driver import CHANGED, RANGE_IGNORED, Failure, ObjectFacts, RangeAnswer, StoreError
from stager.remotes.network import network_code, parse_retry_after

_CHUNK_BYTES = 1024 * 1024
_FOREIGN = (aiohttp.ClientError, OSError, TimeoutError)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_NO_HEAD = frozenset({405, 501})


class HttpDriver:
    """Requests to one server; see :class:`stager.remotes.driver.ObjectDriver`.

    Args:
        url: what stands before each name; with a slash at the end.
        authorities: PEM text of authorities to trust besides the system's.
        num_connections: at the same time.
        stall_seconds: for connecting; what comes afterwards is watched by the caller.
    """

    def __init__(self, url: str, authorities: bytes | None, num_connections: int, stall_seconds: float) -> None:
        self._url = url
        self._authorities = authorities
        self._num_connections = num_connections
        self._stall_seconds = stall_seconds
        self._session: aiohttp.ClientSession | None = None

    async def head(self, key: str) -> ObjectFacts:
        """Ask for size and version: by HEAD, and by a range of one byte where that is not offered."""
        async with self._answer("HEAD", key, {}) as answer:
            if answer.status not in _NO_HEAD:
                _check_status(answer)
                if answer.content_length is not None:
                    return _facts(answer, answer.content_length)
        async with self._answer("GET", key, {"Range": "bytes=0-0"}) as answer:
            _check_status(answer)
            sent = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            size_bytes = int(sent.group(3)) if sent else answer.content_length
            if size_bytes is None:
                raise StoreError(Failure(code="SizeUnknown", status=answer.status, message="it does not say its size"))
            return _facts(answer, size_bytes)

    @asynccontextmanager
    async def open_range(self, key: str, start: int, end: int, etag: str | None) -> AsyncIterator[RangeAnswer]:
        """Ask for a range."""
        headers = {"Range": f"bytes={start}-{end - 1}"}
        if etag is not None:
            headers["If-Match"] = etag
        async with self._answer("GET", key, headers) as answer:
            _check_status(answer)
            _check_range(answer, start, end)
            yield RangeAnswer(_tag(answer), _chunks(answer))

    async def list_below(self, prefix: str) -> AsyncIterator[tuple[str, ObjectFacts]]:
        """Not offered: web servers have no listing that programs could rely on."""
        nothing: tuple[tuple[str, ObjectFacts], ...] = ()
        for found in nothing:
            yield found
        raise StoreError(Failure(code="NoListing", status=400, message="web servers list no files"))

    async def renew(self) -> None:
        """Nothing to do: there are no credentials."""

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def _answer(self, method: str, key: str, headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        url = URL(self._url + quote(key, errors="surrogateescape"), encoded=True)
        try:
            answer = await self._open().request(method, url, headers=headers)
        except _FOREIGN as error:
            raise StoreError(Failure(code=network_code(error), message=str(error))) from error
        try:
            yield answer
        finally:
            answer.release()  # closes the connection when the answer was not read to its end

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            context = ssl.create_default_context()
            if self._authorities is not None:
                context.load_verify_locations(cadata=self._authorities.decode("ascii", "replace"))
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context, limit=self._num_connections),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._stall_seconds),
                headers={"Accept-Encoding": "identity"},  # a range of a compressed answer is no range of the file
                auto_decompress=False,
                trust_env=True,
                loop=asyncio.get_running_loop(),
            )
        return self._session


def _facts(answer: aiohttp.ClientResponse, size_bytes: int) -> ObjectFacts:
    etag = answer.headers.get("ETag")
    # a weak one stands for more than one content and must not be asked for
    usable = etag if etag and not etag.startswith("W/") else None
    return ObjectFacts(size_bytes, usable, _tag(answer) or f"{size_bytes} bytes")


def _tag(answer: aiohttp.ClientResponse) -> str | None:
    return answer.headers.get("ETag") or answer.headers.get("Last-Modified")


def _check_status(answer: aiohttp.ClientResponse) -> None:
    if answer.status < 300:
        return
    raise StoreError(
        Failure(
            code=CHANGED if answer.status == 412 else "",
            status=answer.status,
            message=answer.reason or "",
            retry_after_seconds=parse_retry_after(answer.headers.get("Retry-After")),
        )
    )


def _check_range(answer: aiohttp.ClientResponse, start: int, end: int) -> None:
    sent = answer.headers.get("Content-Range", "")
    is_whole = not sent and start == 0 and answer.content_length == end
    if not is_whole and not sent.startswith(f"bytes {start}-{end - 1}/"):
        told = f"sent {sent!r}" if sent else f"sent {answer.content_length} bytes"
        message = f"asked for bytes {start}-{end - 1}, {told}"
        raise StoreError(Failure(code=RANGE_IGNORED, status=answer.status, message=message))


async def _chunks(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    while True:
        try:
            chunk = await answer.content.read(_CHUNK_BYTES)
        except _FOREIGN as error:
            raise StoreError(Failure(code=network_code(error), message=str(error))) from error
        if not chunk:
            return
        yield chunk
