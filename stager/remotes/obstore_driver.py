"""S3 through obstore: the fast driver. The only module that imports it.

Its errors carry the HTTP status and the answer's body in their text, and say nothing about headers: how long a server
asks to wait cannot be seen through it.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.credentials import Credentials
from obstore.exceptions import BaseError
from obstore.store import S3Store

from stager.remotes.driver import (
    CERTIFICATE,
    CHANGED,
    DROPPED,
    NAME_UNKNOWN,
    NOT_TLS,
    RANGE_IGNORED,
    REFUSED,
    UNREACHABLE,
    Failure,
    ObjectFacts,
    RangeAnswer,
    StoreError,
)
from stager.remotes.s3_settings import S3Settings, find_credentials, freeze, open_session

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Credential

_CHUNK_BYTES = 1024 * 1024
"""Smaller ones cost more calls than they save, bigger ones more memory."""

_FOREIGN = (BaseError, OSError, ValueError)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>")
_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
_REGION = re.compile(r"<Region>\s*([\w-]+)\s*</Region>")
_REASON = re.compile(r'(?:message|error): "([^"]+)"')
_NETWORK_SIGNS = (
    ("InvalidCertificate", CERTIFICATE),
    ("InvalidMessage", NOT_TLS),
    ("dns error", NAME_UNKNOWN),
    ("ConnectionRefused", REFUSED),
    ("kind: Connect", UNREACHABLE),
)
"""Words in the description of a failed connection; the first that fits counts."""


class ObstoreDriver:
    """Requests to one bucket; see :class:`stager.remotes.driver.ObjectDriver`.

    Args:
        settings: of the service.
        credentials: to sign with; None signs nothing.
    """

    def __init__(self, settings: S3Settings, credentials: Credentials | None) -> None:
        self._settings = settings
        self._store = _open_store(settings, credentials)

    async def head(self, key: str) -> ObjectFacts:
        """Ask for size and ETag."""
        try:
            meta = await self._store.head_async(key)
        except _FOREIGN as error:
            raise _failure(error) from error
        etag = meta["e_tag"]
        return ObjectFacts(meta["size"], etag, etag or str(meta["last_modified"]))

    @asynccontextmanager
    async def open_range(self, key: str, start: int, end: int, etag: str | None) -> AsyncIterator[RangeAnswer]:
        """Ask for a range."""
        try:
            if etag is None:
                answer = await self._store.get_async(key, options={"range": (start, end)})
            else:
                answer = await self._store.get_async(key, options={"range": (start, end), "if_match": etag})
        except _FOREIGN as error:
            raise _failure(error) from error
        meta = answer.meta
        stream = answer.stream(min_chunk_size=_CHUNK_BYTES)

        async def chunks() -> AsyncIterator[memoryview]:
            try:
                async for chunk in stream:
                    yield memoryview(chunk)
            except _FOREIGN as error:
                raise _failure(error) from error

        yield RangeAnswer(meta["e_tag"] or str(meta["last_modified"]), chunks())

    async def list_below(self, prefix: str) -> AsyncIterator[tuple[str, ObjectFacts]]:
        """List objects."""
        try:
            async for page in self._store.list(prefix or None):
                for meta in page:
                    tag = meta["e_tag"]
                    if meta["path"].startswith(prefix):
                        yield meta["path"], ObjectFacts(meta["size"], tag, tag or str(meta["last_modified"]))
        except _FOREIGN as error:
            raise _failure(error) from error

    async def renew(self) -> None:
        """Read credentials anew: a store keeps those that it has."""
        options = self._settings.options
        session = open_session(options)
        credentials = await asyncio.to_thread(find_credentials, session, options)
        self._store = _open_store(self._settings, credentials)

    async def close(self) -> None:
        """Nothing to do: connections close when the store is dropped."""


def _open_store(settings: S3Settings, credentials: Credentials | None) -> S3Store:
    endpoint = settings.endpoint_url
    config: S3Config = {
        "region": settings.region,
        "virtual_hosted_style_request": settings.is_virtual,
        "request_payer": settings.options.is_requester_pays,
        "skip_signature": credentials is None,
    }
    if endpoint is not None:
        if settings.is_virtual:
            scheme, _, host = endpoint.partition("://")
            endpoint = f"{scheme}://{settings.bucket}.{host}"
        config["aws_endpoint_url_s3"] = endpoint  # before every variable that the driver would read
    client: ClientConfig = {
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
        # stalls are watched by the caller; a limit for the whole of a request would cut slow links
        "timeout": timedelta(days=1),
        "connect_timeout": timedelta(seconds=settings.options.stall_seconds),
    }
    if settings.authorities is not None:
        client["root_certificate"] = settings.authorities

    return S3Store(
        settings.bucket,
        config=config,
        client_options=client,
        retry_config={"max_retries": 0},
        credential_provider=None if credentials is None else _Provider(credentials),
    )


class _Provider:
    """Gives credentials to a store, renewed where that is needed."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def __call__(self) -> "S3Credential":
        """Give credentials; in a thread, because to renew them takes a request."""
        access_key, secret_key, token, expires_at = await asyncio.to_thread(freeze, self._credentials)
        return {"access_key_id": access_key, "secret_access_key": secret_key, "token": token, "expires_at": expires_at}


def _failure(error: Exception) -> StoreError:
    text = str(error)
    status, code, message, region = (_find(pattern, text) for pattern in (_STATUS, _CODE, _MESSAGE, _REGION))
    if status:
        code = CHANGED if status == "412" else code
        return StoreError(Failure(code=code, status=int(status), message=message, region=region))
    if "NotPartial" in text:
        return StoreError(Failure(code=RANGE_IGNORED, status=200, message="the whole object instead of a range"))
    if "without LOCATION" in text:
        return StoreError(Failure(code="PermanentRedirect", status=301, message="a redirect that leads nowhere"))
    network = next((code for sign, code in _NETWORK_SIGNS if sign in text), DROPPED)
    return StoreError(Failure(code=network, message=_find(_REASON, text)))


def _find(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found.group(1) if found else ""
