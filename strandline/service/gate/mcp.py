"""The tools of agents over HTTP: who may ask, and handing a request on to what speaks the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strandline.producers.tools.offering import Offer
from strandline.service.gate.loopback import is_loopback
from strandline.service.gate.problems import NOT_FOUND, REFUSED, ProblemError

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class ToolTransport(Protocol):
    """``HttpTools``, which this module does not import, since its SDK need not be installed."""

    def run(self) -> AbstractAsyncContextManager[None]: ...

    async def answer(self, offer: Offer, scope: Scope, receive: Receive, send: Send) -> None: ...


MakeTools = Callable[[], ToolTransport]


class McpEndpoint:
    """Answers MCP requests, if the extra ``mcp`` is installed."""

    def __init__(self, make_tools: MakeTools | None) -> None:
        self._make_tools = make_tools
        self._tools: ToolTransport | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Answer requests until the end of this."""
        if self._make_tools is None:
            yield
            return
        tools = self._make_tools()
        async with tools.run():
            self._tools = tools
            try:
                yield
            finally:
                self._tools = None

    def response(self, offer: Offer) -> Response:
        """A response that the SDK makes of the request.

        Raises:
            ProblemError: the extra is not installed.
        """
        if self._tools is None:
            raise ProblemError(NOT_FOUND)
        return _McpResponse(self._tools, offer)


class _McpResponse(Response):
    """Hands the request to the SDK, which sends the response."""

    def __init__(self, tools: ToolTransport, offer: Offer) -> None:
        super().__init__()
        self._tools = tools
        self._offer = offer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._tools.answer(self._offer, scope, receive, send)


def check_asker(host: str | None, origin: str | None, *, listens_on: str, hosts: str, origins: str) -> None:
    """Refuse web pages and host names that were not allowed.

    A page could have its own name lead to loopback (DNS rebinding); its requests then bear that name.

    Args:
        host, origin: the headers of the request.
        listens_on: the address of the service.
        hosts, origins: of the settings, divided by commas.

    Raises:
        ProblemError: it is refused.
    """
    if origin is not None and origin not in _names_in(origins):
        raise ProblemError(REFUSED)
    allowed = _names_in(hosts)
    if not allowed and is_loopback(listens_on):
        allowed = _LOOPBACK_NAMES
    name = (host or "").lower()
    if allowed and name not in allowed and _without_port(name) not in allowed:
        raise ProblemError(REFUSED)


def _names_in(names: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in names.split(",") if name.strip())


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
