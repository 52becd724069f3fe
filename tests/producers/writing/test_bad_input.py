"""Bad input: refused with a sentence that names the field, with nothing stored and nothing broken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import InvalidMessageError, Memory, Message
from strandline.schemas.tables import metadata
from strandline.schemas.values.nesting import MAX_NESTING_LEVELS
from tests.conftest import MakeMemory, rows_of

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
LONE = "\ud83d"


def user(**fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": "hello", **fields}


def calling(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{**CALL, **fields}]}


def with_arguments(arguments: Any) -> dict[str, Any]:
    return calling(function={"name": "f", "arguments": arguments})


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["me"] = value
    return value


BAD: list[tuple[object, str, str]] = [
    # What Postgres cannot store, wherever it stands.
    (user(content="a\x00b"), "content", "NUL character at position 1"),
    (user(content=f"ab{LONE}"), "content", "lone surrogate at position 2"),
    # A name is short, whatever it is made of.
    (user(name="n" * 513), "name", "longer than 512 bytes"),
    (user(name="n" + "\u0315\u0300" * 100_000), "name", "longer than 512 bytes"),
    (user(name="\u00f6" * 257), "name", "longer than 512 bytes"),
    (user(content="\ude00\ud83d"), "content", "lone surrogate"),
    (user(content=[{"type": "text", "text": "\x00"}]), "content[0].text", "NUL"),
    (
        user(content=[{"type": "image_url", "image_url": {"url": LONE}}]),
        "content[0].image_url.url",
        "surrogate",
    ),
    (user(name="\x00"), "name", "NUL"),
    (user(name=LONE), "name", "surrogate"),
    (user(id="a\x00"), "id", "NUL"),
    (user(id=LONE), "id", "surrogate"),
    (user(metadata={"k": "\x00"}), "metadata.k", "NUL"),
    (user(metadata={"k": [{"deep": LONE}]}), "metadata.k[0].deep", "surrogate"),
    (user(metadata={"\x00": 1}), "metadata key", "NUL"),
    (user(metadata={"k": {LONE: 1}}), "metadata.k key", "surrogate"),
    (user(refusal="\x00"), "extra.refusal", "NUL"),
    (with_arguments("\x00"), "tool_calls[0].function.arguments", "NUL"),
    (with_arguments(LONE), "tool_calls[0].function.arguments", "surrogate"),
    (calling(id="\x00"), "tool_calls[0].id", "NUL"),
    (calling(id=LONE), "tool_calls[0].id", "surrogate"),
    ({"role": "tool", "content": "x", "tool_call_id": "\x00"}, "tool_call_id", "NUL"),
    # Roles.
    ({"content": "hello"}, "role", "is missing"),
    (user(role="human"), "role", "use one of system, developer, user, assistant, tool"),
    (user(role=None), "role", "unknown"),
    (user(role=["user"]), "role", "unknown"),
    # Content.
    ({"role": "user"}, "content", "is missing"),
    ({"role": "assistant", "content": None}, "content", "is missing"),
    (user(content=5), "content", "not int"),
    (user(content=b"hello"), "content", "not bytes"),
    (user(content={"type": "text", "text": "x"}), "content", "not dict"),
    (user(content=["hello"]), "content[0]", "'type'"),
    (user(content=[{"text": "hello"}]), "content[0]", "'type'"),
    (user(content=[{"type": "text"}]), "content[0].text", "must be a string"),
    (user(content=[{"type": "text", "text": "x", "at": object()}]), "content", "JSON"),
    (user(content=[{"type": "x", "a": nested(100_000)}]), "content[0].a.a.a", "64 levels"),
    (user(content=[{"type": "x", "a": nested(400)}]), "content[0].a.a.a", "64 levels"),
    (user(content=[{"type": "text", "text": "x", "b": [nested(100)]}]), "content[0].b[0].a", "64 levels"),
    (user(reasoning=nested(400)), "extra.reasoning.a.a.a", "64 levels"),
    (with_arguments(nested(400)), "tool_calls[0].function.arguments.a", "64 levels"),
    (user(content="x" * 1_000_001), "content", "STRANDLINE_MAX_CONTENT_BYTES"),
    # Names and ids.
    (user(name=7), "name", "not int"),
    (user(id=7), "id", "not int"),
    (user(id=""), "id", "is empty"),
    (user(id="x" * 513), "id", "longer than 512 bytes"),
    # Metadata.
    (user(metadata={"k": float("nan")}), "metadata", "JSON"),
    (user(metadata={"k": float("inf")}), "metadata", "JSON"),
    (user(metadata={"k": object()}), "metadata", "JSON"),
    (user(metadata={"k": datetime.now()}), "metadata", "JSON"),  # noqa: DTZ005
    (user(metadata={"k": b"x"}), "metadata", "JSON"),
    (user(metadata={"k": {1, 2}}), "metadata", "JSON"),
    (user(metadata={1: "x"}), "metadata", "not a string"),
    (user(metadata={"k": {None: "x"}}), "metadata", "not a string"),
    (user(metadata={"k": nested(400)}), "metadata.k.a.a.a", "64 levels"),
    (user(metadata={"k": nested(100_000)}), "metadata.k.a.a.a", "64 levels"),
    (user(metadata=circular()), "metadata.me.me.me.me", "64 levels"),
    (user(metadata={"k": 10**5_000}), "metadata", "JSON"),
    (user(metadata={"k": "x" * 20_000}), "metadata", "STRANDLINE_MAX_METADATA_BYTES"),
    (user(metadata=[1]), "metadata", "not list"),
    (user(metadata="x"), "metadata", "not str"),
    # Tool messages and calls.
    ({"role": "tool", "content": "x"}, "tool_call_id", "is missing"),
    ({"role": "tool", "content": "x", "tool_call_id": ""}, "tool_call_id", "is empty"),
    ({"role": "tool", "content": "x", "tool_call_id": 5}, "tool_call_id", "not int"),
    (user(tool_call_id="c"), "tool_call_id", "belongs to tool messages"),
    (user(tool_calls=[CALL]), "tool_calls", "belong to assistant messages"),
    ({"role": "assistant", "content": "x", "tool_calls": 5}, "tool_calls", "not int"),
    ({"role": "assistant", "content": "x", "tool_calls": CALL}, "tool_calls", "not dict"),
    ({"role": "assistant", "content": "x", "tool_calls": "call"}, "tool_calls", "not str"),
    ({"role": "assistant", "content": "x", "tool_calls": ["c"]}, "tool_calls[0]", "must be an object"),
    (calling(id=None), "tool_calls[0].id", "not NoneType"),
    (calling(function=None), "tool_calls[0].function", "is missing"),
    (calling(function="f"), "tool_calls[0].function", "is missing"),
    (calling(function={"arguments": "{}"}), "tool_calls[0].function.name", "is missing"),
    (calling(type=5), "tool_calls[0].type", "not int"),
    (calling(type="custom", function=None), "tool_calls[0].function", "is missing"),
    # Times.
    (user(created_at="2026-01-01T12:00:00"), "created_at", "time zone"),
    (user(created_at=datetime(2026, 1, 1)), "created_at", "time zone"),  # noqa: DTZ001
    (user(created_at="yesterday"), "created_at", "ISO 8601"),
    (user(created_at=1_700_000_000), "created_at", "ISO 8601"),
    (user(created_at=datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))), "created_at", "between"),
    (user(created_at=datetime.max.replace(tzinfo=timezone(-timedelta(hours=12)))), "created_at", "between"),
    # Values that are not messages at all.
    (Message("user", "x", extra={"content": "y"}), "extra.content", "is a field of every message"),
    (Message("user", "x", extra="y"), "extra", "not str"),  # type: ignore[arg-type]
    (Message("user", "x", created_at="now"), "created_at", "not str"),  # type: ignore[arg-type]
]


def row_counts(url: str) -> dict[str, int]:
    names = sorted(table.fullname for table in metadata.tables.values() if table.name != "generation")
    counts = ", ".join(f"(SELECT count(*) FROM {name})" for name in names)
    return dict(zip(names, rows_of(url, f"SELECT {counts}")[0], strict=True))


def test_bad_messages_are_refused_and_nothing_is_stored(make_memory: MakeMemory, database_url: str) -> None:
    new = make_memory("new", memory_blocks=[])
    empty = row_counts(database_url)
    assert set(empty.values()) == {0}
    for source, field, problem in BAD:
        check_refused(partial(new.put, source), f"message.{field}", problem)
    assert row_counts(database_url) == empty
    assert new.put(user()) == 1


def test_a_bad_message_refuses_its_whole_put(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put(user(content="first"))
    before = row_counts(database_url)
    for source, field, problem in BAD:
        batch = [user(), user(), source]
        check_refused(partial(memory.put_messages, batch), f"messages[2].{field}", problem)
        check_refused(partial(memory.set, batch), f"messages[2].{field}", problem)
    assert row_counts(database_url) == before
    assert memory.put(user(content="second")) == 2
    assert [message.text for message in memory.get()] == ["first", "second"]


async def test_the_async_twins_refuse_the_same(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[])
    for source, field, _ in BAD:
        with pytest.raises(InvalidMessageError) as caught:
            await memory.aput(source)
        assert caught.value.field == f"message.{field}"
    assert await memory.aput(user()) == 1
    await memory.aclose()
    assert row_counts(database_url)["strandline.message"] == 1


def check_refused(call: Callable[[], object], field: str, problem: str) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        call()
    assert caught.value.field == field
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"{field}: ")
    assert str(caught.value).isprintable(), "fit for a log line"
    str(caught.value).encode()


@pytest.mark.parametrize("messages", ["hello", 5, iter([user()]), {"role": "user", "content": "hello"}])
def test_a_put_wants_a_list(make_memory: MakeMemory, messages: Any) -> None:
    memory = make_memory(memory_blocks=[])
    check_refused(lambda: memory.put_messages(messages), "messages", "must be a list of messages")


def test_too_many_messages_for_one_put(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])
    check_refused(
        lambda: memory.put_messages([user()] * 1_001), "messages", "STRANDLINE_MAX_MESSAGES_PER_PUT"
    )
    assert row_counts(database_url)["strandline.session"] == 0
    assert len(memory.put_messages([user() for _ in range(1_000)])) == 1_000


def test_too_many_messages_for_one_import(make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, many = make_memory(memory_blocks=[]), [user(id=f"m{number}") for number in range(10_001)]
    check_refused(lambda: memory.import_messages(many), "messages", "STRANDLINE_MAX_MESSAGES_PER_PUT")
    monkeypatch.setenv("STRANDLINE_MAX_MESSAGES_PER_PUT", "10001")
    assert make_memory(memory_blocks=[]).import_messages(many).added == 10_001


@pytest.mark.parametrize(
    ("names", "field", "problem"),
    [
        ({"session_id": ""}, "session_id", "is empty"),
        ({"session_id": "x" * 513}, "session_id", "longer than 512 bytes"),
        ({"session_id": "é" * 257}, "session_id", "longer than 512 bytes"),
        ({"session_id": "a\x00"}, "session_id", "NUL"),
        ({"session_id": LONE}, "session_id", "surrogate"),
        ({"session_id": 5}, "session_id", "not int"),
        ({"session_id": ["s"]}, "session_id", "not list"),
        ({"user_id": ""}, "user_id", "is empty"),
        ({"user_id": "x" * 513}, "user_id", "longer than 512 bytes"),
        ({"user_id": "\x00"}, "user_id", "NUL"),
        ({"user_id": 7}, "user_id", "not int"),
        ({"user_id": {}}, "user_id", "not dict"),
        ({"namespace": ""}, "namespace", "is empty"),
        ({"namespace": LONE}, "namespace", "surrogate"),
        ({"namespace": None}, "namespace", "not NoneType"),
    ],
)
def test_names_are_checked_when_a_memory_is_made(
    database_url: str, names: dict[str, Any], field: str, problem: str
) -> None:
    arguments = {"session_id": "s", **names}
    check_refused(lambda: Memory.from_defaults(database_url=database_url, **arguments), field, problem)


def test_names_of_the_greatest_length_are_stored(make_memory: MakeMemory) -> None:
    names = {"user_id": "u" * 512, "namespace": "n" * 512}
    memory = make_memory("s" * 512, memory_blocks=[], **names)
    assert memory.put(user(id="i" * 512, name="\u00f6" * 256)) == 1
    stored = make_memory("s" * 512, memory_blocks=[], **names).get_all()[0]
    assert (stored.id, stored.name) == ("i" * 512, "\u00f6" * 256)


def test_the_size_limits_are_settings(make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_MAX_CONTENT_BYTES", "50")
    monkeypatch.setenv("STRANDLINE_MAX_METADATA_BYTES", "20")
    monkeypatch.setenv("STRANDLINE_MAX_MESSAGES_PER_PUT", "2")
    memory = make_memory(memory_blocks=[])
    check_refused(lambda: memory.put(user(content="é" * 20)), "message.content", "limit of 50")
    check_refused(lambda: memory.put(user(metadata={"k": "x" * 20})), "message.metadata", "limit of 20")
    check_refused(lambda: memory.put_messages([user()] * 3), "messages", "limit of 2")
    assert memory.put(user(metadata={"k": "x"})) == 1


UNSTORABLE_TEXT = st.builds(str.__add__, st.text(max_size=5), st.sampled_from(["\x00", "\ud800", "\udfff."]))
ANY_TEXT = st.text(st.characters(codec=None), max_size=30) | st.text(max_size=30) | UNSTORABLE_TEXT


def test_any_text_is_stored_as_it_is_or_refused(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory(memory_blocks=[])
    told: list[Message] = []
    refused: list[Message] = []

    @given(content=ANY_TEXT, name=ANY_TEXT, key=ANY_TEXT, value=ANY_TEXT, arguments=ANY_TEXT)
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    def put_and_look(content: str, name: str, key: str, value: str, arguments: str) -> None:
        message = Message(
            "assistant",
            [{"type": "text", "text": content}],
            name=name,
            tool_calls=[{**CALL, "function": {"name": "f", "arguments": arguments}}],
            metadata={key: value},
            extra={"reasoning_content": content},
        )
        if any(map(_unstorable, (content, name, key, value, arguments))):
            with pytest.raises(InvalidMessageError):
                memory.put(message)
            refused.append(message)
        else:
            told.append(message)
            assert memory.put(message) == len(told)

    put_and_look()
    assert told, "both happened"
    assert refused, "both happened"
    for message, found in zip(told, memory.get_all(), strict=True):
        for field in ("role", "content", "name", "tool_calls", "metadata", "extra"):
            assert getattr(found, field) == getattr(message, field)


def _unstorable(text: str) -> bool:
    return "\x00" in text or any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def test_everything_a_message_holds_comes_back(make_memory: MakeMemory) -> None:
    sources: list[dict[str, Any]] = [
        {"role": "system", "content": "Ünïcode: 日本語 🌊 \\u0000 \\ud83d \u200b \ufeff \uffff"},
        user(
            content=[
                {"type": "text", "text": 'What is <this> & "that"?'},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
            ],
            name="maren",
            id="m-1",
            metadata={"page": 3, "ratio": 0.1, "tags": ["a", None, True], "deep": {"": {}}},
            created_at="2026-01-31T12:00:00.123456+02:00",
        ),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [CALL, {**CALL, "id": "d"}],
            "reasoning_content": "They ask what it is.",
        },
        {"role": "tool", "content": '{"a": 1}', "tool_call_id": "c"},
        {"role": "tool", "content": "", "tool_call_id": "d"},
        {"role": "assistant", "content": None, "refusal": "I would rather not."},
    ]
    memory = make_memory(memory_blocks=[])
    memory.put_messages(sources)
    for found in (memory.get_all(), list(memory.get())):
        for source, message in zip(sources, found, strict=True):
            given_ = Message.from_openai(source)
            for field in ("role", "content", "name", "tool_calls", "tool_call_id", "metadata", "extra"):
                assert getattr(message, field) == getattr(given_, field)
            assert message.id == given_.id or given_.id is None
            assert message.created_at == given_.created_at or given_.created_at is None
            assert message.to_dict() == given_.to_dict()


@pytest.mark.parametrize("levels", [1, 10, MAX_NESTING_LEVELS - 3])
def test_what_is_nested_within_the_limit_is_read_back(levels: int, make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    deep = nested(levels - 1)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": deep}}
    custom = {"id": "d", "type": "custom", "custom": {"name": "g", "input": "x"}}
    memory.put(
        {"role": "user", "content": [{"type": "x", "a": deep}], "metadata": {"k": deep}, "more": [deep]}
    )
    memory.put({"role": "assistant", "content": None, "tool_calls": [call, custom]})
    first, second = (message.to_dict() for message in memory.get())
    assert first == {"role": "user", "content": [{"type": "x", "a": deep}], "more": [deep]}
    assert second["tool_calls"] == [call, custom]
    assert memory.get_all()[0].metadata == {"k": deep}


def test_an_id_of_a_call_may_be_as_long_as_a_message(make_memory: MakeMemory) -> None:
    """Some models write their thoughts into it; a flush keeps a call and its result together all the same."""
    memory = make_memory("s", memory_blocks=[], token_limit=400, token_flush_size=100)
    long = "call__thought__" + "x" * 20_000
    for end in ("a", "b"):
        call = {"id": long + end, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        memory.put({"role": "assistant", "content": None, "tool_calls": [call]})
        memory.put({"role": "tool", "tool_call_id": long + end, "content": "word " * 300})
        stored = memory.get_all()[-1]
        assert stored.tool_call_id == long + end
    roles = [message.role for message in memory.get() if message.seq is not None]
    assert roles in (["assistant", "tool"], ["assistant", "tool"] * 2, [])
