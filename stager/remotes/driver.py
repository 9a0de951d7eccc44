"""What :class:`stager.remotes.objects.ObjectRemote` asks of a driver of some store, and how a driver says what failed.

A driver does single requests: it repeats nothing, measures no time, and raises :class:`StoreError` and nothing else.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

RANGE_IGNORED = "RangeIgnored"
"""The server sends the whole object, or says so, where a range was asked for."""

NAME_UNKNOWN = "NameUnknown"
"""The host name has no address."""
REFUSED = "ConnectionRefused"
UNREACHABLE = "Unreachable"
"""No connection, for any other reason."""
CERTIFICATE = "CertificateUntrusted"
NOT_TLS = "NotTls"
"""One side speaks TLS, the other does not."""
DROPPED = "ConnectionDropped"
"""A connection ended before the answer did."""
CHANGED = "PreconditionFailed"
"""The object has another ETag than the one asked for."""

UNREACHED = frozenset({NAME_UNKNOWN, REFUSED, UNREACHABLE, CERTIFICATE, NOT_TLS})
"""Failures before any request could be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a request did not give what was asked for."""

    code: str = ""
    """What an S3 server calls it, such as ``NoSuchKey``, or one of the names of this module; empty when unknown."""
    status: int | None = None
    """HTTP status; None when there was no answer."""
    message: str = ""
    """For a person; in the driver's or the server's words, without secrets."""
    region: str = ""
    """Where the bucket is, if the answer says so."""
    retry_after_seconds: float | None = None
    """How long the server asks to wait."""


class StoreError(Exception):
    """What a driver raises."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message or failure.code)


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What a store says about an object."""

    size_bytes: int
    etag: str | None
    """As in the header, with its quotes; None where the store gives none."""
    tag: str
    """Equal for equal states of the object: the ETag, or what the store has in its place."""


@dataclass(frozen=True, slots=True)
class RangeAnswer:
    """The answer to a request for a range; its chunks come while the request is open."""

    tag: str | None
    """Of the object the bytes are of; None where the answer does not say."""
    chunks: AsyncIterator["Buffer"]


class ObjectDriver(Protocol):
    """Requests to one store."""

    async def head(self, key: str) -> ObjectFacts:
        """Ask for an object's size and version.

        Raises:
            StoreError: no answer, or another one.
        """

    def open_range(self, key: str, start: int, end: int, etag: str | None) -> AbstractAsyncContextManager[RangeAnswer]:
        """Ask for the bytes ``[start, end)`` of an object, at least one.

        Args:
            key: of the object.
            start: first byte.
            end: behind the last one.
            etag: which version the bytes must be of, if the store can be asked for one.

        Raises:
            StoreError: on entering, or from the chunks.
        """

    def list_below(self, prefix: str) -> AsyncIterator[tuple[str, ObjectFacts]]:
        """Give all objects whose key begins with a prefix, with their keys.

        Raises:
            StoreError: no answer, or another one.
        """

    async def renew(self) -> None:
        """Read credentials anew from where they come from; requests that are under way may fail."""

    async def close(self) -> None:
        """Give connections back."""
