"""History by number, offset and filters: what it gives is what a list of all messages gives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline import ConfigurationError, InvalidMessageError, Memory, Message, OwnerError
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.producers.reading import history
from strandline.schemas.values.labels import Scalar
from tests.conftest import MakeMemory
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
