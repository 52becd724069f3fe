"""Tool calls and their results in content parts, in whichever provider's form they are written.

Anthropic and Bedrock (``tool_use``, ``tool_result``), Gemini (``functionCall``, ``functionResponse``),
OpenAI's Responses API (items with a ``call_id``; results end in ``_output``), the AI SDK (``tool-call``,
``tool-result``).  A provider's own tools (``server_tool_use``, ``web_search_call``) make no calls to answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Types of parts, in lower case and without hyphens and underscores.
_CALLS = frozenset({"tooluse", "toolcall", "functioncall"})
_RESULTS = frozenset({"toolresult", "functionresponse", "localshellcalloutput"})
# Gemini and Bedrock put the call into a field of this name.
_WRAPPERS = (
    "functionCall", "function_call", "functionResponse", "function_response", "toolUse", "toolResult",
)  # fmt: skip
# Anthropic, Bedrock and Gemini want a user's message first; the others do not have these.
_USER_FIRST = frozenset({"tooluse", "toolresult", "functionresponse"})
# Items of the Responses API have an ``id`` as well, which is not the call's.
_IDS = ("tool_use_id", "toolUseId", "toolCallId", "tool_call_id", "call_id", "id")
_NAMES = ("name", "toolName")
_INPUTS = ("input", "args", "arguments", "action", "operation")
_OUTPUTS = ("output", "result", "content", "response")
_THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})

Parts = Sequence[Mapping[str, Any]]
Content = str | Parts | None


@dataclass(frozen=True, slots=True)
class ToolPart:
    """A call or a result; ``value`` is the call's input or the result's output, as it is written."""

    id: str
    is_result: bool
    name: str
    value: Any
    is_user_first: bool


def tool_parts(content: Content) -> Iterator[tuple[Mapping[str, Any], ToolPart | None]]:
    """Each part of a content, and the call or result that it is; a text has none.

    Gemini may give a call no id: then its name counts, with a number from the second in a message on.
    """
    if content is None or isinstance(content, str):
        return
    unnamed: Counter[tuple[str, bool]] = Counter()
    for part in content:
        wrapper = _wrapper(part)
        body: Mapping[str, Any] = part if wrapper is None else part[wrapper]
        kind = str(wrapper or part.get("type")).replace("_", "").replace("-", "").lower()
        is_item = isinstance(body.get("call_id"), str)
        is_result = kind in _RESULTS or (is_item and kind.endswith("output"))
        if not (is_result or is_item or kind in _CALLS):
            yield part, None
            continue
        name = str(_first(body, _NAMES) or "")
        call_id = _first(body, _IDS)
        if not (call_id or name):
            yield part, None
            continue
        if not isinstance(call_id, str) or not call_id:
            unnamed[name, is_result] += 1
            number = unnamed[name, is_result]
            call_id = name if number == 1 else f"{name}#{number}"
        value = _first(body, _OUTPUTS if is_result else _INPUTS)
        is_user_first = kind in _USER_FIRST or wrapper is not None
        yield part, ToolPart(call_id, is_result, name, value, is_user_first)


def with_call_id(part: Mapping[str, Any], call_id: str) -> Mapping[str, Any]:
    """A part of ``tool_parts`` with another id of its call."""
    wrapper = _wrapper(part)
    if wrapper is not None:
        return {**part, wrapper: with_call_id(part[wrapper], call_id)}
    key = next((key for key in _IDS if part.get(key) is not None), "id")
    return {**part, key: call_id}


def _wrapper(part: Mapping[str, Any]) -> str | None:
    return next((key for key in _WRAPPERS if isinstance(part.get(key), Mapping)), None)


def is_thinking(part: Mapping[str, Any]) -> bool:
    """Whether a part is a model's thought, which belongs to the next part."""
    return part.get("type") in _THINKING


def ids_in(content: Content, *, results: bool) -> list[str]:
    """The ids of the calls, or of the results, each once, without calls that the same parts answer."""
    if content is None or isinstance(content, str):
        return []  # as most are
    ids = dict.fromkeys((part.id, part.is_result) for _, part in tool_parts(content) if part is not None)
    return [one for one, is_result in ids if is_result is results and (one, not results) not in ids]


def _first(body: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((body[key] for key in keys if body.get(key) is not None), None)
