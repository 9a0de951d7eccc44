"""Where a dataset lies: a directory, or the URL of an object store; pure.

A URL is ``scheme://…``, whatever driver of fsspec that scheme has. ``file://`` and ``local://`` mean a directory, so
that there is one way only to treat the files of this machine.
"""

import re

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_CREDENTIALS = re.compile(r"(://)[^/@]*@")
_WITH_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs"})
_LOCAL = re.compile(r"(?:file|local)://", re.IGNORECASE)


def is_url(location: str) -> bool:
    """Whether a location is the URL of an object store; a directory otherwise."""
    return _URL.match(location) is not None and _LOCAL.match(location) is None


def directory_of(location: str) -> str:
    """The path of a location that is no URL; a URL stays as it is."""
    return _LOCAL.sub("", location, count=1)


def check_location(location: str, name: str) -> None:
    """Refuse what can be no location.

    Args:
        location: as the user gave it.
        name: of the argument, for the message.

    Raises:
        ValueError: it is empty, or a URL without a bucket.
    """
    if not location:
        raise ValueError(f"{name} is empty; give a directory or a URL")
    if scheme_of(location) in _WITH_BUCKETS and not location.partition("://")[2].partition("/")[0]:
        raise ValueError(f"{name} {location} names no bucket; write for instance s3://bucket/prefix")


def scheme_of(url: str) -> str:
    """The part of a URL before ``://``, in lower case."""
    return url.partition("://")[0].lower()


def without_credentials(location: str) -> str:
    """A location as it may be shown and stored: ``ftp://user:secret@host/`` loses what stands before the ``@``."""
    return _CREDENTIALS.sub(r"\1", location, count=1) if is_url(location) else location
