"""What Python's clients raise when a connection fails, in the words of :mod:`stager.remotes.driver`."""

import socket
import ssl
from collections.abc import Iterator

from stager.remotes.driver import CERTIFICATE, DROPPED, NAME_UNKNOWN, NOT_TLS, REFUSED, UNREACHABLE

LONGEST_RETRY_AFTER_SECONDS = 300.0
"""A server that wants to be left alone for longer is down, as far as a waiting pod is concerned."""

_CONNECTING = frozenset(
    {"ClientConnectorError", "ConnectTimeoutError", "ProxyConnectionError", "ConnectionTimeoutError"}
)


def network_code(error: BaseException) -> str:
    """Tell why a connection failed, from an exception and those that caused it."""
    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return CERTIFICATE
        if isinstance(cause, ssl.SSLError):
            return NOT_TLS
        if isinstance(cause, socket.gaierror):
            return NAME_UNKNOWN
        if isinstance(cause, ConnectionRefusedError):
            return REFUSED
    if any(type(cause).__name__ in _CONNECTING for cause in chain):
        return UNREACHABLE
    return DROPPED


def parse_retry_after(text: str | None) -> float | None:
    """Read the seconds of a ``Retry-After`` header; a date, which servers of objects do not send, is left out."""
    if text is None or not text.strip().isdecimal():
        return None
    return min(float(text), LONGEST_RETRY_AFTER_SECONDS)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Give an exception, and what led to it; clients keep it in attributes of several names."""
    todo, seen = [error], set[int]()
    while todo:
        cause = todo.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        found = [cause.__cause__, cause.__context__]
        found += [getattr(cause, name, None) for name in ("os_error", "certificate_error")]
        found += list(getattr(cause, "kwargs", {}).values())
        todo += [other for other in found if isinstance(other, BaseException)]
