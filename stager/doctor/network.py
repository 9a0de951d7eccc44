"""Looks at the way to a server: name, address, TLS and its authorities, proxy, clock."""

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from shardferry.console.exits import EXIT_DENIED, EXIT_UNAVAILABLE
from shardferry.console.units import format_seconds
from stager.doctor.findings import Finding, failed, good, skipped, warning

TIMEOUT_SECONDS = 10.0

SKEW_WARN_SECONDS = 60.0
SKEW_FAIL_SECONDS = 15 * 60.0
"""S3 refuses signatures that are older, or come from the future."""

_SOON_SECONDS = 14 * 86400.0
_SHOWN_ADDRESSES = 3


def check_network(url: str, authorities: bytes | None, *, is_signed: bool) -> Iterator[Finding]:
    """Look at the way to a server.

    Args:
        url: ``http://`` or ``https://`` with the host that will be asked.
        authorities: PEM text of authorities that are trusted besides the system's.
        is_signed: whether requests carry a signature, so that the clock matters.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    proxy = None if proxy_bypass(host) else urlsplit(getproxies().get(parts.scheme, ""))
    if proxy is not None and proxy.hostname:
        yield good("proxy", f"{host} is reached through {proxy.hostname}:{proxy.port or 80}")
        way = proxy.hostname, proxy.port or 80
    else:
        proxy = None
        way = host, port
    found = _resolve(*way)
    yield found
    if found.code:
        yield skipped("tcp", "the name has no address")
        return
    connected = _connect(*way)
    yield connected
    if connected.code:
        return
    server = _Server(host, port, is_tls=is_tls, proxy=None if proxy is None else way, is_signed=is_signed)
    yield from _talk(server, authorities)


@dataclass(frozen=True, slots=True)
class _Server:
    """Who is asked, and through whom."""

    host: str
    port: int
    is_tls: bool
    proxy: tuple[str, int] | None
    is_signed: bool


def _resolve(host: str, port: int) -> Finding:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return failed(
            "dns",
            f"{host}: {reason}",
            "check the name in the URL or --endpoint-url, and /etc/resolv.conf of this container",
            EXIT_UNAVAILABLE,
        )
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    more = f" and {len(addresses) - _SHOWN_ADDRESSES} more" if len(addresses) > _SHOWN_ADDRESSES else ""
    return good("dns", f"{host} is {', '.join(addresses[:_SHOWN_ADDRESSES])}{more}")


def _connect(host: str, port: int) -> Finding:
    started_at = time.monotonic()
    try:
        socket.create_connection((host, port), timeout=TIMEOUT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error)
        return failed(
            "tcp",
            f"{host}:{port}: {reason}",
            "check port, firewall and NetworkPolicy, and that the server runs",
            EXIT_UNAVAILABLE,
        )
    return good("tcp", f"{host}:{port} answers in {format_seconds(time.monotonic() - started_at)}")


def _talk(server: _Server, authorities: bytes | None) -> Iterator[Finding]:
    host, port = server.host, server.port
    first_host, first_port = server.proxy or (host, port)
    connection: http.client.HTTPConnection
    if server.is_tls:
        context = ssl.create_default_context()
        if authorities:
            context.load_verify_locations(cadata=authorities.decode("ascii", "replace"))
        connection = http.client.HTTPSConnection(first_host, first_port, timeout=TIMEOUT_SECONDS, context=context)
        if server.proxy is not None:
            connection.set_tunnel(host, port)
    else:
        connection = http.client.HTTPConnection(first_host, first_port, timeout=TIMEOUT_SECONDS)
    try:
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            yield _tls_failed(error)
            return
        if server.is_tls:
            yield _certificate(connection.sock)
        before = time.time()
        try:
            connection.request("HEAD", "/", headers={"Host": host if port in {80, 443} else f"{host}:{port}"})
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            yield failed(
                "http",
                f"no answer: {type(error).__name__}: {error}",
                "is this port one of HTTP, and the scheme (http or https) the right one?",
                EXIT_UNAVAILABLE,
            )
            return
        yield good("http", f"{answer.getheader('Server') or 'a server'} answers {answer.status}")
        yield _clock(answer.getheader("Date"), (before + time.time()) / 2, is_signed=server.is_signed)
    finally:
        connection.close()


def _tls_failed(error: Exception) -> Finding:
    if isinstance(error, ssl.SSLCertVerificationError):
        return failed(
            "tls",
            f"the certificate is not trusted: {error.verify_message or error}",
            "give the authority's certificate with --ca-bundle (AWS_CA_BUNDLE); the host name must be one of those in "
            "the certificate, and the clock right",
            EXIT_UNAVAILABLE,
        )
    if isinstance(error, ssl.SSLError):
        return failed("tls", str(error), "the server does not speak TLS on this port: try http://", EXIT_UNAVAILABLE)
    return failed("tls", f"{type(error).__name__}: {error}", "check the proxy and the port", EXIT_UNAVAILABLE)


def _certificate(sock: socket.socket) -> Finding:
    if not isinstance(sock, ssl.SSLSocket):
        return skipped("tls", "no certificate was shown")
    certificate = sock.getpeercert() or {}
    issuer: dict[object, object] = {}
    for pairs in certificate.get("issuer", ()):
        issuer.update(pair for pair in pairs if isinstance(pair, tuple))
    name = issuer.get("organizationName") or issuer.get("commonName") or "unknown"
    facts = f"{sock.version()}, certificate by {name}"
    with suppress(KeyError, ValueError, TypeError):
        left = ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()
        facts = f"{facts}, good for {left / 86400:.0f} days"
        if left < _SOON_SECONDS:
            return warning("tls", facts, "have the server's certificate renewed")
    return good("tls", facts)


def _clock(date: str | None, now: float, *, is_signed: bool) -> Finding:
    if date is None:
        return skipped("clock", "the server does not tell its time")
    try:
        skew = now - parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return skipped("clock", f"the server's time cannot be read: {date[:40]!r}")
    facts = f"{format_seconds(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the server's"
    if abs(skew) >= SKEW_FAIL_SECONDS and is_signed:
        return failed("clock", facts, "synchronise the clock (NTP): signatures carry the time", EXIT_DENIED)
    if abs(skew) >= SKEW_WARN_SECONDS:
        return warning("clock", facts, "synchronise the clock (NTP)")
    return good("clock", "that of the server, to within a minute")
