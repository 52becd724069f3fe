"""History by number, offset and filters: what it gives is what a list of all messages gives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline import ConfigurationError, InvalidMessageError, Memory, Message, OwnerError
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.producers.blocks.render import NOTE
from strandline.producers.reading import history
from strandline.producers.reading.call_pairs import (
    Settled,
    begins_with_user,
    is_settled,
    settled,
    wants_user_first,
)
from strandline.producers.reading.context import MemoryContext
from strandline.producers.reading.history import (
    DEFAULT_CONTEXT_TOKENS,
    HistoryRequest,
    newest_history,
    newest_that_fit,
)
from strandline.producers.search.message_filter import MessageFilter
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.labels import Scalar
from strandline.schemas.values.message import SHOWN
from tests.conftest import MakeMemory, Rig
from tests.support.providers.drawn_logs import FORMS, STEPS, Step, many_logs, messages_of, openai
from tests.support.providers.rules import (
    anthropic_problems,
    as_anthropic,
    as_gemini,
    as_responses,
    chat_problems,
    gemini_problems,
    responses_problems,
)
from tests.support.servers.databases import temporary_database

START = datetime(2026, 3, 1, tzinfo=UTC)
NUMBER = 60
ROLES = ("user", "assistant", "user", "assistant", "system", "developer")
METADATA: tuple[dict[str, Any], ...] = (
    {},
    {"agent": "writer"},
    {"agent": "analyst", "priority": "high"},
    {"priority": "high", "round": 1},
    {"round": 1.0, "done": True},
    {"done": 1, "agent": None},
    {"tags": ["a"], "round": 2},
)
VALUES = {
    "agent": ("writer", "analyst", None, ""),
    "priority": ("high", "low"),
    "round": (1, 1.0, 2, True),
    "done": (True, 1, False),
    "tags": ("a",),
    "absent": (None, 0),
}


def message(number: int) -> dict[str, Any]:
    """Times go back and forth, as those of imported messages may."""
    at = START + timedelta(minutes=number * 7 % NUMBER)
    fields = {"metadata": METADATA[number % len(METADATA)], "created_at": at, "id": f"m{number}"}
    return {"role": ROLES[number * number % len(ROLES)], "content": f"text {number}", **fields}


@pytest.fixture(scope="module")
def long_memory(stack: EmbeddedStack) -> Iterator[Memory]:
    """Sixty messages, most of them flushed, put in every way there is."""
    with temporary_database(stack.database_url) as url:
        memory = Memory.from_defaults(
            "s", database_url=url, max_window_messages=10, memory_blocks=[], user_id="u"
        )
        memory.put_messages([message(number) for number in range(20)])
        for number in range(20, 30):
            memory.put(message(number))
        memory.import_messages([message(number) for number in range(30, 45)])

        async def put_the_rest() -> None:
            for number in range(45, NUMBER):
                await memory.aput(message(number))

        asyncio.run(put_the_rest())
        other = Memory.from_defaults("t", database_url=url, memory_blocks=[], user_id="u")
        other.put_messages([message(number) for number in range(20)])
        yield memory
        memory.close()


def is_same(stored: object, value: object) -> bool:
    return stored == value and isinstance(stored, bool) == isinstance(value, bool)


def expected(
    messages: list[Message],
    limit: int | None,
    offset: int,
    roles: list[str] | None,
    metadata: dict[str, Any] | None,
    since: datetime | None,
    until: datetime | None,
) -> list[Message]:
    """The same by plain Python."""
    passing = [
        one
        for one in messages
        if (roles is None or one.role in roles)
        and all(key in one.metadata and is_same(one.metadata[key], v) for key, v in (metadata or {}).items())
        and (since is None or (one.created_at or START) >= since)
        and (until is None or (one.created_at or START) <= until)
    ]
    newest_first = passing[::-1][offset:]
    return (newest_first if limit is None else newest_first[:limit])[::-1]


times = st.none() | st.integers(-1, NUMBER).map(lambda minute: START + timedelta(minutes=minute))
pairs = st.sampled_from([(key, value) for key, values in VALUES.items() for value in values])


@pytest.mark.parametrize("looked_at", [history.RECENT_MESSAGES, 3])
def test_a_history_is_what_a_list_of_all_messages_gives(looked_at: int, long_memory: Memory) -> None:
    """Whether the newest messages are looked at, or an index leads to what matches."""
    messages = long_memory.get_all()
    assert len(messages) == NUMBER

    @settings(max_examples=120)
    @given(
        limit=st.none() | st.integers(0, NUMBER + 1),
        offset=st.just(0) | st.integers(0, NUMBER + 1),
        roles=st.none() | st.lists(st.sampled_from(["user", "assistant", "system", "tool"]), max_size=3),
        metadata=st.none()
        | st.dictionaries(st.just("x"), st.nothing())
        | st.lists(pairs, max_size=2).map(dict),
        since=times,
        until=times,
    )
    def check(**arguments: Any) -> None:
        assert long_memory.history(**arguments) == expected(messages, **arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "RECENT_MESSAGES", looked_at)
        patch.setattr(history, "MAX_RECENT_MESSAGES", max(looked_at, 3))
        check()


def test_five_of_ten_are_the_newest_five_in_order(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put_messages([{"role": "user", "content": f"Message {number}"} for number in range(10)])
    assert [one.text for one in memory.history(5)] == [f"Message {number}" for number in range(5, 10)]
    assert [one.text for one in memory.history(limit=2, offset=3)] == ["Message 5", "Message 6"]
    assert memory.history(0) == [] and len(memory.history()) == 10
    assert asyncio.run(memory.ahistory(1)) == memory.history(1)


def test_roles_are_filtered_before_the_newest_are_counted(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put_messages(
        [{"role": ("user", "assistant")[number % 2], "content": f"{number}"} for number in range(10)]
    )
    assert [one.text for one in memory.history(limit=2, offset=1, roles=["user"])] == ["4", "6"]


def test_metadata_and_dates_are_compared_as_the_documents_say(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    days = [START + timedelta(days=number) for number in range(3)]
    for number, day in enumerate(days):
        levels = {"priority": "high" if number == 1 else "low", "kind": "note"}
        memory.put({"role": "user", "content": f"{number}", "metadata": levels, "created_at": day})
    assert [one.text for one in memory.history(metadata={"priority": "high", "kind": "note"})] == ["1"]
    assert memory.history(metadata={"priority": "high", "kind": "other"}) == []
    assert [one.text for one in memory.history(since=days[0], until=days[1])] == ["0", "1"]
    assert [one.text for one in memory.history(since=days[2])] == ["2"]


def test_what_was_taken_back_or_reset_is_in_no_history(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    note = {"role": "user", "content": "x", "metadata": {"kind": "note"}}
    memory.put_messages([note, note])
    memory.pop()
    assert len(memory.history(metadata={"kind": "note"})) == 1
    memory.reset()
    for filters in ({}, {"metadata": {"kind": "note"}}, {"roles": ["user"]}):
        assert memory.history(**filters) == []
    memory.set([note])
    assert len(memory.history(metadata={"kind": "note"})) == 1


def test_sessions_and_owners_see_their_own_history_alone(make_memory: MakeMemory) -> None:
    note = {"role": "user", "content": "x", "metadata": {"kind": "note"}}
    make_memory("s", user_id="a").put(note)
    assert make_memory("t", user_id="a").history(metadata={"kind": "note"}) == []
    assert make_memory("s", user_id="a", namespace="other").history(metadata={"kind": "note"}) == []
    intruder = make_memory("s", user_id="b")
    for call in (intruder.history, intruder.context_window):
        with pytest.raises(OwnerError):
            call()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"limit": -1}, "limit is -1"),
        ({"offset": 1.5}, "offset is 1.5"),
        ({"limit": True}, "limit is True"),
        ({"roles": "user"}, "must be a list of roles"),
        ({"roles": ["function"]}, "a role is one of system"),
        ({"metadata": [("a", 1)]}, "must be an object"),
        ({"metadata": {"a": ["b"]}}, "not by lists and objects"),
        ({"metadata": {"a": float("nan")}}, "not by lists and objects"),
        ({"metadata": {1: "b"}}, "a key is a text"),
        ({"metadata": {f"k{number}": 1 for number in range(33)}}, "at most 32"),
        ({"since": "2026-01-01"}, "must be a datetime"),
        ({"until": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"until": START.date()}, "must be a datetime"),
    ],
)
def test_what_is_no_filter_is_refused(arguments: dict[str, Any], words: str, make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    with pytest.raises(ConfigurationError, match=words):
        memory.history(**arguments)


def test_a_text_that_no_metadata_can_have_is_refused(make_memory: MakeMemory) -> None:
    for metadata in ({"a": "\x00"}, {"\ud800": 1}):
        with pytest.raises(InvalidMessageError):
            make_memory("s", memory_blocks=[]).history(metadata=metadata)


def test_messages_that_were_replaced_or_forked_are_found_by_their_metadata(make_memory: MakeMemory) -> None:
    own: dict[str, Scalar] = {"agent": "writer", "round": 1}
    memory = make_memory("s", memory_blocks=[], user_id="u")
    memory.put_messages([{"role": "user", "content": text, "metadata": own} for text in ("one", "two")])
    memory.put({"role": "user", "content": "of no agent"})
    memory.replace(2, "other")
    branch = make_memory(memory.fork().session_id, memory_blocks=[], user_id="u")
    for one in (memory, branch):
        assert [message.text for message in one.history(metadata=own)] == ["one", "other"]
        assert one.history(metadata={"agent": "analyst"}) == []
    with pytest.MonkeyPatch.context() as patch:  # by the index as well
        patch.setattr(history, "RECENT_MESSAGES", 1)
        assert [message.text for message in branch.history(1, metadata={"round": 1.0}, offset=1)] == ["one"]


# Calls and results as providers take them: over drawn logs, in every provider's form, and by example.
LOGS = st.lists(STEPS.filter(lambda step: step[0] != "odd"), max_size=24)


def log_of(steps: Sequence[Step], form: str) -> list[Message]:
    messages = [one for number, step in enumerate(steps) for one in messages_of(step, FORMS[form], number)]
    return [replace(message, seq=seq, tokens=1) for seq, message in enumerate(messages, start=1)]


def native_problems(form: str, messages: Sequence[Message]) -> list[str]:
    """Of messages as a caller hands them to the provider in whose form they are."""
    chat = [message for message in messages if message.role != "system"]
    match form:
        case "anthropic" | "server":
            turned = [{"role": one.role, "content": one.content} for one in begins_with_user(chat)]
            return anthropic_problems(turned, may_wait=True)
        case "gemini":
            contents = [
                {
                    "role": "user" if one.role == "user" else "model",
                    "parts": [{"text": one.content}] if isinstance(one.content, str) else one.content,
                }
                for one in begins_with_user(chat)
            ]
            return gemini_problems(contents, may_wait=True)
        case "responses" | "approvals":
            items: list[Any] = []
            for one in chat:
                if one.content is None or isinstance(one.content, str) or not (one.calls or one.answers):
                    items.append({"role": one.role, "content": one.content})
                else:
                    items.extend(one.content)
            return responses_problems(items, may_wait=True)
        case _:
            return []


def context_of(messages: Sequence[Message]) -> MemoryContext:
    return MemoryContext(tuple(messages), {}, True, (), 0, False)


def sent_problems(context: MemoryContext) -> list[str]:
    """Of what a read gives to be sent, in the form of every provider."""
    chat = context.to_openai()
    begun = replace(context, messages=context.beginning_with_user()).to_openai()
    return [
        *chat_problems(chat),
        *responses_problems(as_responses(chat)),
        *anthropic_problems(as_anthropic(begun)),
        *gemini_problems(as_gemini(begun)),
    ]


@pytest.mark.parametrize("form", FORMS)
@many_logs
@given(steps=LOGS)
def test_every_provider_takes_what_is_left_of_any_log(form: str, steps: list[Step]) -> None:
    log = log_of(steps, form)
    shown = settled(log)
    assert native_problems(form, shown) == []
    assert sent_problems(context_of(shown)) == []
    assert chat_problems([one for m in shown for one in m.openai_forms()], may_wait=True) == []


@many_logs
@given(steps=LOGS, form=st.sampled_from(list(FORMS)), with_notes=st.booleans(), to_send=st.booleans())
def test_only_calls_and_results_are_touched_and_each_is_named(
    steps: list[Step], form: str, with_notes: bool, to_send: bool
) -> None:
    log = log_of(steps, form)
    found = Settled(log, to_send=to_send, with_notes=with_notes)
    assert len(found.groups) == len(log)
    again = Settled(found.messages, to_send=to_send, with_notes=with_notes)
    assert again.messages == found.messages and not again.changes
    texts = [text for one in found.messages if one.role != "tool" for text in words(one)]
    said = [text for one in log if one.role != "tool" for text in words(one)]
    kinds: dict[str, Counter[str]] = {}
    for change in found.changes:
        kinds.setdefault(change.kind, Counter())[change.call_id] += 1
    left_out = kinds.get("call_left_out", Counter())
    assert sorted(said) == sorted(texts)
    if not left_out and "result_moved" not in kinds and "result_left_out" not in kinds:
        added = [one for one in found.messages if one.id is None and SHOWN in one.metadata]
        assert [one for one in found.messages if one not in added] == log or "result_added" in kinds
    calls = Counter(one for message in log for one in message.calls)
    shown = Counter(as_said(one, calls) for message in found.messages for one in message.calls)
    assert shown == calls - Counter(as_said(one, calls) for one in left_out.elements())
    noted = kinds.get("result_added", Counter())
    results = Counter(one for message in log for one in message.answers) + noted
    left_out_results = kinds.get("result_left_out", Counter())
    shown = Counter(as_said(one, calls) for message in found.messages for one in message.answers)
    results = Counter(as_said(one, calls) for one in results.elements())
    assert shown == results - Counter(as_said(one, calls) for one in left_out_results.elements())
    assert with_notes or not noted
    callers = [at for at, one in enumerate(found.messages) if one.role == "assistant"]
    for at in callers[:-1]:
        behind = takewhile(lambda one: one.answers, found.messages[at + 1 :])
        texts = [line for one in behind for line in one.shown_text.split("\n")]
        assert NOTE not in texts or {*texts} != {NOTE}


def as_said(call_id: str, known: Counter[str]) -> str:
    """The id in the log of one that a read may have given a number, as calls that waited together had it."""
    return call_id if call_id in known else call_id.rpartition("__")[0] or call_id


def words(message: Message) -> list[str]:
    return [line for line in message.text.split("\n") if line.startswith("m")]


@given(steps=LOGS, form=st.sampled_from(list(FORMS)))
def test_a_log_in_order_is_shown_as_it_is(steps: list[Step], form: str) -> None:
    whole = [step for step in steps if step[0] not in ("call", "result")]
    log = log_of(whole, form)
    assert is_settled(log, to_send=True)
    assert settled(log, to_send=True) is log


def U(text: str) -> Message:
    return Message("user", text)


def A(text: str) -> Message:
    return Message("assistant", text)


def S(text: str) -> Message:
    return Message("system", text)


def C(*ids: str) -> Message:
    return openai("call", ids, "")


def T(call_id: str, text: str = "r") -> Message:
    return openai("result", [call_id], text)


def seen(messages: Sequence[Message], **how: bool) -> list[str]:
    found = Settled(messages, **how).messages
    return [one.text or "+".join(one.calls) for one in found]


def test_a_late_result_is_shown_with_its_call() -> None:
    assert seen([U("a"), C("c1"), U("b"), A("B"), T("c1", "late"), A("A")]) == [
        "a",
        "c1",
        "late",
        "b",
        "B",
        "A",
    ]


def test_the_newest_call_without_a_result_is_answered_by_a_note_and_older_ones_are_left_out() -> None:
    assert seen([U("a"), C("c1"), U("b"), C("c2"), U("c")]) == ["a", "b", "c2", NOTE, "c"]
    assert seen([U("a"), C("c1"), U("b"), A("B"), U("c")]) == ["a", "b", "B", "c"]
    parallel = [U("a"), C("c1", "c2"), T("c2", "two"), A("B")]
    assert seen(parallel) == ["a", "c1+c2", "two", NOTE, "B"]
    assert seen(parallel, with_notes=False) == ["a", "c2", "two", "B"]


def test_a_call_at_the_end_waits_for_its_result_unless_it_is_sent() -> None:
    log = [U("a"), C("c1", "c2"), T("c1", "one")]
    assert settled(log) is log
    assert seen(log, to_send=True) == ["a", "c1+c2", "one", NOTE]


def test_an_id_that_is_used_again_belongs_to_the_newest_call_that_waits() -> None:
    log = [
        U("a"),
        C("call_1"),
        U("b"),
        C("call_1"),
        T("call_1", "new"),
        T("call_1", "old"),
        T("call_1", "more"),
    ]
    assert seen(log) == ["a", "call_1", "old", "b", "call_1", "new"]


def test_results_in_parts_become_one_message_and_what_stands_beside_them_stays() -> None:
    use: list[Any] = [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in ("a", "b")]
    one = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    two = {"type": "tool_result", "tool_use_id": "b", "content": "2"}
    said = {"type": "text", "text": "go on"}
    log = [Message("assistant", use), Message("user", [said, one]), Message("user", [two])]
    shown = settled(log)
    assert [message.content for message in shown] == [use, [one, two], [said]]
    assert wants_user_first(shown)


def test_calls_in_two_spellings_of_one_message_are_one_call() -> None:
    """LangChain gives Anthropic's parts beside its own calls."""
    listed = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    call = Message(
        "assistant", [{"type": "tool_use", "id": "a", "name": "f", "input": {}}], tool_calls=[listed]
    )
    assert call.calls == ("a",)
    assert settled([U("q"), call, T("a")]) == [U("q"), call, T("a")]
    assert seen([U("q"), call, U("r"), A("B")]) == ["q", "r", "B"]
    assert [one["role"] for one in context_of([U("q"), call, T("a")]).to_openai()] == [
        "user",
        "assistant",
        "tool",
    ]


def test_what_a_provider_runs_by_itself_waits_for_nobody() -> None:
    parts: list[Any] = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "tool-call", "toolCallId": "p1", "toolName": "f", "input": {}, "providerExecuted": True},
        {"type": "tool-result", "toolCallId": "p1", "toolName": "f", "output": {"type": "json", "value": 1}},
    ]
    message = Message("assistant", parts)
    assert (message.calls, message.answers) == ((), ())
    log = [U("q"), message, U("r")]
    assert settled(log) is log


def test_a_greeting_stays_and_a_users_line_stands_before_it_where_that_is_asked_for() -> None:
    log = [S("s"), A("Hello!"), U("q")]
    assert [one.role for one in begins_with_user(log)] == ["system", "user", "assistant", "user"]
    assert [one["role"] for one in context_of(log).to_openai()] == ["system", "assistant", "user"]
    assert begins_with_user([S("s")]) == (S("s"),)


# The newest messages that fit a number of tokens, behind the pinned head, with calls whole.


def call(*ids: str) -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "seen"}


def test_the_newest_that_fit_are_given_flushed_ones_included(make_memory: MakeMemory) -> None:
    memory = make_memory("s", max_window_messages=5, memory_blocks=[])
    memory.put_messages([{"role": "user", "content": f"message {number}"} for number in range(40)])
    messages = memory.get_all()
    size = messages[0].tokens or 0
    for number in (0, 1, 7, 30, 40, 50):
        window = memory.context_window(number * size + size - 1)
        assert window == messages[max(0, 40 - number) :]
    assert memory.context_window() == messages and 40 * size < DEFAULT_CONTEXT_TOKENS
    assert asyncio.run(memory.acontext_window(3 * size)) == memory.context_window(3 * size)


def test_a_long_log_is_read_page_by_page(make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CONTEXT_PAGE_MESSAGES", 4)
    memory = make_memory("s", memory_blocks=[])
    memory.put_messages([{"role": "user", "content": "x " * (number % 5 + 1)} for number in range(30)])
    messages = memory.get_all()
    for first in range(30):
        size = sum(one.tokens or 0 for one in messages[first:])
        assert memory.context_window(size) == messages[first:]
        assert memory.context_window(size - 1) == messages[first + 1 :]


def test_four_thousand_tokens_are_given_unless_another_number_is(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[], token_limit=100_000)
    memory.put_messages([{"role": "user", "content": "word " * 45} for _number in range(100)])
    messages = memory.get_all()
    size = messages[0].tokens or 0
    shown = memory.context_window()
    assert shown == memory.context_window(4_000) == messages[-(4_000 // size) :]
    assert len(shown) < len(messages)


def read_with(database: Database, operation: Any, step: int, act: Callable[[], object]) -> list[Message]:
    """Carry an operation out, with something else done before its statement of this number."""
    answer = None
    for number in count():
        try:
            statement = operation.send(answer)
        except StopIteration as end:
            found: list[Message] = end.value
            return found
        if number == step:
            act()
        answer = database.fetch(statement)
    raise AssertionError("an operation ends")


@pytest.mark.parametrize("way", ["window", "history"])
def test_a_correction_between_two_pages_shows_one_state(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """What stood behind the run is put again under other numbers, which a later page would miss."""
    for name in ("PAGE_MESSAGES", "CONTEXT_PAGE_MESSAGES"):
        monkeypatch.setattr(history, name, 4)
    identity = identify_session("default", "s", None)
    memory = rig.memory("s", memory_blocks=[])
    memory.put({"role": "user", "content": "first"})
    memory.add_run("r1", [{"role": "user", "content": "0"}])
    memory.put_messages([{"role": "user", "content": f"message {number}"} for number in range(10)])
    for step in range(12):
        before = memory.get_all()
        said = [{"role": "user", "content": f"{step} {n}"} for n in range(step % 2 + 1)]
        operation: Any
        if way == "window":
            operation = newest_that_fit(identity, 10_000)
        else:
            operation = newest_history(HistoryRequest(identity, MessageFilter(), None, 0))
        shown = read_with(rig.database, operation, step, partial(memory.add_run, "r1", said))
        assert shown in (before, memory.get_all())


def test_the_pinned_head_comes_first_and_takes_its_room_first(make_memory: MakeMemory) -> None:
    memory = make_memory("s", max_window_messages=4, memory_blocks=[])
    memory.put({"role": "system", "content": "You are the harbour's clerk."})
    memory.put_messages([{"role": "user", "content": f"message {number}"} for number in range(20)])
    head, *rest = memory.get_all()
    size, head_size = rest[0].tokens or 0, head.tokens or 0
    assert memory.context_window(head_size + 2 * size) == [head, *rest[-2:]]
    assert memory.context_window(head_size) == [head]
    assert memory.context_window(head_size - 1) == rest[-((head_size - 1) // size) :], "no head, and no more"


def test_a_result_is_never_without_its_call(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put_messages(
        [
            {"role": "user", "content": "Where is the boat?"},
            call("a", "b"),
            result("a"),
            result("b"),
            {"role": "assistant", "content": "At the pier."},
        ]
    )
    messages = memory.get_all()
    total = sum(one.tokens or 0 for one in messages)
    lengths = {len(memory.context_window(limit)) for limit in range(total + 1)}
    assert lengths == {0, 1, 4, 5}, "the results come with their call or not at all"


def test_a_number_of_tokens_is_asked_for(make_memory: MakeMemory) -> None:
    for wrong in (-1, 1.5, "many", True, None):
        with pytest.raises(ConfigurationError, match="max_tokens"):
            make_memory("s", memory_blocks=[]).context_window(wrong)  # type: ignore[arg-type]
    assert make_memory("s", memory_blocks=[]).context_window(100) == []
