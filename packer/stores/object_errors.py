"""Turns what drivers of object stores raise, in all its variety, into few errors of ours."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from shards.errors import RemoteDeniedError, RemoteError, ShardferryError, printable

_DENIED_CLASSES = frozenset({"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "HttpError401"})
_REFUSED_CLASSES = frozenset({"ParamValidationError", "InvalidURL", "InvalidUrlClientError"})
"""Raised before anything is sent."""

_ADVICE = (
    (
        "MissingContentLength",
        "it takes no trailing checksums: set AWS_REQUEST_CHECKSUM_CALCULATION=when_required",
    ),
    ("CERTIFICATE_VERIFY_FAILED", "name the file of your authority's certificates in AWS_CA_BUNDLE"),
    ("Could not connect", "check the endpoint (AWS_ENDPOINT_URL) and the network"),
)


@contextmanager
def explain_errors(url: str) -> Iterator[None]:
    """Raise errors of ours for whatever a driver raises inside.

    Args:
        url: what the operation is about, without secrets.

    Raises:
        FileNotFoundError: there is no such object or bucket; its ``filename`` is the URL.
        RemoteDeniedError: access was refused, or there are no credentials.
        RemoteError: anything else; worth repeating.
    """
    try:
        yield
    except (ShardferryError, ImportError, NotImplementedError):
        raise
    except FileNotFoundError as error:
        reason = str(error.args[-1]) if error.args and len(error.args) < 2 else os.strerror(errno.ENOENT)
        raise FileNotFoundError(errno.ENOENT, reason, url) from error
    except PermissionError as error:
        raise RemoteDeniedError(f"{printable(url)}: access denied ({_reason(error)}); check credentials") from error
    except Exception as error:  # (each driver has classes of its own, and none can be imported here)
        if type(error).__name__ in _DENIED_CLASSES:
            raise RemoteDeniedError(f"{printable(url)}: {_reason(error)}; give credentials to the driver") from error
        if type(error).__name__ in _REFUSED_CLASSES:
            raise RemoteError(f"{printable(url)}: {_reason(error)}; check the URL", is_transient=False) from error
        advice = next((f"; {text}" for sign, text in _ADVICE if sign in str(error)), "")
        raise RemoteError(f"{printable(url)}: {_reason(error)}{advice}") from error


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return printable(f"{type(error).__name__}: {text}" if text else type(error).__name__)[:500]
