"""A server whose answers are written beforehand: refusals in a row, and what comes after them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from strandline.schemas.wire.base import Problem

# A body, or what makes its parts; such a one ends with the connection.
Body = bytes | Callable[[], Iterator[bytes]]


class Answers:
    """A server that gives these answers one after the other, and the last one again and again."""

    def __init__(self, *answers: tuple[int, dict[str, str], Body]) -> None:
        self.answers = answers
        self.asked = 0
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []


@contextmanager
def answering(answers: Answers) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def do_GET(self) -> None:
            status, headers, body = answers.answers[min(answers.asked, len(answers.answers) - 1)]
            answers.asked += 1
            answers.headers.append(dict(self.headers))
            answers.paths.append(self.path.partition("?")[0])
            self.send_response(status)
            framing = (
                {"Content-Length": str(len(body))} if isinstance(body, bytes) else {"Connection": "close"}
            )
            for name, value in {**headers, **framing}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # of a client that has had enough
                for part in (body,) if isinstance(body, bytes) else body():
                    self.wfile.write(part)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def problem(name: str, status: int, **headers: str) -> tuple[int, dict[str, str], bytes]:
    body = Problem(type=f"urn:strandline:problem:{name}", title="T", status=status, detail="D.")
    sent = {"Content-Type": "application/problem+json", **headers}
    return status, sent, body.model_dump_json(exclude_none=True).encode()


def position(number: int) -> tuple[int, dict[str, str], bytes]:
    """A stream that says where it is, tells what a later release may tell, and ends."""
    said = f'id: {number}\nevent: position\ndata: {{"kind": "position", "at": "2026-01-31T12:00:00Z"}}\n\n'
    later = f'id: {number + 1}\nevent: newer\ndata: {{"kind": "newer"}}\n\nid: {number + 2}\n\n'
    return 200, {"Content-Type": "text/event-stream"}, (": listening\n\n" + said + later).encode()


def event(number: int) -> tuple[int, dict[str, str], bytes]:
    """A stream that tells of one flush, and ends."""
    data = f'{{"kind": "flushed", "at": "2026-01-31T12:00:00Z", "through_seq": {number}}}'
    text = f": listening\n\nid: {number}\nevent: flushed\ndata: {data}\n\n"
    return 200, {"Content-Type": "text/event-stream"}, text.encode()
