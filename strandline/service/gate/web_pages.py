"""Web pages of other origins (CORS): which may ask the service, and the headers that tell their browser so.

A key is sent in a header, never as a cookie, so no answer allows credentials.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Message, Scope, Send

from strandline.schemas.settings import Settings
from strandline.schemas.wire.base import (
    CAUGHT_UP_HEADER,
    COVERED_HEADER,
    IDEMPOTENCY_HEADER,
    REPLAYED_HEADER,
    USER_HEADER,
)

ANY = "*"
SENT = (
    "Accept", "Authorization", "Content-Type", IDEMPOTENCY_HEADER, "If-Match", "If-None-Match",
    "Last-Event-ID", "Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id", "Prefer",
    USER_HEADER,
)  # fmt: skip
TOLD = ("ETag", "Location", "Retry-After", CAUGHT_UP_HEADER, COVERED_HEADER, REPLAYED_HEADER)
PREFLIGHT_SECONDS = 600


def names_in(names: str) -> frozenset[str]:
    """The comma-separated names of a setting, in lower case."""
    return frozenset(name.strip().lower().rstrip("/") for name in names.split(",") if name.strip())


@dataclass(frozen=True, slots=True)
class WebPages:
    """The origins of pages that may ask the service, and of pages that may ask ``/mcp``."""

    of_all: frozenset[str]
    of_mcp: frozenset[str]

    @classmethod
    def from_settings(cls, settings: Settings) -> WebPages:
        return cls(names_in(settings.service_web_origins), names_in(settings.service_mcp_origins))

    def page_of(self, scope: Scope, path: str) -> str | None:
        """The value of ``Access-Control-Allow-Origin`` for a request; None: no header."""
        if not (self.of_all or self.of_mcp):
            return None
        origins = self.of_mcp if path.rstrip("/") == "/mcp" else self.of_all
        origin = dict(scope["headers"]).get(b"origin", b"").decode("latin-1")
        if origin and ANY in origins:
            return ANY
        return origin if origin.lower() in origins else None


def preflight(methods: Iterable[str]) -> Response:
    """The answer to a preflight request: methods, headers, seconds."""
    headers = {
        "Access-Control-Allow-Methods": ", ".join(sorted(methods)),
        "Access-Control-Allow-Headers": ", ".join(SENT),
        "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
    }
    return Response(None, 204, headers=headers)


def is_preflight(scope: Scope) -> bool:
    return scope["method"] == "OPTIONS" and b"access-control-request-method" in dict(scope["headers"])


def telling(send: Send, origin: str) -> Send:
    """A ``send`` that has the browser give the response to the page of an origin."""
    more = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", ", ".join(TOLD).encode()),
        (b"vary", b"Origin"),
    ]

    async def send_told(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return send_told
