"""The tools of agents by the Model Context Protocol, with the keys of the service."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp

from strandline.producers.blocks.resolve import declare_blocks, default_blocks, owner_wide
from strandline.producers.memory import new_session_id
from strandline.producers.tools.definitions import Offer
from strandline.schemas.settings import Settings
from strandline.schemas.wire.base import USER_HEADER
from strandline.service.access import Access
from strandline.service.gate.heads import is_loopback
from strandline.service.gate.problems import NOT_FOUND, REFUSED, ProblemError, invalid
from strandline.service.gate.sending import Kept
from strandline.service.gate.web_pages import names_in
from strandline.service.route import Call, Router

router = Router("mcp")

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_BLOCKS = declare_blocks(owner_wide(default_blocks()))


@router("POST /mcp/", include_in_schema=False)  # as many clients are configured
@router("POST /mcp", include_in_schema=False)
@Access("read", "others", ("messages", "facts", "summaries", "names"), takes_user=True, idempotent="refused")
async def call_tools(call: Call) -> ASGIApp:
    """Answer an MCP request about the memory of the key's user; every request stands alone.

    A key without the scope `facts` is offered the tools that change nothing.
    """
    check_asker(call.request.headers, call.service.settings)
    if call.caller.user_id is None:
        raise invalid(f"/header/{USER_HEADER}", "It is missing: the tools work on a user's memory.")
    # A session that nothing is put to: facts, and the messages of all the user's sessions.
    memory = call.service.records.begin(call.caller.session(new_session_id()), blocks=_BLOCKS)
    read_only = "facts" not in call.caller.scopes
    if call.service.tools is None:
        raise ProblemError(NOT_FOUND)
    request, kept = call.request, Kept()
    offer = Offer(memory.acall_tool, read_only=read_only)
    await call.service.tools.answer(offer, request.scope, request.receive, kept)
    return kept.respond


def check_asker(headers: Mapping[str, str], settings: Settings) -> None:
    """Refuse web pages and host names that were not allowed.

    A page could have its own name lead to loopback (DNS rebinding); its requests then bear that name.
    """
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in names_in(settings.service_mcp_origins):
        raise ProblemError(REFUSED)
    allowed = names_in(settings.service_mcp_hosts)
    if not allowed and is_loopback(settings.service_host):
        allowed = _LOOPBACK_NAMES
    name = headers.get("host", "").lower()
    if allowed and name not in allowed and _without_port(name) not in allowed:
        raise ProblemError(REFUSED)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
