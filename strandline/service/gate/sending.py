"""A response on its way: whether it has begun, and a bound on how long a client lets it wait."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from strandline.service.gate.bodies import ClientGone


class Sending:
    """An ASGI ``send`` that bounds the wait for a slow client.

    Args:
        send: of the server.
        seconds: how long one message may wait for the client.
        closes: have the client close its connection after this response.
        private: it concerns a user's memory, or holds a key: no proxy may store it.
    """

    __slots__ = ("_private", "_seconds", "_send", "closes", "has_begun")

    def __init__(self, send: Send, *, seconds: float, closes: bool, private: bool = True) -> None:
        self._send = send
        self._seconds = seconds
        self._private = private
        self.closes = closes
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        """Send a message; raises ClientGone if the client does not take earlier ones."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            message = {**message, "headers": [*message.get("headers", ()), *self._more(message)]}
        sending: Any = self._send(message)
        steps = sending.__await__()
        try:
            waits_for = next(steps)
        except StopIteration:
            return  # as nearly always: the server has taken it, and no clock was needed
        try:
            async with asyncio.timeout(self._seconds):
                await _Rest(steps, waits_for)
        except TimeoutError:
            raise ClientGone from None

    def _more(self, message: Message) -> Iterator[tuple[bytes, bytes]]:
        """The response's additional headers."""
        if self.closes:
            yield b"connection", b"close"
        names = {name.lower() for name, _ in message.get("headers", ())}
        if self._private and b"cache-control" not in names:
            # A client may keep a response with an ETag, and ask whether it is current.
            yield b"cache-control", b"private, no-cache" if b"etag" in names else b"no-store"


class Kept:
    """An ASGI ``send`` that keeps a response until it may be sent."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self._messages.append(message)

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        for message in self._messages:
            await send(message)


class _Rest:
    """The rest of an awaitable whose first step was taken already."""

    __slots__ = ("_first", "_steps")

    def __init__(self, steps: Generator[Any, Any, Any], first: Any) -> None:
        self._steps = steps
        self._first = first

    def __await__(self) -> Generator[Any, Any, None]:
        waits_for = self._first
        try:
            while True:
                try:
                    value = yield waits_for
                except BaseException as error:  # noqa: BLE001  # handed on to where it belongs
                    waits_for = self._steps.throw(error)
                else:
                    waits_for = self._steps.send(value)
        except StopIteration:
            return
