"""Bounds a whole HTTP response in time and in size.

httpx restarts its read time-out with each chunk, so that a server which sends a byte now and then can hold a
thread for hours; and it reads any response, decompressed, into memory. Two event hooks add the missing
bounds: one notes when a request started, and makes each read of its connection end in time, headers and
trailers included; the other watches the body, and unpacks a compressed one within the same bounds. A custom
transport would switch proxies off.

The first part of a body may take as long as the whole answer; after that a server may be silent for a while
only, since a working one sends parts.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from typing import Any

import httpx2

from strandline.pipelines.models.openai.repetition import ENDED, until_repetition

# A server that keeps to this sends as many bytes as it counts; some gateways compress all the same.
UNCOMPRESSED = {"Accept-Encoding": "identity"}
# Of a stream, in which each token is an event of some hundred bytes.
MAX_STREAM_BYTES = 32_000_000

_OPENED = (".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")
_PLAIN = frozenset({"", "identity"})
_READABLE = _PLAIN | {"gzip", "x-gzip", "deflate"}
# How gzip and zlib begin, and no JSON and no event; and what these begin with.
_MARK_BYTES = 2
_MARKS = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_BEGINNINGS = b"{[ \r\n\t:de\xef"
_ANY_WINDOW, _BARE_WINDOW = 47, -15
_PIECE_BYTES = 65_536


class UnboundedAnswerError(httpx2.RequestError):
    """The answer is larger than it may be, or compressed in a way that cannot be read."""


class EndlessAnswerError(httpx2.ReadTimeout):
    """The answer was still under way when its time was over."""


@dataclass(slots=True)
class _Clock:
    ends_at: float | None
    silence_seconds: float
    has_begun: bool = False

    def next_timeout(self, timeout: float | None) -> float | None:
        """The next read's time-out; raises if the time is over."""
        if self.ends_at is None:
            return timeout
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise self.at_end()
        waits = [left, *([self.silence_seconds] if self.has_begun else []), *([timeout] if timeout else [])]
        return min(waits)

    def is_over(self) -> bool:
        # A socket's own clock may wake a little earlier.
        return self.ends_at is not None and time.monotonic() > self.ends_at - 0.01

    def at_end(self) -> httpx2.ReadTimeout:
        kind = EndlessAnswerError if self.has_begun else httpx2.ReadTimeout
        return kind("its time is over")


# Of the request that this thread waits for; a connection goes from one request to the next.
_clock: ContextVar[_Clock | None] = ContextVar("clock", default=None)


def start_clock(silence_seconds: float) -> Callable[[httpx2.Request], None]:
    """Request hook: from now, the response may take as long as the request's read time-out."""

    def start(request: httpx2.Request) -> None:
        allowed = request.extensions["timeout"]["read"]
        clock = _Clock(None if allowed is None else time.monotonic() + allowed, silence_seconds)
        request.extensions["trace"] = _bound_reads
        _clock.set(clock)

    return start


def _bound_reads(event: str, details: Mapping[str, Any]) -> None:
    if not event.endswith(_OPENED):
        return
    stream = details["return_value"]
    read = stream.read

    def read_in_time(max_bytes: int, timeout: float | None = None) -> bytes:
        clock = _clock.get()
        received: bytes = read(max_bytes, timeout=timeout if clock is None else clock.next_timeout(timeout))
        return received

    stream.read = read_in_time


def watch_body(max_bytes: int) -> Callable[[httpx2.Response], None]:
    """Response hook: reading the body past the deadline raises ``httpx2.ReadTimeout``.

    One of more than ``max_bytes`` (a stream of events: ``MAX_STREAM_BYTES``), unpacked, raises
    ``UnboundedAnswerError``.
    """

    def watch(response: httpx2.Response) -> None:
        named = response.headers.pop("content-encoding", "").lower().split(",")
        encoding = ",".join(one for one in map(str.strip, named) if one not in _PLAIN)
        if encoding not in _READABLE:
            raise UnboundedAnswerError("it is compressed, although the request forbids that, and not as gzip")
        is_stream = "event-stream" in response.headers.get("content-type", "")
        most = max(max_bytes, MAX_STREAM_BYTES) if is_stream else max_bytes
        if isinstance(response.stream, httpx2.SyncByteStream):
            response.stream = _BoundedBody(response.stream, _clock.get(), most, encoding, is_stream)

    return watch


class _BoundedBody(httpx2.SyncByteStream):
    def __init__(
        self,
        body: httpx2.SyncByteStream,
        clock: _Clock | None,
        max_bytes: int,
        encoding: str,
        is_stream: bool,
    ) -> None:
        self._body = body
        self._clock = clock
        self._max_bytes = max_bytes
        self._encoding = encoding
        self._is_stream = is_stream

    def __iter__(self) -> Iterator[bytes]:
        left = self._max_bytes
        pieces = self._unpacked(self._in_time())
        try:
            for piece in until_repetition(pieces) if self._is_stream else pieces:
                left -= len(piece)
                if left < 0:
                    raise UnboundedAnswerError(f"it is larger than {self._max_bytes:,} bytes")
                yield piece
        except EndlessAnswerError:
            if not self._is_stream:
                raise
            yield ENDED

    def _in_time(self) -> Iterator[bytes]:
        clock = self._clock or _Clock(None, 0)
        try:
            for chunk in self._body:
                clock.has_begun = True
                yield chunk
        except httpx2.ReadTimeout:
            if clock.is_over():
                raise clock.at_end() from None
            raise
        except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:
            is_closed = isinstance(error, httpx2.ReadError) or "peer closed" in str(error)
            if not (clock.has_begun and is_closed):  # else its reader sees whether that was all
                raise

    def _unpacked(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Unpacks a body that looks packed, whether its headers say so or not."""
        first = b""
        while len(first) < _MARK_BYTES and (more := next(chunks, b"")):
            first += more
        if first.startswith(_MARKS):
            window = _ANY_WINDOW
        elif self._encoding in _PLAIN or first[:1] in _BEGINNINGS:
            yield first
            yield from chunks
            return
        else:
            window = _BARE_WINDOW
        try:
            yield from _decompress(chain((first,), chunks), window)
        except zlib.error:
            raise UnboundedAnswerError("it says that it is compressed, and is not") from None

    def close(self) -> None:
        self._body.close()


def _decompress(chunks: Iterable[bytes], window: int) -> Iterator[bytes]:
    unpacking = zlib.decompressobj(window)
    for chunk in chunks:
        left = chunk
        while left:
            yield unpacking.decompress(left, _PIECE_BYTES)
            left = unpacking.unconsumed_tail or unpacking.unused_data
            if unpacking.eof:
                unpacking = zlib.decompressobj(window)
