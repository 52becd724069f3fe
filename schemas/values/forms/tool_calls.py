"""Tool calls and their results in content parts, in whichever provider's form they are written.

Anthropic and Bedrock (``tool_use``, ``tool_result``), Gemini (``functionCall``, ``functionResponse``),
OpenAI's Responses API (items with a ``call_id``; results end in ``_output``), the AI SDK (``tool-call``,
``tool-result``).  A provider's own tools (``server_tool_use``, ``web_search_call``) make no calls to answer,
but each of their acts, and each approval, has two halves (``own_halves``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# Types of parts, in lower case and without hyphens and underscores.
_CALLS = frozenset({"tooluse", "toolcall", "functioncall"})
_RESULTS = frozenset({"toolresult", "functionresponse", "localshellcalloutput"})
# The halves of pairs that the provider makes, or that ask a person and answer.
_OWN_CALLS = frozenset(
    {"servertooluse", "servertoolcall", "mcptooluse", "mcpapprovalrequest", "toolapprovalrequest", "program"}
)
_OWN_RESULTS = ("toolresult", "approvalresponse", "programoutput")
_OWN_IDS = ("approval_request_id", "approvalId", "tool_use_id", "tool_call_id", "call_id", "id")
# A program of the Responses API: the calls that it makes stand between its halves.
_PROGRAM = ("program", "programoutput")
# Gemini and Bedrock put the call into a field of this name.
_WRAPPERS = (
    "functionCall", "function_call", "functionResponse", "function_response", "toolUse", "toolResult",
)  # fmt: skip
_WRAPPER_NAMES = frozenset(_WRAPPERS)
# Anthropic, Bedrock and Gemini want a user's message first; the others do not have these.
_USER_FIRST = frozenset({"tooluse", "toolresult", "functionresponse"})
# Items of the Responses API have an ``id`` as well, which is not the call's.
_IDS = ("tool_use_id", "toolUseId", "toolCallId", "tool_call_id", "call_id", "id")
_NAMES = ("name", "toolName")
_INPUTS = ("input", "args", "arguments", "action", "actions", "operation")
_OUTPUTS = ("output", "result", "content", "response")
# Identifies a call and its result if the model gives no id.
NO_ID = "no-id"
_THINKING = frozenset(
    "thinking redacted_thinking reasoning reasoning_content reasoningContent redacted-reasoning"
    " reasoning-file text_reasoning".split()
)

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
        kind = _kind(wrapper or part.get("type"))
        is_item = isinstance(body.get("call_id"), str) and kind not in _PROGRAM
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
        if is_result and isinstance(body.get("parts"), list):  # Gemini's, beside the response
            value = [value, *body["parts"]]
        is_user_first = kind in _USER_FIRST or wrapper is not None
        yield part, ToolPart(call_id, is_result, name, value, is_user_first)


@dataclass(frozen=True, slots=True)
class Half:
    """A half of an act of a provider's own tool, or of an approval; ``id`` is in both."""

    id: str
    is_later: bool
    is_approval: bool


def own_halves(content: Content) -> Iterator[tuple[Mapping[str, Any], Half | None]]:
    """Each part of a content, and the half that it is."""
    for part in () if content is None or isinstance(content, str) else content:
        kind = _kind(part.get("type"))
        is_later = kind.endswith(_OWN_RESULTS) and kind not in _RESULTS
        if not is_later and kind not in _OWN_CALLS:
            yield part, None
            continue
        kept = part.get("item")
        body = kept if isinstance(kept, Mapping) else part  # the Agents SDK's adapter keeps items whole
        shared = _first(body, _OWN_IDS)
        half = Half(shared, is_later, "approval" in kind) if isinstance(shared, str) else None
        yield part, half


class Called(NamedTuple):
    """A call, read from ``tool_calls``; ``arguments`` are unchanged, most often JSON text."""

    id: Any
    name: str
    arguments: Any


def read_call(call: Mapping[str, Any]) -> Called:
    """A listed call of whatever origin: of a function, of a custom tool, or with its name in itself."""
    kind = str(call.get("type", "function"))
    body = next((call[key] for key in ("function", kind) if isinstance(call.get(key), Mapping)), call)
    arguments = _first(body, _INPUTS)
    if kind == "custom" and isinstance(arguments, str) and "arguments" not in body:
        arguments = {"input": arguments}
    elif body is not call and body is not call.get("function") and "arguments" not in body:
        arguments = {key: value for key, value in body.items() if key != "name"}
    own_type = "" if kind in ("function", "custom", "tool_call") else kind
    return Called(call.get("id"), str(body.get("name") or own_type), arguments)


def update_form(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message with the call of OpenAI's first form as a listed one, and its result as a tool's."""
    if message["role"] == "function":
        return {"tool_call_id": NO_ID, **message, "role": "tool"}
    function = message.get("function_call")
    if message["role"] != "assistant" or message.get("tool_calls") or not isinstance(function, Mapping):
        return message
    calls = [{"id": NO_ID, "type": "function", "function": function}]
    return {**{key: value for key, value in message.items() if key != "function_call"}, "tool_calls": calls}


def answered_by(part: Mapping[str, Any], call: ToolPart, text: str) -> Mapping[str, Any] | None:
    """A result in the form of a call, a part of ``tool_parts``; None if such results are not text."""
    kind = part.get("type")
    match _wrapper(part):
        case "toolUse":
            body = {"toolUseId": call.id, "content": [{"text": text}], "status": "error"}
            return {"type": "toolResult", "toolResult": body}
        case "functionCall" | "function_call" as wrapper:
            name = "functionResponse" if wrapper == "functionCall" else "function_response"
            call_id = {"id": part[wrapper]["id"]} if part[wrapper].get("id") else {}
            return {"type": name, name: {**call_id, "name": call.name, "response": {"error": text}}}
    match kind:
        case "tool_use":
            return {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": True}
        case "tool-call":
            output = {"type": "error-text", "value": text}
            return {"type": "tool-result", "toolCallId": call.id, "toolName": call.name, "output": output}
        case "function_call" | "custom_tool_call":
            return {"type": f"{kind}_output", "call_id": call.id, "output": text}
    return None


def with_call_id(part: Mapping[str, Any], call_id: str) -> Mapping[str, Any]:
    """A part of ``tool_parts`` with another id of its call."""
    wrapper = _wrapper(part)
    if wrapper is not None:
        return {**part, wrapper: with_call_id(part[wrapper], call_id)}
    key = next((key for key in _IDS if part.get(key) is not None), "id")
    return {**part, key: call_id}


def _wrapper(part: Mapping[str, Any]) -> str | None:
    if _WRAPPER_NAMES.isdisjoint(part):
        return None  # as most parts are
    return next((key for key in _WRAPPERS if isinstance(part.get(key), Mapping)), None)


def _kind(name: object) -> str:
    return str(name).replace("_", "").replace("-", "").lower()


def is_thinking(part: Mapping[str, Any]) -> bool:
    """Whether a part is a model's thought, which belongs to the next part."""
    return part.get("type") in _THINKING or part.get("thought") is True


def ids_in(content: Content, *, results: bool) -> list[str]:
    """The ids of the calls, or of the results, each once, without calls that the same parts answer."""
    if content is None or isinstance(content, str):
        return []  # as most are
    called = [(part.id, part.is_result) for _, part in tool_parts(content) if part is not None]
    return _lone_ids(called, results)


def own_ids(content: Content, *, results: bool) -> list[str]:
    """The same of ``own_halves``."""
    if content is None or isinstance(content, str):
        return []
    halves = [(half.id, half.is_later) for _, half in own_halves(content) if half is not None]
    return _lone_ids(halves, results)


def _lone_ids(halves: Sequence[tuple[str, bool]], results: bool) -> list[str]:
    return [
        one
        for one, is_later in dict.fromkeys(halves)
        if is_later is results and (one, not results) not in halves
    ]


def _first(body: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((body[key] for key in keys if body.get(key) is not None), None)
