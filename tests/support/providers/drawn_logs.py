"""Logs as frameworks make them, drawn: calls, parallel, lost, late and doubled results, notes between."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from strandline.schemas.values.message import Message

# CI affords a few hundred; STRANDLINE_TEST_DRAWN_LOGS=20000 for a campaign by hand.
LOGS = int(os.environ.get("STRANDLINE_TEST_DRAWN_LOGS", "300"))
many_logs = settings(max_examples=LOGS, deadline=None)

Form = Callable[[str, Sequence[str], str], Message]
Step = tuple[str, tuple[str, ...]]
IDS = ("a", "b", "call_1", "call 2/<x>", "c" * 60)


def openai(kind: str, ids: Sequence[str], text: str) -> Message:
    if kind == "call":
        calls = [
            {"id": one, "type": "function", "function": {"name": "look up", "arguments": {"page": 1}}}
            for one in ids
        ]
        return Message("assistant", text or None, tool_calls=calls)
    return Message("tool", text, tool_call_id=ids[0])


def anthropic(kind: str, ids: Sequence[str], text: str) -> Message:
    own: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    if kind == "call":
        thought: dict[str, Any] = {"type": "thinking", "thinking": "hm", "signature": "s"}
        uses = [{"type": "tool_use", "id": _id(one), "name": "look_up", "input": {}} for one in ids]
        return Message("assistant", [*own, thought, *uses])
    results = [{"type": "tool_result", "tool_use_id": _id(one), "content": "r"} for one in ids]
    return Message("user", [*results, *own])


def gemini(kind: str, ids: Sequence[str], text: str) -> Message:
    """Without ids: of Gemini's calls the names count."""
    if kind == "call":
        calls = [{"type": "functionCall", "functionCall": {"name": _id(one), "args": {}}} for one in ids]
        return Message("assistant", calls)
    return Message(
        "user",
        [
            {"type": "functionResponse", "functionResponse": {"name": _id(one), "response": {"output": "r"}}}
            for one in ids
        ],
    )


def responses(kind: str, ids: Sequence[str], text: str) -> Message:
    if kind == "call":
        items = [
            item
            for one in ids
            for item in (
                {"type": "reasoning", "id": f"rs_{one}", "summary": []},
                {"type": "function_call", "id": f"fc_{one}", "call_id": one, "name": "f", "arguments": "{}"},
            )
        ]
        return Message("assistant", items)
    return Message("user", [{"type": "function_call_output", "call_id": one, "output": "r"} for one in ids])


def ai_sdk(kind: str, ids: Sequence[str], text: str) -> Message:
    if kind == "call":
        calls = [{"type": "tool-call", "toolCallId": one, "toolName": "f", "input": {}} for one in ids]
        return Message("assistant", calls)
    results = [
        {"type": "tool-result", "toolCallId": one, "toolName": "f", "output": {"type": "text", "value": "r"}}
        for one in ids
    ]
    return Message("tool", results, tool_call_id=ids[0])


def server(kind: str, ids: Sequence[str], text: str) -> Message:
    """Anthropic's own tools: the result is in the same answer, or, behind a pause, in the next."""
    own: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    if kind == "call":
        uses = [{"type": "server_tool_use", "id": _id(one), "name": "web_search", "input": {}} for one in ids]
        return Message("assistant", [*own, *uses])
    results = [{"type": "web_search_tool_result", "tool_use_id": _id(one), "content": []} for one in ids]
    return Message("assistant", [*results, *own])


def approvals(kind: str, ids: Sequence[str], text: str) -> Message:
    if kind == "call":
        asked = {"type": "mcp_approval_request", "name": "f", "arguments": "{}", "server_label": "s"}
        return Message("assistant", [{**asked, "id": one} for one in ids])
    said = {"type": "mcp_approval_response", "approve": True}
    return Message("user", [{**said, "approval_request_id": one} for one in ids])


FORMS: dict[str, Form] = {
    one.__name__: one for one in (openai, anthropic, gemini, responses, ai_sdk, server, approvals)
}


# No provider takes all of these as they are; none of them is a call or a result.
ODD = (
    Message("user", ""),
    Message("user", []),
    Message("assistant", ""),
    Message("assistant", None, extra={"refusal": "no"}),
    Message("assistant", [{"type": "redacted_thinking", "data": "x"}]),
    Message("assistant", [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]),
    Message("developer", [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]),
    Message("user", [{"type": "image_url", "image_url": "data:image/png;base64,QUJD"}], name="Ana <x>"),
    Message("user", [{"type": "tool_use", "id": "a", "name": "look_up", "input": {}}]),
    Message(
        "assistant", None, tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "c", "input": "i"}}]
    ),
)


def _id(one: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in one)


STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.sampled_from(("user", "user", "answer", "system", "unknown", "odd")), st.just(())),
    st.tuples(
        st.sampled_from(("call", "call", "result", "result", "answered")),
        st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True).map(tuple),
    ),
)


def messages_of(step: Step, form: Form, number: int) -> list[Message]:
    """The messages of a step, which name it by its number."""
    kind, ids = step
    text = f"m{number}"
    match kind:
        case "user" | "system":
            return [Message("user" if kind == "user" else "system", text)]
        case "answer":
            return [Message("assistant", text)]
        case "unknown":
            return [Message("user", [{"type": "hologram", "data": text}, {"type": "text", "text": text}])]
        case "odd":
            return [ODD[number % len(ODD)]]
        case "answered":
            return [form("call", ids, text), *_results(form, ids, "")]
        case "call":
            return [form("call", ids, text if number % 2 else "")]
        case _:
            return _results(form, ids, text)


def _results(form: Form, ids: Sequence[str], text: str) -> list[Message]:
    if form is openai:
        return [form("result", [one], text or "r") for one in ids]
    return [form("result", ids, text)]
