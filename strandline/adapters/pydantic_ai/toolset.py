"""A toolset of Pydantic AI: the five tools of a memory, which carries their calls out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

# The memory checks arguments itself, and explains refusals to the model.
_ANY_ARGUMENTS = SchemaValidator(core_schema.any_schema())


@runtime_checkable
class MemoryTools(Protocol):
    """Offers tools and carries out their calls: a ``Memory``."""

    def tools(self, *, read_only: bool = False) -> Sequence[Mapping[str, Any]]: ...

    async def acall_tool(
        self, name: str, arguments: str | Mapping[str, Any] | None = None, *, read_only: bool = False
    ) -> Mapping[str, Any]: ...


ToolsOf = Callable[[RunContext[Any]], MemoryTools]


class StrandlineToolset(AbstractToolset[Any]):
    """The tools of a memory for an agent: ``search_memories``, ``add_memory``, ``update_memory``,
    ``delete_memory`` and ``get_context``.

    No tool takes a user: whose memory it is follows from the memory alone.  A call that cannot be carried out
    returns a result that says why, and does not end the run.

    Args:
        memory: the memory; or a function of the run's context that returns it, for an agent that serves
            several users.
        read_only: offer and carry out only the tools that change nothing.
        id: the toolset's name among those of the agent.
    """

    def __init__(
        self, memory: MemoryTools | ToolsOf, *, read_only: bool = False, id: str | None = None
    ) -> None:
        self._memory = memory
        self._read_only = read_only
        self._id = id

    @property
    def id(self) -> str | None:
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools, as the memory describes them."""
        functions = [tool["function"] for tool in self._of(ctx).tools(read_only=self._read_only)]
        return {function["name"]: self._tool(function) for function in functions}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Carry a call out; the result is what ``json.dumps`` takes."""
        return await self._of(ctx).acall_tool(name, tool_args, read_only=self._read_only)

    def _of(self, ctx: RunContext[Any]) -> MemoryTools:
        return self._memory if isinstance(self._memory, MemoryTools) else self._memory(ctx)

    def _tool(self, function: Mapping[str, Any]) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=function["name"],
            description=function.get("description"),
            parameters_json_schema=dict(function["parameters"]),
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=_ANY_ARGUMENTS)
