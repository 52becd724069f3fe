"""The tools of agents over HTTP: who may ask, and handing a request on to what speaks the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import ip_address
from typing import Protocol

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from strandline.producers.tools.offering import Offer
from strandline.service.gate.problems import NOT_FOUND, REFUSED, ProblemError
from strandline.service.gate.sending import Kept

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

    async def answer(self, offer: Offer, request: Request) -> ASGIApp:
        """The SDK's answer to a request.

        Raises:
            ProblemError: the extra is not installed.
        """
        if self._tools is None:
            raise ProblemError(NOT_FOUND)
        kept = Kept()
        await self._tools.answer(offer, request.scope, request.receive, kept)
        return kept.respond


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
