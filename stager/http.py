"""A small HTTP server for probes and metrics: ``/livez``, ``/metrics`` and what else a command offers.

Rules:
    * Only GET and HEAD; nothing that is sent here changes anything. No file is served.
    * It runs in threads of its own, so that a probe is answered while the stager is busy.
    * Pages are functions called at each request; they must not block.
"""

import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from shards.errors import StageError, printable

REQUEST_SECONDS = 10.0
"""How long a client may take to send its request."""

TEXT_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT_TYPE


def probe_page(*, is_good: bool, text: str) -> Page:
    """The answer to a probe: 200 or 503, with a line for people."""
    return Page(text.encode() + b"\n", HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE)


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT`` or ``:PORT`` (all addresses of this host); ``[::1]:9464`` for IPv6. Port 0 takes a free one.

    Raises:
        ValueError: it is something else.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ValueError(f"{text!r} is not HOST:PORT; write for instance :9464, 127.0.0.1:9464 or [::1]:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)


class ProbeServer:
    """Serves pages until it is closed; a context manager.

    Args:
        address: host (empty: all addresses) and port.
        pages: path to what gives the page.

    Raises:
        StageError: the address is not to be had.
    """

    def __init__(self, address: tuple[str, int], pages: Mapping[str, Callable[[], Page]]) -> None:
        server_class = _Server6 if ":" in address[0] else _Server
        try:
            self._server = server_class(address, _make_handler(pages))
        except OSError as error:
            host, port = address
            raise StageError(
                f"cannot listen on {printable(host) or '*'}:{port}: {error.strerror or error}; give another address, "
                "or port 0 for a free one"
            ) from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="probe-server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that does not finish its request must not hold up the end

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def _make_handler(pages: Mapping[str, Callable[[], Page]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS
        server_version = "shardferry"
        sys_version = ""

        def do_GET(self) -> None:
            make_page = pages.get(self.path.partition("?")[0])
            if make_page is None:
                known = " ".join(pages)
                self._answer(Page(f"not found; there is {known}\n".encode(), HTTPStatus.NOT_FOUND))
                return
            self._answer(make_page())

        do_HEAD = do_GET  # noqa: N815 (the base class looks for this name)

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds and are no news."""

        def _answer(self, page: Page) -> None:
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page.body)

    return Handler
