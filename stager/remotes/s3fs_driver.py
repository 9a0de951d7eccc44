"""S3 through s3fs and its asynchronous client: the driver that bears with servers. The only module that imports it.

The client's own calls are used, because s3fs's do not know conditions and would keep all of a range in memory.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from s3fs import S3FileSystem

from stager.remotes.authorities import combine_with_system
from stager.remotes.driver import CHANGED, RANGE_IGNORED, Failure, ObjectFacts, RangeAnswer, StoreError
from stager.remotes.network import network_code, parse_retry_after
from stager.remotes.s3_settings import S3Settings

_CHUNK_BYTES = 1024 * 1024
_FOREIGN = (ClientError, BotoCoreError, aiohttp.ClientError, OSError)


class S3fsDriver:
    """Requests to one bucket; see :class:`stager.remotes.driver.ObjectDriver`.

    Credentials are found and renewed by the client's own session.

    Args:
        settings: of the service.
    """

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._opening = asyncio.Lock()
        self._stack = contextlib.AsyncExitStack()
        self._client: Any = None
        self._payer = {"RequestPayer": "requester"} if settings.options.is_requester_pays else {}

    async def head(self, key: str) -> ObjectFacts:
        """Ask for size and ETag."""
        client = await self._open()
        try:
            answer = await client.head_object(Bucket=self._settings.bucket, Key=key, **self._payer)
        except _FOREIGN as error:
            raise StoreError(_failure(error)) from error
        return ObjectFacts(answer["ContentLength"], answer.get("ETag"), _tag(answer))

    @asynccontextmanager
    async def open_range(self, key: str, start: int, end: int, etag: str | None) -> AsyncIterator[RangeAnswer]:
        """Ask for a range. An answer of 200 is taken when what it sends is the range after all."""
        client = await self._open()
        condition = {} if etag is None else {"IfMatch": etag}
        try:
            answer = await client.get_object(
                Bucket=self._settings.bucket, Key=key, Range=f"bytes={start}-{end - 1}", **condition, **self._payer
            )
        except _FOREIGN as error:
            raise StoreError(_failure(error)) from error
        body = answer["Body"]
        try:
            _check_range(answer, start, end)
            yield RangeAnswer(_tag(answer), _chunks(body))
        finally:
            body.close()

    async def list_below(self, prefix: str) -> AsyncIterator[tuple[str, ObjectFacts]]:
        """List objects page by page."""
        client = await self._open()
        arguments = {"Bucket": self._settings.bucket, "Prefix": prefix, **self._payer}
        while True:
            try:
                page = await client.list_objects_v2(**arguments)
            except _FOREIGN as error:
                raise StoreError(_failure(error)) from error
            for entry in page.get("Contents", ()):
                yield entry["Key"], ObjectFacts(entry["Size"], entry.get("ETag"), _tag(entry))
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    async def renew(self) -> None:
        """Open another client, whose session reads credentials anew."""
        async with self._opening:
            self._client = None

    async def close(self) -> None:
        """Close the clients."""
        await self._stack.aclose()

    async def _open(self) -> Any:
        async with self._opening:
            if self._client is None:
                filesystem = S3FileSystem(**self._arguments())
                try:
                    self._client = await filesystem.set_session()
                except _FOREIGN as error:
                    raise StoreError(_failure(error)) from error
                creator = filesystem._s3creator  # noqa: SLF001 (its public close is for clients with a loop of their own)
                self._stack.push_async_callback(creator.__aexit__, None, None, None)
            return self._client

    def _arguments(self) -> dict[str, Any]:
        settings = self._settings
        options = settings.options
        client: dict[str, Any] = {"region_name": settings.region}
        if settings.authorities is not None:
            client["verify"] = self._write_authorities(settings.authorities)
        return {
            "asynchronous": True,
            "loop": asyncio.get_running_loop(),
            "skip_instance_cache": True,  # or two runs in one process would share a client that one of them closes
            "use_listings_cache": False,
            "anon": options.is_anonymous,
            "endpoint_url": settings.endpoint_url,
            "client_kwargs": client,
            "config_kwargs": {
                "max_pool_connections": settings.num_connections,
                "connect_timeout": options.stall_seconds,
                "read_timeout": 2 * options.stall_seconds,  # the caller's watch comes first
                "retries": {"total_max_attempts": 1, "mode": "standard"},
                "s3": {"addressing_style": "virtual" if settings.is_virtual else "path"},
                "response_checksum_validation": "when_required",
            },
            **({"profile": options.profile} if options.profile else {}),
        }

    def _write_authorities(self, authorities: bytes) -> str:
        """Write the system's authorities and the site's own into one file, which is all that the client takes."""
        directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="stage-ca-"))
        path = os.path.join(directory, "authorities.pem")
        with open(path, "wb") as file:
            file.write(combine_with_system(authorities))
        return path


def _check_range(answer: Mapping[str, Any], start: int, end: int) -> None:
    """Check that what is sent is what was asked for, whatever status it has.

    Raises:
        StoreError: it is not.
    """
    sent = answer.get("ContentRange") or ""
    is_whole = not sent and start == 0 and answer.get("ContentLength") == end
    if not is_whole and not sent.startswith(f"bytes {start}-{end - 1}/"):
        status = answer["ResponseMetadata"]["HTTPStatusCode"]
        told = f"sends {sent!r}" if sent else f"sends {answer.get('ContentLength')} bytes without saying which"
        message = f"asked for bytes {start}-{end - 1}, {told}"
        raise StoreError(Failure(code=RANGE_IGNORED, status=status, message=message))


def _tag(answer: Mapping[str, Any]) -> str:
    return str(answer.get("ETag") or answer.get("LastModified"))


async def _chunks(body: Any) -> AsyncIterator[bytes]:
    while True:
        try:
            chunk: bytes = await body.read(_CHUNK_BYTES)
        except _FOREIGN as error:
            raise StoreError(_failure(error)) from error
        if not chunk:
            return
        yield chunk


def _failure(error: Exception) -> Failure:
    if isinstance(error, NoCredentialsError):
        return Failure(code="NoCredentials")
    if not isinstance(error, ClientError):
        return Failure(code=network_code(error), message=str(error))
    facts, told = error.response.get("ResponseMetadata", {}), error.response.get("Error", {})
    headers: Mapping[str, str] = facts.get("HTTPHeaders", {})
    status = facts.get("HTTPStatusCode")
    code = str(told.get("Code", ""))
    if code == str(status):  # what botocore makes up where there is no body
        code = ""
    return Failure(
        code=CHANGED if status == 412 else code,
        status=status,
        message=str(told.get("Message") or ""),
        region=str(told.get("Region") or headers.get("x-amz-bucket-region") or ""),
        retry_after_seconds=parse_retry_after(headers.get("retry-after")),
    )
