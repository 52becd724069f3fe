"""A proxy that hands every request on, and cuts some answers: what was asked is done, and no one is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"}


class CuttingProxy:
    """In front of the service at ``url``; ``with`` starts and stops it.

    Args:
        url: of the service, or what gives the one that answers the next request.
        cuts: whether the answer of this number, counted from 1, is cut.
    """

    def __init__(self, url: str | Callable[[], str], cuts: Callable[[int], bool]) -> None:
        self._next_url = url if callable(url) else lambda: url
        self._cuts = cuts
        self._lock = threading.Lock()
        self.answers = 0
        self.cut = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.close_connection = True
                with suppress(ConnectionError):  # the asker is gone, as one that was killed
                    self.raw_requestline = self.rfile.readline(65_537)
                    if self.raw_requestline and self.parse_request():
                        proxy.hand_on(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def hand_on(self, asker: BaseHTTPRequestHandler) -> None:
        """Ask the service, and answer, in full, by half, or not at all."""
        body = asker.rfile.read(int(asker.headers.get("Content-Length") or 0))
        target = urlsplit(self._next_url())
        upstream = HTTPConnection(target.hostname or "", target.port or 80, timeout=60)
        try:
            upstream.request(asker.command, asker.path, body or None, dict(asker.headers))
            answer = upstream.getresponse()
            content = answer.read()
        except (OSError, HTTPException):  # it was away, or ended meanwhile
            asker.close_connection = True
            return
        finally:
            upstream.close()
        with self._lock:
            self.answers += 1
            number = self.answers
            cuts = self._cuts(number)
            self.cut += cuts
        if cuts and number % 2:
            asker.close_connection = True
            return
        asker.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                asker.send_header(name, value)
        asker.send_header("Content-Length", str(len(content)))
        asker.end_headers()
        asker.wfile.write(content[: len(content) // 2] if cuts else content)
        asker.close_connection = asker.close_connection or cuts

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
