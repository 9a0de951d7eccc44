"""An S3 server that answers as a test tells it, to each request anew: refusals, stalls, broken answers and lies."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ETAG = '"0123456789abcdef0123456789abcdef"'


@dataclass(frozen=True)
class Request:
    """What came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""

    @property
    def range(self) -> tuple[int, int] | None:
        """Half-open."""
        text = self.headers.get("range")
        if text is None:
            return None
        first, last = text.removeprefix("bytes=").split("-")
        return int(first), int(last) + 1


@dataclass(frozen=True)
class Answer:
    """What goes out."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    sent_bytes: int | None = None
    """Of the body, before the connection is broken; None for all."""
    stall_seconds: float = 0.0
    """Silence in the middle of the body."""


def error(status: int, code: str, message: str = "", more: str = "", **headers: str) -> Answer:
    """A refusal in the words of S3."""
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>'
    return Answer(status, body.encode(), {name.replace("_", "-"): value for name, value in headers.items()})


def serve_object(request: Request, content: bytes, *, etag: str = ETAG) -> Answer:
    """What a good server answers."""
    headers = {"ETag": etag, "Last-Modified": "Mon, 30 Nov 2026 20:00:00 GMT", "Accept-Ranges": "bytes"}
    if request.headers.get("if-match", etag) != etag:
        return error(412, "PreconditionFailed")
    if request.range is None or request.method == "HEAD":
        return Answer(200, content, headers)
    start, end = request.range
    piece = content[start:end]
    return Answer(206, piece, {**headers, "Content-Range": f"bytes {start}-{start + len(piece) - 1}/{len(content)}"})


class ScriptedS3:
    """The server's address, what it was asked, and how it answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Answer] = lambda request: error(404, "NoSuchKey")


@contextmanager
def scripted_s3() -> Iterator[ScriptedS3]:
    """Serve until the end of the block."""
    stopping = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply()

        def do_HEAD(self) -> None:
            self.reply()

        def reply(self) -> None:
            request = Request(self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
            server.requests.append(request)
            answer = server.answer(request)
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            sent = answer.body if answer.sent_bytes is None else answer.body[: answer.sent_bytes]
            half = len(sent) // 2
            try:
                self.wfile.write(sent[:half])
                self.wfile.flush()
                deadline = time.monotonic() + answer.stall_seconds
                while time.monotonic() < deadline and not stopping.is_set():
                    stopping.wait(0.05)
                self.wfile.write(sent[half:])
            except OSError:
                self.close_connection = True  # the reader has given up
            if answer.sent_bytes is not None:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # readers go away amid an answer

    with Server(("127.0.0.1", 0), Handler) as listener:
        server = ScriptedS3(f"http://127.0.0.1:{listener.server_address[1]}")
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            stopping.set()
            listener.shutdown()
            thread.join()
