"""Bounds on a client's input before its key is checked.

uvicorn bounds neither the headers that httptools reads nor the time that they take: any client could have
this process keep hundreds of megabytes, or thousands of idle connections.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from strandline.service.gate.problems import (
    HEAD_TOO_LARGE,
    MALFORMED,
    SLOW_HEAD,
    Kind,
    problem_response,
)

MAX_HEAD_BYTES = 65_536
# A body that is read has the service's own bound in time; an unread one, of a refused request, has this many
# times a head's.
BODY_TIMES = 3
# Framing bytes for each byte of a chunked body: a chunk of one byte takes five more.
_FRAMING = 8


class BoundedHeads(HttpToolsProtocol):
    """One connection: a head, and what follows a chunked body, has at most ``MAX_HEAD_BYTES``, about.

    Attributes:
        head_seconds: how long a head may take from its first byte on.  A silent connection has as long as
            between two requests.
    """

    head_seconds: float

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._is_in_head = True
        self._head_bytes = 0
        self._body_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        if self._is_in_head and self._head_bytes == len(data):
            self._stop_timer()
            self._timer = self.loop.call_later(self.head_seconds, self._refuse, SLOW_HEAD)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES + _FRAMING * self._body_bytes:
            self._refuse(HEAD_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(BODY_TIMES * self.head_seconds, self.transport.abort)
        self._is_in_head = False
        self._head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._is_in_head = True
        self._head_bytes = self._body_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called for input that is not HTTP."""
        self._refuse(MALFORMED)

    def _refuse(self, kind: Kind) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_as_bytes(kind))
            self.transport.close()
        else:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def bounded_by(head_seconds: float) -> type[BoundedHeads]:
    """The protocol, with a bound on the time that a head may take."""
    return type("BoundedHeads", (BoundedHeads,), {"head_seconds": head_seconds})


def _as_bytes(kind: Kind) -> bytes:
    response = problem_response(kind, headers={"Connection": "close"})
    lines = [f"HTTP/1.1 {kind.status} {HTTPStatus(kind.status).phrase}".encode()]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
