"""Messages as values: read from OpenAI's form, given back in it, encoded and decoded."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from strandline import InvalidMessageError, Message
from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.errors import UndecodableEventError
from strandline.schemas.queries.rows import MessageRow
from strandline.schemas.values.flush_event import FlushEvent, decode_event, event_json_schema
from strandline.schemas.values.forms.openai import openai_messages
from strandline.schemas.values.message import ROLES, read_rows
from tests.support.providers.rules import chat_problems

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


# What OpenAI's chat API is given of a message: what its reference has, and nothing else.
ITS_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("given_", "sent"),
    [
        (Message("user", "x", name="Ana López"), {"role": "user", "content": "x", "name": "Ana_López"}),
        (Message("user", "x", name="a<b|c>/\\ d" * 20), {"name": ("a_b_c____d" * 20)[:64]}),
        (Message("user", []), {"content": ""}),
        (Message("assistant", [], tool_calls=[ITS_CALL]), {"content": None, "tool_calls": [ITS_CALL]}),
        (Message("assistant", None, extra={"refusal": "no"}), {"content": "", "refusal": "no"}),
        (
            Message(
                "assistant", "x", extra={"parsed": {"a": 1}, "annotations": [], "reasoning_content": "hm"}
            ),
            {},
        ),
        (Message("assistant", "x", extra={"audio": {"id": "a1", "data": "AAAA"}}), {"audio": {"id": "a1"}}),
        (Message("assistant", "x", extra={"audio": {"data": "AAAA"}, "function_call": {"name": "f"}}), {}),
        (
            Message("tool", "r", name="f", tool_call_id="c1"),
            {"role": "tool", "tool_call_id": "c1", "content": "r"},
        ),
        (
            Message("user", [{"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}}]),
            {"content": [{"type": "text", "text": "t"}]},
        ),
        (
            Message(
                "user", [{"type": "image_url", "image_url": "https://e.org/x.png"}, {"type": "hologram"}]
            ),
            {
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://e.org/x.png"}},
                    {"type": "text", "text": "[hologram]"},
                ]
            },
        ),
        (
            Message("tool", [{"type": "image_url", "image_url": {"url": "u"}}], tool_call_id="c1"),
            {"tool_call_id": "c1", "content": [{"type": "text", "text": "[picture]"}]},
        ),
        (
            Message(
                "assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "output_text", "text": "t"}]
            ),
            {"content": [{"type": "text", "text": "t"}]},
        ),
    ],
)
def test_a_message_is_given_as_the_reference_has_it(given_: Message, sent: dict[str, Any]) -> None:
    found = given_.to_openai()
    assert {**found, **sent} == found
    assert chat_problems([one for one in [found] if one["role"] != "tool"], may_wait=True) == []
    assert not found.keys() - {"role", "content"} - sent.keys()


@pytest.mark.parametrize(
    ("call", "sent"),
    [
        ({"id": "c", "function": {"name": "look up", "arguments": {"page": 1}}}, ("look_up", '{"page": 1}')),
        ({"id": "c", "index": 0, "type": "function", "function": {"name": "f"}}, ("f", "{}")),
        ({"id": "c", "type": "retrieval", "retrieval": {"query": "q"}}, ("retrieval", '{"query": "q"}')),
    ],
)
def test_a_call_is_a_function_with_its_arguments_as_text(call: dict[str, Any], sent: tuple[str, str]) -> None:
    (found,) = Message("assistant", None, tool_calls=[call]).to_openai()["tool_calls"]
    assert found == {"id": "c", "type": "function", "function": {"name": sent[0], "arguments": sent[1]}}


def test_a_long_id_is_shortened_for_a_call_and_its_result_alike() -> None:
    call = Message("assistant", None, tool_calls=[{**ITS_CALL, "id": "c" * 400}]).to_openai()
    result = Message("tool", "r", tool_call_id="c" * 400).to_openai()
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] != "c" * 40
    assert chat_problems([call, result]) == []


def test_results_in_one_message_are_several_there_before_what_stands_beside_them() -> None:
    results = [
        {"type": "tool_result", "tool_use_id": one, "content": [{"type": "text", "text": one}]}
        for one in "ab"
    ]
    message = Message("user", [*results, {"type": "text", "text": "go on"}])
    roles = [(one["role"], one["content"]) for one in message.openai_forms()]
    assert roles == [("tool", "a"), ("tool", "b"), ("user", [{"type": "text", "text": "go on"}])]


def test_what_another_server_takes_is_given_by_name() -> None:
    thought = Message("assistant", "x", extra={"reasoning_content": "hm", "parsed": 1})
    assert thought.to_openai(["reasoning_content"]) == {
        "role": "assistant", "content": "x", "reasoning_content": "hm",
    }  # fmt: skip
    film = {"type": "video_url", "video_url": {"url": "u"}, "fps": 1}
    assert Message("user", [film]).to_openai({"video_url"})["content"] == [film]
    signed = {**ITS_CALL, "extra_content": {"google": {"thought_signature": "s"}}}
    given_ = Message("assistant", None, tool_calls=[signed]).to_openai(["extra_content"])
    assert given_["tool_calls"] == [signed]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one, max_size=2)
)
PART = st.dictionaries(
    st.sampled_from(["type", "text", "image_url", "refusal", "id", "name", "input"]), JSON
).map(lambda part: {**part, "type": str(part.get("type")), "text": str(part.get("text"))})
CALLS = st.lists(
    st.builds(
        lambda call_id, name, arguments: {"id": call_id, "function": {"name": name, "arguments": arguments}},
        st.text(min_size=1),
        st.text(),
        JSON,
    ),
    max_size=2,
)


@given(
    role=st.sampled_from(["user", "assistant", "system"]),
    content=st.none() | st.text() | st.lists(PART, max_size=3),
    name=st.none() | st.text(),
    calls=CALLS,
    extra=st.dictionaries(st.sampled_from(["refusal", "audio", "parsed", "x"]), JSON),
)
def test_whatever_a_message_holds_the_reference_allows_what_is_sent(
    role: Any, content: Any, name: str | None, calls: list[dict[str, Any]], extra: dict[str, Any]
) -> None:
    listed = calls if role == "assistant" else None
    message = Message(role, content, name=name, tool_calls=listed or None, extra=extra)
    sent = message.openai_forms()
    assert chat_problems(sent, may_wait=True) == []
    json.dumps(sent)


# Events: the published form, and what a reader does with one that it does not know.
PUBLISHED = Path(__file__).parent.parent.parent.parent / "docs" / "event.schema.json"


def record(**changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "event_id": uuid4(),
        "shard_key": uuid4(),
        "session_key": uuid4(),
        "incarnation": uuid4(),
        "cause": "threshold",
        "from_seq": 3,
        "through_seq": 9,
        "message_count": 7,
        "tokens": 120,
        "created_at": datetime.now(UTC),
        **changes,
    }


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == event_json_schema()


def test_an_event_survives_being_written_and_read() -> None:
    event = decode_event(record())
    assert FlushEvent.model_validate_json(event.model_dump_json()) == event


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        decode_event(record()).from_seq = 1


def test_a_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(UndecodableEventError, match="version 2; this release reads up to 1"):
        decode_event(record(version=2))


@pytest.mark.parametrize("change", [{"surprise": 1}, {"cause": "whim"}, {"from_seq": 0}, {"event_id": "x"}])
def test_a_record_that_is_not_an_event_is_refused_with_the_wrong_field(change: dict[str, Any]) -> None:
    with pytest.raises(UndecodableEventError, match=next(iter(change))):
        decode_event(record(**change))


@pytest.mark.parametrize(
    ("part", "in_chat"),
    [
        (
            {"type": "input_image", "image_url": "https://e.org/a.png", "detail": "low"},
            {"type": "image_url", "image_url": {"url": "https://e.org/a.png", "detail": "low"}},
        ),
        ({"type": "input_file", "file_id": "f"}, {"type": "file", "file": {"file_id": "f"}}),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": "QUJD"},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "QUJD"}},
        ),
        ({"type": "input_image", "file_id": "f"}, {"type": "text", "text": "[picture]"}),
        (
            {"type": "input_file", "file_url": "https://e.org/a.pdf"},
            {"type": "text", "text": "[document] a.pdf"},
        ),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": "!!"},
            {"type": "text", "text": "[document] a.pdf"},
        ),
    ],
)
def test_parts_of_the_responses_api_are_shown_in_chat(part: dict[str, Any], in_chat: dict[str, Any]) -> None:
    (form,) = openai_messages({"role": "user", "content": [part]})
    assert form["content"] == [in_chat]
    assert chat_problems([form]) == []
