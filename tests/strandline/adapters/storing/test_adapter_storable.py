"""What libraries bring is made storable: whatever a value is, the turn is kept, marked, and told once."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from strandline.adapters import storable as module
from strandline.adapters.agents.items import items_of
from strandline.adapters.agents.items import message_of as agents_message
from strandline.adapters.converter import as_said, with_leftovers
from strandline.adapters.langchain.messages import langchain_message_of
from strandline.adapters.langchain.messages import message_of as langchain_message
from strandline.adapters.llamaindex.messages import chat_message_of
from strandline.adapters.llamaindex.messages import message_of as llamaindex_message
from strandline.adapters.pydantic_ai import messages_of, model_messages_of
from strandline.adapters.storable import MARK, Encoder, storable
from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.values.message import Message

LIMITS = PutLimits(1_000_000, 16_384)
SMALL = PutLimits(2_000, 300)


class Color(Enum):
    RED = "red"


class Model(BaseModel):
    day: date


@dataclass
class Row:
    value: object


class Frame:
    def __str__(self) -> str:
        return "a frame"


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


CIRCULAR: list[Any] = []
CIRCULAR += [CIRCULAR, CIRCULAR]

texts = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["\0", "cut \ud83d", "\ude00\ud83d", "\ud83d\ude00"]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary(max_size=10)
    | st.dates()
    | st.decimals()
    | st.uuids()
    | st.sampled_from(
        [
            Color.RED,
            Frame(),
            Broken(),
            Path("/a"),
            Model(day=date(2026, 1, 1)),
            Row("\0"),
            nested(80),
            10**600,
        ]
    )
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts | st.integers(), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


def is_accepted(message: Message, limits: PutLimits = LIMITS) -> bool:
    return prepare(message, "message", limits).id != ""


@settings(max_examples=300)
@given(values, values, values, texts, texts)
def test_whatever_a_library_holds_can_be_put(
    content: Any, arguments: Any, beside: Any, call_id: str, name: str
) -> None:
    calls = [{"id": call_id or "c", "type": "function", "function": {"name": name, "arguments": arguments}}]
    messages = [
        Message("user", content if content is not None else "", name=name, metadata={"k": beside}),
        Message("assistant", None, tool_calls=calls, extra={"beside": beside}),
        Message("tool", content if content is not None else "", tool_call_id=call_id or "c"),
    ]
    stored = storable((with_leftovers(one, "library", {"left": beside}) for one in messages), LIMITS)
    assert all(map(is_accepted, stored))
    assert stored[1].tool_calls is not None
    assert stored[1].tool_calls[0]["id"] == stored[2].tool_call_id
    assert isinstance(stored[1].tool_calls[0]["function"]["arguments"], str)
    # Encoded again it stays as it is: so what a read gives back is recognised.
    assert [Encoder().message(one) for one in stored] == stored


@settings(max_examples=200)
@given(
    st.recursive(st.text(max_size=2_000) | st.integers(), st.lists, max_leaves=40), st.text(max_size=3_000)
)
def test_whatever_its_size_it_fits_the_limits(content: Any, text: str) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"text": text * 3}}}]
    messages = [
        Message("user", text * 5, metadata={"k": text}),
        Message("tool", content, tool_call_id="c"),
        Message("assistant", [{"type": "text", "text": text}] * 3, tool_calls=calls, extra={"e": [text]}),
    ]
    for one in storable((with_leftovers(one, "library", {}) for one in messages), SMALL):
        assert is_accepted(one, SMALL)
        for call in one.tool_calls or ():
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


@pytest.mark.parametrize(
    ("value", "stored", "kinds"),
    [
        ("page\0text", "page\ufffdtext", ["characters"]),
        ("cut \ud83d", "cut \ufffd", ["characters"]),
        ("\ud83d\ude00", "\N{GRINNING FACE}", ["characters"]),
        (float("nan"), None, ["value"]),
        (float("-inf"), None, ["value"]),
        (b"\x89PNG", "iVBORw==", ["value"]),
        (date(2026, 1, 1), "2026-01-01", ["value"]),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00", ["value"]),
        (Decimal("1.5"), "1.5", ["value"]),
        (UUID(int=1), str(UUID(int=1)), ["value"]),
        (Frame(), "a frame", ["value"]),
        (Broken(), "[Broken]", ["value"]),
        ({1: 2}, {"1": 2}, ["value"]),
        (Color.RED, "red", []),
        ((1, 2), [1, 2], []),
        (Row(3), {"value": 3}, []),
        ({"a": [1.5, True, None, "é"]}, {"a": [1.5, True, None, "é"]}, []),
    ],
)
def test_values_become_json_and_changes_are_named(value: object, stored: object, kinds: list[str]) -> None:
    encoder = Encoder()
    assert encoder.value(value) == stored
    assert sorted(encoder.changed) == kinds


def test_a_value_that_contains_itself_ends() -> None:
    encoder = Encoder()
    json.dumps(encoder.value(CIRCULAR))
    assert encoder.changed == {"nesting"}


def test_head_and_tail_of_a_long_output_are_kept_and_the_cut_is_named() -> None:
    (stored,) = storable([Message("tool", "head " + "x" * 3_000_000 + " tail", tool_call_id="c")], LIMITS)
    assert isinstance(stored.content, str)
    assert stored.content.startswith("head x")
    assert stored.content.endswith("x tail")
    assert "characters left out" in stored.content
    assert stored.metadata == {MARK: ["size"]}


def test_a_picture_that_is_too_large_becomes_a_mark_and_no_half_a_picture() -> None:
    url = "data:image/png;base64," + "iVBORw0KGgo1" * 200_000
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    (stored,) = storable([Message("user", parts)], LIMITS)
    assert stored.content == [parts[0], {"type": "text", "text": "[picture]\n[too large to be stored]"}]


def test_a_long_id_of_a_message_stays_the_same_and_different_from_others() -> None:
    first, second, again = (
        Encoder().message(Message("user", "x", id="i" * 700 + end)).id for end in ("a", "b", "a")
    )
    assert first == again != second
    assert first is not None
    assert len(first.encode()) <= 512


def test_a_change_is_told_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_logged_kinds", set())
    odd = [with_leftovers(Message("user", "page\0text"), "library", {})] * 2
    with caplog.at_level(logging.WARNING):
        storable(odd, LIMITS)
        storable(odd, LIMITS)
        storable([Message("user", "plain")], LIMITS)
    assert [record.__dict__["kind"] for record in caplog.records] == ["characters"]


ODD_VALUES = [
    "page\0text",
    "cut \ud83d",
    float("nan"),
    date(2026, 1, 1),
    Frame(),
    b"\xff",
    nested(90),
    {"a": {1, 2}},
]


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: type(value).__name__)
def test_each_adapter_keeps_a_turn_with_an_odd_value_and_gives_it_back(value: Any) -> None:
    for stored in _agents(value) + _langchain(value) + _llamaindex(value) + _pydantic(value):
        assert is_accepted(stored)
        assert MARK in stored.metadata or value == {"a": {1, 2}}


def _agents(value: Any) -> list[Message]:
    text = value if isinstance(value, str) else "r"
    items = [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "beside": value},
        {"type": "function_call_output", "call_id": "c", "output": text, "beside": value},
    ]
    stored = storable(map(agents_message, items), LIMITS)
    assert [one.tool_call_id for one in stored] == [None, "c"]
    assert [items_of(one)[0]["call_id"] for one in stored] == ["c", "c"]
    return stored


def _langchain(value: Any) -> list[Message]:
    text = value if isinstance(value, str) else "r"
    turn = [
        AIMessage("", tool_calls=[{"name": "f", "args": {"a": value}, "id": "c"}]),
        ToolMessage(text, tool_call_id="c", artifact=value),
    ]
    stored = storable(map(langchain_message, turn), LIMITS)
    restored = [langchain_message_of(_as_read(one)) for one in stored]
    assert restored[1].artifact is not None or isinstance(value, float)  # type: ignore[attr-defined]
    return stored


def _llamaindex(value: Any) -> list[Message]:
    call = ToolCallBlock(tool_call_id="c", tool_name="f", tool_kwargs={"a": value})
    stored = storable([llamaindex_message(ChatMessage(role="assistant", blocks=[call]))], LIMITS)
    (block,) = chat_message_of(_as_read(stored[0])).blocks
    assert isinstance(block, ToolCallBlock)
    return stored


def _pydantic(value: Any) -> list[Message]:
    turn: Sequence[Any] = [
        ModelResponse([ToolCallPart("f", {"a": value}, tool_call_id="c")]),
        ModelRequest([ToolReturnPart("f", {"a": value}, tool_call_id="c")]),
    ]
    stored = storable((one for model in turn for one in messages_of(model)), LIMITS)
    request = model_messages_of(map(_as_read, stored))[-1]
    assert request.parts[0].part_kind == "tool-return"
    if isinstance(value, (bytes, date, float)):  # pydantic writes these itself
        return []
    return stored


class Rows:
    """As an array of NumPy: it has no truth."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


class Closed(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("closed")


LOOP: dict[str, Any] = {}
LOOP["me"] = LOOP


@pytest.mark.parametrize(
    "value",
    [
        Frame(),
        Rows(),
        Closed(a=1),
        LOOP,
        len,
        int,
        memoryview(b"a"),
        {"a\ud83d": 1},
        Decimal("NaN"),
        nested(300),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_field_of_any_value_that_no_model_sees_loses_no_turn(value: Any) -> None:
    for stored in (
        langchain_message(ToolMessage("r", tool_call_id="c", artifact=value)),
        langchain_message(HumanMessage("x", additional_kwargs={"v": value})),
        llamaindex_message(ChatMessage(role="user", content="x", additional_kwargs={"v": value})),
        *messages_of(ModelResponse([TextPart("x")], provider_details={"v": value})),
        *messages_of(ModelResponse([TextPart("x", provider_details={"v": value})])),
        *messages_of(ModelRequest([UserPromptPart("x")], metadata={"v": value})),
        agents_message({"type": "reasoning", "id": "r", "summary": [], "v": value}),
    ):
        (kept,) = storable([stored], LIMITS)
        assert is_accepted(kept)


def _as_read(message: Message) -> Message:
    body = json.loads(json.dumps({"content": message.content, "tool_calls": message.tool_calls}))
    return replace(message, **body, seq=1, id="1", tokens=1)


def test_the_mark_is_no_part_of_what_was_said() -> None:
    marked = Encoder("size").marked(Message("user", "x", metadata={"k": 1}))
    assert as_said(marked) == Message("user", "x", metadata={"k": 1})
