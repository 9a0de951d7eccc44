"""What is asked of an object store, whoever drives it, and how often it is asked again when it is busy.

Every request may fail for a moment: it is repeated with growing pauses, unless the store says that it never will.
Drivers give ``FileNotFoundError`` and ``PermissionError`` for that; anything else is taken for a passing fault.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import fsspec

from packer.locations import without_credentials
from packer.stores.object_errors import explain_errors
from shards.errors import RemoteDeniedError, RemoteError, SourceError, printable

TRIES = 6
"""Of each request, in about six seconds; drivers may repeat by themselves besides."""

FIRST_PAUSE_SECONDS = 0.2

CONNECTIONS = 64
"""A process has 32 reading threads by default; a pool that is smaller would make them queue."""

_EXTRAS = {"s3": "shardferry[s3]", "s3a": "shardferry[s3]"}

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a listing."""

    key: str
    """With the bucket, as the driver takes it."""
    size: int
    tag: str
    """Differs between versions: the ETag, or what the driver has in its place; empty when it has nothing."""

    @property
    def stamp(self) -> int:
        """The tag as a number for :class:`packer.sources.files.SourceFiles`."""
        return int.from_bytes(hashlib.blake2b(self.tag.encode(), digest_size=8).digest(), "big") >> 1


class ObjectStore(Protocol):
    """Lists and reads objects. Safe to use from several threads."""

    def find_object(self, key: str) -> StoredObject | None:
        """Give one object, or None when there is none of that very name."""

    def list_below(self, prefix: str) -> Iterator[StoredObject]:
        """Give all objects whose key begins with a prefix, which ends in ``/`` or is empty."""

    def read_range(self, key: str, start: int, end: int) -> tuple[bytes, str]:
        """Read a range that is not empty, or the whole of an object that should be.

        Returns:
            The bytes, fewer when the object ends first, and the tag of the version they come from.
        """


def open_store(url: str) -> tuple[ObjectStore, str]:
    """Open the store of a URL; gives it and the key in it.

    Raises:
        SourceError: there is no driver for it, or it cannot be set up.
    """
    scheme = url.partition("://")[0].lower()
    options = {"config_kwargs": {"max_pool_connections": CONNECTIONS}} if scheme in _EXTRAS else {}
    shown = printable(without_credentials(url))
    try:
        filesystem, key = fsspec.core.url_to_fs(url, **options)
        if scheme in _EXTRAS:
            from packer.sources.s3_store import S3Store  # noqa: PLC0415 (its driver is an extra)

            return S3Store(filesystem), key
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        advice = f"install it with: pip install '{extra}'" if extra else f"{error}"
        raise SourceError(f"the driver for {shown} is not installed; {advice}") from error
    except ValueError as error:
        raise SourceError(f"{shown} cannot be opened: {error}") from error
    from packer.sources.any_store import AnyStore  # noqa: PLC0415 (not needed for S3)

    return AnyStore(filesystem), key


def ask(request: Callable[[], Result], what: str) -> Result:
    """Send a request until it is answered.

    Args:
        request: to send.
        what: URL or key that it is about, for messages.

    Raises:
        FileNotFoundError: there is no such thing.
        RemoteDeniedError: access is denied.
        RemoteError: no try was answered.
    """
    pause = FIRST_PAUSE_SECONDS
    for left in reversed(range(TRIES)):
        try:
            with explain_errors(what):
                return request()
        except RemoteDeniedError:
            raise
        except RemoteError as error:
            if not error.is_transient:
                raise
            if left == 0:
                raise RemoteError(
                    f"{error}; {TRIES} tries failed, finished shards are kept, run the same command again to go on"
                ) from error
        time.sleep(pause)
        pause *= 2
    raise AssertionError
