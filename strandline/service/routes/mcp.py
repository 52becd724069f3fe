"""The tools of agents by the Model Context Protocol, with the keys of the service."""

from __future__ import annotations

from starlette.types import ASGIApp

from strandline.producers.blocks.resolve import declare_blocks, default_blocks, owner_wide
from strandline.producers.memory import new_session_id
from strandline.producers.tools.offering import Offer
from strandline.schemas.wire.base import USER_HEADER
from strandline.service.access import Access
from strandline.service.gate.mcp import check_asker
from strandline.service.gate.problems import invalid
from strandline.service.route import Call, Router

router = Router("mcp")

_BLOCKS = declare_blocks(owner_wide(default_blocks()))


@router("POST /mcp", include_in_schema=False)
@Access("read", "others", ("messages", "facts", "summaries", "names"), takes_user=True, idempotent="refused")
async def call_tools(call: Call) -> ASGIApp:
    """Answer an MCP request about the memory of the key's user; every request stands alone.

    A key without the scope `facts` is offered the tools that change nothing.
    """
    settings = call.service.settings
    check_asker(
        call.request.headers.get("host"),
        call.request.headers.get("origin"),
        listens_on=settings.service_host,
        hosts=settings.service_mcp_hosts,
        origins=settings.service_mcp_origins,
    )
    if call.caller.user_id is None:
        raise invalid(f"/header/{USER_HEADER}", "It is missing: the tools work on a user's memory.")
    # A session that nothing is put to: facts, and the messages of all the user's sessions.
    memory = call.service.records.begin(call.caller.session(new_session_id()), blocks=_BLOCKS)
    read_only = "facts" not in call.caller.scopes
    return await call.service.mcp.answer(Offer(memory.acall_tool, read_only=read_only), call.request)
