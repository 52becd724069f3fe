"""Bounds a whole HTTP response in time.

httpx's read time-out starts anew with each chunk, so that a server which sends a byte now and then
can hold a thread for hours.  Two event hooks add what is missing: one notes when a request started, the
other watches the body.  (Hooks, not a transport: a transport of one's own would switch proxies off.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx2

_DEADLINE = "strandline_deadline"


def start_clock(request: httpx2.Request) -> None:
    """Request hook: from now, the response may take as long as the request's read time-out."""
    allowed = request.extensions["timeout"]["read"]
    if allowed is not None:
        request.extensions[_DEADLINE] = time.monotonic() + allowed


def watch_body(response: httpx2.Response) -> None:
    """Response hook: reading the body past the deadline raises ``httpx2.ReadTimeout``."""
    deadline = response.request.extensions.get(_DEADLINE)
    if deadline is not None and isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = _TimedBody(response.stream, deadline)


class _TimedBody(httpx2.SyncByteStream):
    def __init__(self, body: httpx2.SyncByteStream, deadline: float) -> None:
        self._body = body
        self._deadline = deadline

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._body:
            if time.monotonic() > self._deadline:
                raise httpx2.ReadTimeout("the response took longer than allowed in total")
            yield chunk

    def close(self) -> None:
        self._body.close()
