"""What a source looks like that is no path; pure."""

import re

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_CREDENTIALS = re.compile(r"(://)[^/@]*@")


def is_url(source: str) -> bool:
    """Whether a source lies behind fsspec; ``file://`` does not."""
    return _URL.match(source) is not None and not source.startswith("file://")


def without_credentials(source: str) -> str:
    """A source as it may be shown and stored: ``ftp://user:secret@host/`` loses what stands before the ``@``."""
    return _CREDENTIALS.sub(r"\1", source, count=1) if is_url(source) else source
