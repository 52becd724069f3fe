"""What each adapter hands its framework of a read, as that framework's calls and results stand in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from strandline import Message
from strandline.adapters.agents import items
from strandline.adapters.converter import in_chat_form
from strandline.adapters.langchain import messages as langchain
from strandline.adapters.llamaindex import messages as llamaindex
from strandline.adapters.pydantic_ai import messages_of, model_messages_of
from strandline.schemas.values.forms.tool_calls import ToolPart, tool_parts
from tests.support.agents.faulty.driving import pair_problems

# Each to its framework's messages and back, so that all are compared in one form.
ADAPTERS: Mapping[str, Callable[[Sequence[Message]], Iterable[Message]]] = {
    "agents": lambda read: [items.message_of(item) for one in read for item in items.items_of(one)],
    "langchain": lambda read: [
        langchain.message_of(langchain.langchain_message_of(one))
        for one in in_chat_form(read, langchain.LIBRARY)
    ],
    "llamaindex": lambda read: map(llamaindex.message_of, llamaindex.chat_messages_of(read)),
    "pydantic_ai": lambda read: [one for theirs in model_messages_of(read) for one in messages_of(theirs)],
}


def adapted_problems(read: Sequence[Message]) -> list[str]:
    """Calls without results and results without calls; the last call may wait."""
    return [f"{name}: {problem}" for name, adapt in ADAPTERS.items() for problem in _problems(adapt(read))]


def _problems(adapted: Iterable[Message]) -> list[str]:
    chat = _joined([one.to_dict() for one in adapted])
    hidden = [f"{tool} is in a part" for one in chat for tool in _hidden(one)]
    return hidden + [problem for problem in pair_problems(chat) if not problem.startswith("the end")]


def _hidden(one: Mapping[str, Any]) -> Iterator[ToolPart]:
    known = {call["id"] for call in one.get("tool_calls") or ()}
    for _, tool in tool_parts(one["content"]):
        if tool and (tool.is_result or (one["role"] == "assistant" and tool.id not in known)):
            yield tool


def _joined(chat: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The calls of consecutive messages as one: the Agents SDK has an item for each."""
    joined: list[dict[str, Any]] = []
    for one in chat:
        if joined and joined[-1].get("tool_calls") and one.get("tool_calls"):
            joined[-1]["tool_calls"] += one["tool_calls"]
        else:
            joined.append(dict(one))
    return joined
