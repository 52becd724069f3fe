"""Messages as values: read from OpenAI's form, given back in it, encoded and decoded."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from strandline import InvalidMessageError, Message
from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.queries.rows import MessageRow
from strandline.schemas.values.message import ROLES, read_rows

LIMITS = PutLimits(max_content_bytes=10_000, max_metadata_bytes=1_000)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}

storable = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
names = storable.filter(bool)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | storable,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(storable, inner, max_size=3),
    max_leaves=8,
)
metadata = st.dictionaries(storable, json_values, max_size=4)
extras = st.dictionaries(st.sampled_from(["refusal", "reasoning_content", "audio"]), storable, max_size=3)
parts = st.lists(
    st.one_of(
        st.fixed_dictionaries({"type": st.just("text"), "text": storable}),
        st.fixed_dictionaries(
            {"type": st.just("image_url"), "image_url": st.fixed_dictionaries({"url": storable})}
        ),
    ),
    max_size=3,
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(ROLES))
    return Message(
        role,  # type: ignore[arg-type]  # drawn from ROLES
        draw(storable | parts),
        id=draw(names),
        name=draw(st.none() | storable),
        tool_calls=[{**CALL, "id": draw(names)}] if role == "assistant" and draw(st.booleans()) else None,
        tool_call_id=draw(names) if role == "tool" else None,
        metadata=draw(metadata),
        created_at=NOON,
        extra=draw(extras),
    )


def stored(message: Message) -> Message:
    """The message as it comes back from the row that a put would write."""
    prepared = prepare(message, "message", LIMITS)
    columns = (7, prepared.id, prepared.role, 3, prepared.created_at or NOON)
    (read,) = read_rows([MessageRow(*columns, prepared.envelope, prepared.metadata)])
    return read


@given(messages())
@settings(deadline=None)
def test_a_stored_message_comes_back_unchanged(message: Message) -> None:
    assert stored(message) == replace(message, seq=7, tokens=3)


@given(messages())
@settings(deadline=None)
def test_openai_form_and_back(message: Message) -> None:
    again = Message.from_openai(message.to_dict())
    kept = {key: value for key, value in message.extra.items() if value}
    said = replace(message, id=None, metadata={}, created_at=None, extra=kept)
    assert replace(again, extra={k: v for k, v in again.extra.items() if v}) == said


@given(messages(), messages())
@settings(deadline=None)
def test_digests_tell_contents_apart(one: Message, other: Message) -> None:
    def content(message: Message) -> Message:
        return replace(message, id="same")

    def digest(message: Message) -> bytes:
        return prepare(message, "message", LIMITS).digest

    assert (digest(one) == digest(other)) == (repr(stored(content(one))) == repr(stored(content(other))))
    # A retry may carry another time: it is the same message.
    assert digest(replace(one, created_at=None)) == digest(one)


def test_an_sdk_object_is_read() -> None:
    reply = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None}
    )
    message = Message.from_openai(reply)
    assert (message.role, message.content, message.extra) == ("assistant", None, {})
    assert message.tool_calls == [CALL]


def test_unknown_fields_are_kept_and_empty_ones_are_not() -> None:
    source: dict[str, Any] = {
        "role": "assistant",
        "content": "hi",
        "reasoning_content": "hm",
        "refusal": None,
        "annotations": [],
    }
    message = Message.from_openai(source)
    assert message.extra == {"reasoning_content": "hm"}
    assert message.to_dict() == {"role": "assistant", "content": "hi", "reasoning_content": "hm"}
    assert message.to_openai() == {"role": "assistant", "content": "hi"}


def test_fields_beside_openais_are_read() -> None:
    source = {
        "role": "user",
        "content": "hi",
        "id": "m1",
        "metadata": {"page": 3},
        "created_at": "2026-01-01T12:00:00+00:00",
        "seq": 99,
        "tokens": 99,
    }
    message = Message.from_openai(source)
    assert (message.id, message.metadata, message.created_at) == ("m1", {"page": 3}, NOON)
    assert (message.seq, message.tokens) == (None, None)


def test_a_message_prints_as_role_and_text() -> None:
    parts: Any = [{"type": "text", "text": "one"}, {"type": "image_url"}, {"type": "text", "text": "two"}]
    assert str(Message("user", "hello")) == "user: hello"
    assert str(Message("assistant", None)) == "assistant: "
    assert str(Message("user", parts)) == "user: one\ntwo"


def test_a_message_is_a_value() -> None:
    message = Message("user", "hello")
    with pytest.raises(FrozenInstanceError):
        message.content = "other"  # type: ignore[misc]
    assert message == Message.from_openai(message)


def test_an_enum_role_is_its_value() -> None:
    class Role(StrEnum):
        USER = "user"

    assert prepare(Message.from_openai({"role": Role.USER, "content": "x"}), "message", LIMITS).role == "user"


@pytest.mark.parametrize("source", ["text", None, 5, [], ("user", "hi"), b"x", object()])
def test_a_value_that_is_not_a_message_is_refused_with_its_place(source: object) -> None:
    with pytest.raises(InvalidMessageError, match="must be a Message or an OpenAI chat dict") as caught:
        Message.from_openai(source, where="messages[3]")
    assert caught.value.field == "messages[3]"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60))
def test_plain_text_is_written_as_anything_else_would_be(text: str) -> None:
    """It takes a shorter way, and a repeated put must meet the same digest."""
    limits = PutLimits(10_000, 10_000)
    plain = prepare(Message("user", text), "message", limits)
    longer_way = json.dumps({"content": text}, ensure_ascii=False, separators=(",", ":"))
    assert plain.envelope == longer_way
    assert json.loads(plain.envelope) == {"content": text}
