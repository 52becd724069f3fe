"""The tools as a server of the Model Context Protocol, by its official SDK (the extra ``mcp``).

The transport is the caller's.  Tools, their annotations and their results are those of the one definition.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from strandline.producers.tools.definitions import CallTool, Offer, ToolDefinition, offered_tools
from strandline.producers.tools.results import RESULTS, short_schema
from strandline.schemas.errors import StrandlineError
from strandline.schemas.version import VERSION

logger = logging.getLogger("strandline.mcp")

INSTRUCTIONS = (
    "The long-term memory of one user. Ask get_context or search_memories before answering what earlier"
    " conversations may tell; add_memory what later ones need."
)

Context = ServerRequestContext[Any, Any]


def make_server(call_tool: CallTool, *, read_only: bool) -> Server[Any]:
    """A server of these tools for one client, which answers each call by ``call_tool``.

    Args:
        read_only: offer the tools that change nothing, and refuse the others.
    """
    offer = Offer(call_tool, read_only)
    return server_of(lambda _context: offer)


def server_of(find_offer: Callable[[Context], Offer]) -> Server[Any]:
    """A server of these tools for many clients; ``find_offer`` finds a request's offer."""
    tools = {
        read_only: [_tool(tool) for tool in offered_tools(read_only=read_only)] for read_only in (True, False)
    }

    async def list_tools(
        context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools[find_offer(context).read_only])

    async def answer_call(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        offer = find_offer(context)
        try:
            result = await offer.call_tool(params.name, params.arguments, read_only=offer.read_only)
        except StrandlineError as error:
            logger.warning(
                "a tool could not be called", extra={"action": "tool_failed", "reason": type(error).__name__}
            )
            return types.CallToolResult(content=[_text(str(error))], is_error=True)
        return _call_result(result)

    return Server(
        "strandline",
        version=VERSION,
        title="Strandline memory",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=answer_call,
    )


def _tool(tool: ToolDefinition) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.parameters,
        output_schema=short_schema(RESULTS[tool.name]),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.is_read_only,
            destructive_hint=tool.is_destructive,
            idempotent_hint=tool.is_idempotent,
            open_world_hint=False,
        ),
    )


def _call_result(result: Mapping[str, Any]) -> types.CallToolResult:
    """The result as structured content, and as JSON text for clients that show only text.

    An error is text alone: clients hold structured content against the tool's schema.
    """
    is_error = "error" in result
    return types.CallToolResult(
        content=[_text(json.dumps(result, ensure_ascii=False))],
        structured_content=None if is_error else dict(result),
        is_error=is_error,
    )


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)
