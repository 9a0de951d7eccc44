"""The one place that turns a source into a remote."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shards.errors import RemoteError
from stager.remotes.authorities import read_authorities
from stager.remotes.base import Remote
from stager.remotes.options import RemoteOptions
from stager.remotes.posix import PosixRemote
from stager.remotes.retry import RetryingRemote, RetryPolicy

S3_SCHEMES = frozenset({"s3", "s3a"})


def open_remote(
    source: str, options: RemoteOptions, num_connections: int, limit: Callable[[Remote], Remote] | None = None
) -> RetryingRemote:
    """Open what reads a source. Call it inside of the event loop that will use it.

    Args:
        source: a directory, absolute, or a URL, as :func:`stager.config.parse_source` gives it.
        options: how it is reached.
        num_connections: requests at the same time.
        limit: wraps a remote so that it keeps to a bandwidth; repeats count as well.

    Raises:
        RemoteError: there is no driver for it, or a setting is wrong.
    """
    inner = _open_inner(source, options, num_connections)
    if limit is not None:
        inner = limit(inner)
    return RetryingRemote(inner, RetryPolicy(budget_seconds=options.retry_seconds), random.random)


def _open_inner(source: str, options: RemoteOptions, num_connections: int) -> Remote:
    scheme, is_url, _ = source.partition("://")
    if not is_url:
        return PosixRemote(source, num_connections)
    # imported where they are used: each takes a driver, which is an extra
    if scheme in S3_SCHEMES:
        with _naming_the_missing(scheme, "'shardferry[s3]'"):
            from stager.remotes.s3 import open_s3  # noqa: PLC0415

            return open_s3(source, options, num_connections)
    from stager.remotes.objects import ObjectRemote  # noqa: PLC0415

    if scheme in {"http", "https"}:
        with _naming_the_missing(scheme, "aiohttp"):
            from stager.remotes.http_driver import HttpDriver  # noqa: PLC0415
        authorities = read_authorities(options.ca_bundle) if options.ca_bundle else None
        http = HttpDriver(f"{source}/", authorities, num_connections, options.stall_seconds)
        return ObjectRemote(http, source, "", options.stall_seconds)
    from stager.remotes.fsspec_driver import FsspecDriver  # noqa: PLC0415

    return ObjectRemote(FsspecDriver(source, num_connections), source, "", options.stall_seconds)


@contextmanager
def _naming_the_missing(scheme: str, package: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise RemoteError(
            f"the driver for {scheme}:// is not installed ({error}); install it with: pip install {package}",
            is_transient=False,
        ) from error
