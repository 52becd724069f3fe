"""Bounds a whole HTTP response in time and in size.

httpx restarts its read time-out with each chunk, so that a server which sends a byte now and then can hold a
thread for hours; and it reads any response, decompressed, into memory. Two event hooks add the missing
bounds: one notes when a request started, and makes each read of its connection end in time, headers and
trailers included (their size is bounded already, at 100 kB); the other watches the body. (Hooks, not a
transport: a custom transport would switch proxies off.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import httpx2

# A server that keeps to this sends what it counts: nothing that grows a thousandfold when it is read.
UNCOMPRESSED = {"Accept-Encoding": "identity"}

_DEADLINE = "strandline_deadline"
# Of the request that this thread waits for; a connection goes from one request to the next.
_ends_at: ContextVar[float | None] = ContextVar("ends_at", default=None)
_OPENED = (".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")


class UnboundedAnswerError(httpx2.RequestError):
    """The answer is larger than it may be, or compressed although it was asked not to be."""


def start_clock(request: httpx2.Request) -> None:
    """Request hook: from now, the response may take as long as the request's read time-out."""
    allowed = request.extensions["timeout"]["read"]
    ends_at = None if allowed is None else time.monotonic() + allowed
    request.extensions[_DEADLINE] = ends_at
    request.extensions["trace"] = _bound_reads
    _ends_at.set(ends_at)


def _bound_reads(event: str, details: Mapping[str, Any]) -> None:
    """Have a connection that was just opened give up each read when the time of its request is over."""
    if not event.endswith(_OPENED):
        return
    stream = details["return_value"]
    read = stream.read

    def read_in_time(max_bytes: int, timeout: float | None = None) -> bytes:
        ends_at = _ends_at.get()
        if ends_at is not None:
            left = ends_at - time.monotonic()
            if left <= 0:
                raise httpx2.ReadTimeout("the response took longer than allowed in total")
            timeout = left if timeout is None else min(timeout, left)
        received: bytes = read(max_bytes, timeout=timeout)
        return received

    stream.read = read_in_time


def watch_body(max_bytes: int) -> Callable[[httpx2.Response], None]:
    """Response hook: reading the body past the deadline raises ``httpx2.ReadTimeout``.

    One of more than ``max_bytes``, or that is compressed, raises ``UnboundedAnswerError``.
    """

    def watch(response: httpx2.Response) -> None:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise UnboundedAnswerError("it is compressed, although the request forbids that")
        deadline = response.request.extensions.get(_DEADLINE)
        if isinstance(response.stream, httpx2.SyncByteStream):
            response.stream = _BoundedBody(response.stream, deadline, max_bytes)

    return watch


class _BoundedBody(httpx2.SyncByteStream):
    def __init__(self, body: httpx2.SyncByteStream, deadline: float | None, max_bytes: int) -> None:
        self._body = body
        self._deadline = deadline
        self._max_bytes = max_bytes

    def __iter__(self) -> Iterator[bytes]:
        left = self._max_bytes
        for chunk in self._body:
            if self._deadline is not None and time.monotonic() > self._deadline:
                raise httpx2.ReadTimeout("the response took longer than allowed in total")
            left -= len(chunk)
            if left < 0:
                raise UnboundedAnswerError(f"it is larger than {self._max_bytes:,} bytes")
            yield chunk

    def close(self) -> None:
        self._body.close()
