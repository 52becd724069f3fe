"""The tools over streamable HTTP: every request stands alone, and brings its offer.

No session is kept: a request has only its own key's access.  Errors of the protocol are sentences of our own:
the SDK's quote the request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from strandline.producers.tools.definitions import Offer
from strandline.producers.tools.mcp_server import Context, server_of

# Of a request's ASGI scope: its offer.
OFFER = "strandline.offer"

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


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
        """Answer one request, whose body has been bounded, with its offer."""
        await self._manager.handle_request({**scope, OFFER: offer}, receive, UnquotedErrors(send))


def _offer_of(context: Context) -> Offer:
    request: Any = context.request
    offer: Offer = request.scope[OFFER]
    return offer


# By the codes of JSON-RPC.
_SENTENCES = {
    -32700: "The body is not JSON.",
    -32600: "It is not a request of the protocol, or a header does not allow an answer.",
    -32601: "The server does not have this method.",
    -32602: "The parameters, or the version of the protocol, cannot be used.",
}
_OTHER = "The request could not be answered."
# The SDK's own data among the particulars: the versions of the protocol it speaks.
_OWN_DATA = "supported"


class UnquotedErrors:
    """Sends an answer on when it is whole, without what its error quotes."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        start = self._start
        if start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if message.get("more_body", False):
            return
        body = without_quotes(bytes(self._body))
        headers = [
            (name, str(len(body)).encode() if name.lower() == b"content-length" else value)
            for name, value in start.get("headers", ())
        ]
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def without_quotes(body: bytes) -> bytes:
    """An answer of JSON-RPC, with our sentence for an error; otherwise the body as it is."""
    if b'"error"' not in body:
        return body
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(answer, dict) or not isinstance(error := answer.get("error"), dict):
        return body
    fields: dict[str, Any] = {
        "code": error.get("code"),
        "message": _SENTENCES.get(error.get("code", 0), _OTHER),
    }
    data = error.get("data")
    if isinstance(data, dict) and _OWN_DATA in data:
        fields["data"] = {_OWN_DATA: data[_OWN_DATA]}
    return json.dumps({**answer, "error": fields}, separators=(",", ":")).encode()
