"""The tools that a session's memory offers to an agent, and their calls, sync and async."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from strandline.producers.arguments import check_flag
from strandline.producers.execution import async_method, sync_method
from strandline.producers.memory_parts.search import MemorySearch
from strandline.producers.reading.request import ReadRequest
from strandline.producers.tools.calling import ToolScope, call_tool
from strandline.producers.tools.definitions import ToolForm, openai_tools
from strandline.producers.tools.results import ToolResult
from strandline.schemas.postgres.operations import Operation


class MemoryTools(MemorySearch):
    """The tool methods of ``SessionMemory``."""

    def tools(self, *, form: ToolForm = "chat", read_only: bool = False) -> list[dict[str, Any]]:
        """The memory as tools for an agent: dicts for ``tools=`` of OpenAI's API; does no I/O.

        ``search_memories``, ``add_memory``, ``update_memory``, ``delete_memory`` and ``get_context`` take
        fewer than 1,000 tokens in all.  None of them takes a user: they work on this memory's owner.

        Args:
            form: ``"chat"`` for Chat Completions, ``"responses"`` for the Responses API.
            read_only: offer only the tools that change nothing; pass it to ``call_tool`` as well.

        Raises:
            ConfigurationError: an argument is not one of these.
        """
        return openai_tools(form, read_only=check_flag("read_only", read_only))

    @sync_method
    def call_tool(
        self, name: str, arguments: str | Mapping[str, Any] | None = None, *, read_only: bool = False
    ) -> Operation[dict[str, Any]]:
        """Carry out a model's call of one of ``tools()``; return what ``json.dumps`` takes, for the model.

        A call that cannot be carried out (an unknown tool or id, wrong arguments, broken JSON) raises
        nothing: the result then has ``error``, one of ``unknown_tool``, ``invalid_arguments``, ``not_found``
        and ``read_only``, and ``message``, a sentence for the model.  Changes are recorded with the actor
        ``agent``.

        Args:
            arguments: the JSON text of the model's call, or a mapping.
            read_only: refuse the tools that change something.  A namespace can refuse them to all its
                memories (`strandline limits set NAMESPACE --agents-read-only`).

        Raises:
            ConfigurationError: ``read_only`` is neither True nor False.
            OwnerError: the session belongs to another owner.
            RedactionError: a redaction hook failed, or took too long; nothing was stored.
            UnknownPipelineError: no worker has ever run, so there is nowhere to keep facts.
            DatabaseUnavailableError: Postgres cannot be reached.
        """
        scope = ToolScope(
            self._identity,
            self._resources.embed_query,
            self._read_for_tool,
            self._recorder,
            self._redaction,
        )
        return _as_json(call_tool(scope, name, arguments, read_only=check_flag("read_only", read_only)))

    acall_tool = async_method(call_tool)

    def _read_for_tool(self, question: str, token_limit: int) -> ReadRequest:
        request = self._read_request(question, None, 0, None, None, None)
        limit = min(token_limit, request.token_limit)
        # The rest is for what matches the question.
        return replace(request, token_limit=limit, within_own=False, latest_tokens=limit // 4)

    def _read_request(
        self,
        input: object | None,
        messages: None,
        initial_token_count: int,
        wait_for: None,
        timeout: None,
        connection: None,
    ) -> ReadRequest:
        raise NotImplementedError


def _as_json(calling: Operation[ToolResult]) -> Operation[dict[str, Any]]:
    return (yield from calling).as_json()
