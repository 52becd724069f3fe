"""The tools over streamable HTTP: every request stands alone, and brings with it what it is offered.

No session is kept: whoever sends a request has what its own key opens, and nothing of an earlier request's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from strandline.producers.tools.mcp_errors import UnquotedErrors
from strandline.producers.tools.mcp_server import Context, server_of
from strandline.producers.tools.offering import Offer

# Of a request's ASGI scope: what it is offered.
OFFER = "strandline.offer"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HttpTools:
    """Answers MCP requests over HTTP, within ``run``; for one event loop."""

    def __init__(self) -> None:
        self._manager = StreamableHTTPSessionManager(
            server_of(_offer_of), json_response=True, stateless=True, security_settings=None
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Answer requests until the end of this."""
        async with self._manager.run():
            yield

    async def answer(self, offer: Offer, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whose body has been bounded, with what it is offered."""
        await self._manager.handle_request({**scope, OFFER: offer}, receive, UnquotedErrors(send))


def _offer_of(context: Context) -> Offer:
    request: Any = context.request
    offer: Offer = request.scope[OFFER]
    return offer
