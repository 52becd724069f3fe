"""The window cache of a process makes reads quicker, and never changes their results."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import DeliveredError, Memory
from strandline.producers.reading.window_cache import (
    NOTHING_KNOWN,
    UNKNOWN,
    KnownSession,
    KnownWindow,
    WindowCache,
)
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import MessageRow
from strandline.schemas.values.message import Message, ReadOnlyDict
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.opened_rows import clear_only

R = TypeVar("R")


LIMITS: dict[str, Any] = {"token_limit": 200, "token_flush_size": 30, "memory_blocks": []}
STEPS = (
    "put",
    "put other",
    "put parts",
    "put many",
    "flush",
    "flush all",
    "pop",
    "set",
    "reset",
    "forget",
    "get",
)


@contextmanager
def reading_afresh(url: str, session_id: str) -> Iterator[Memory]:
    """A memory in a process that keeps no windows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRANDLINE_WINDOW_CACHE_BYTES", "0")
        with closing(Memory.from_defaults(session_id, database_url=url, **LIMITS)) as memory:
            yield memory


def step(memory: Memory, name: str, number: int) -> None:
    text = {"role": "user" if number % 3 else "assistant", "content": f"word {number} " * (number % 7 + 1)}
    match name:
        case "put":
            memory.put(text)
        case "put other":
            memory.put(text | {"metadata": {"n": number, "tags": ["a"] * (number % 2)}})
        case "put parts":
            memory.put({"role": "user", "content": [{"type": "text", "text": f"part {number}"}]})
        case "put many":
            memory.put_messages([text, text | {"role": "user"}])
        case "flush" | "flush all":
            memory.flush(all=name == "flush all")
        case "pop":
            with suppress(DeliveredError):
                memory.pop()
        case "set":
            memory.set([text])
        case "reset" | "forget":
            memory.reset(derived=name == "forget")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.booleans()), max_size=25))
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_a_read_is_the_same_whatever_was_read_before(
    database_url: str, steps: list[tuple[str, bool]]
) -> None:
    """This holds whether this process wrote in between, or another, of whose writes it hears nothing."""
    session_id = uuid4().hex
    with (
        closing(Memory.from_defaults(session_id, database_url=database_url, **LIMITS)) as knowing,
        reading_afresh(database_url, session_id) as other,
    ):
        for number, (name, by_other) in enumerate(steps):
            step(other if by_other else knowing, name, number)
            assert list(knowing.get()) == list(other.get())
            assert knowing.get().tokens == other.get().tokens


def test_a_second_read_fetches_only_what_is_new(make_memory: MakeMemory, statements_seen: list[int]) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put_messages([{"role": "user", "content": f"{number}"} for number in range(50)])
    memory.get()
    memory.put({"role": "user", "content": "one more"})
    assert len(memory.get()) == 51
    assert len(memory.get()) == 51
    assert statements_seen == [51, 2, 1], "the header, and each message once"


@pytest.fixture
def statements_seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each read has fetched."""
    seen: list[int] = []
    fetch = Database.fetch

    def counted(self: Database, query: Query[R]) -> list[R]:
        rows = fetch(self, query)
        if query.name == "read":
            seen.append(len(rows))
        return rows

    monkeypatch.setattr(Database, "fetch", counted)
    return seen


def test_what_a_rolled_back_transaction_showed_is_not_kept(rig: Rig) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put({"role": "user", "content": "stays"})
    with psycopg.connect(rig.url) as connection:
        memory.put({"role": "user", "content": "goes"}, connection=connection)
        assert [message.text for message in memory.get(connection=connection)] == ["stays", "goes"]
        connection.rollback()
    memory.put({"role": "user", "content": "other"})
    assert [message.text for message in memory.get()] == ["stays", "other"]


def test_a_standby_that_had_not_heard_of_the_last_messages_takes_over(rig: Rig) -> None:
    """Their numbers are given to others then; what was known of them is void."""
    memory = rig.memory(memory_blocks=[])
    for text in ("one", "two", "three"):
        memory.put({"role": "user", "content": text})
    assert len(memory.get()) == 3
    rows_of(rig.url, "DELETE FROM strandline.message WHERE seq > 1 RETURNING 1")
    rows_of(rig.url, "UPDATE strandline.session SET next_seq = 2 RETURNING 1")
    for text in ("zwei", "drei", "vier"):
        memory.put({"role": "user", "content": text})
        assert [message.text for message in memory.get()][-1] == text
    assert [message.text for message in memory.get()] == ["one", "zwei", "drei", "vier"]


@clear_only("rows of another database are made by SQL")
@pytest.mark.parametrize("changed", [(1, 2, 3), (2, 3), (2,), (3,)], ids=str)
def test_after_a_restore_a_read_shows_what_the_database_has(rig: Rig, changed: tuple[int, ...]) -> None:
    """Numbers, ids and times of the messages repeat, and what was put after the dump is other text."""
    memory = rig.memory(memory_blocks=[])
    said = datetime(2026, 3, 1, tzinfo=UTC)
    for seq, text in enumerate(("one", "two", "three"), 1):
        memory.put({"id": f"m{seq}", "role": "user", "content": text, "created_at": said})
    assert [message.text for message in memory.get()] == ["one", "two", "three"]
    with psycopg.connect(rig.url) as connection:
        connection.execute("CREATE TEMP TABLE dump ON COMMIT DROP AS SELECT * FROM strandline.message")
        connection.execute(
            "UPDATE dump SET envelope = json_build_object('content', 'other ' || (envelope->>'content'))"
            " WHERE seq = ANY (%s)",
            (list(changed),),
        )
        connection.execute("TRUNCATE strandline.message")
        connection.execute("INSERT INTO strandline.message SELECT * FROM dump ORDER BY seq")
    expected = [
        f"{'other ' if seq in changed else ''}{text}" for seq, text in enumerate(("one", "two", "three"), 1)
    ]
    assert [message.text for message in memory.get()] == expected
    memory.put({"role": "user", "content": "four"})
    assert [message.text for message in memory.get()] == [*expected, "four"]


def test_nobody_is_given_what_another_can_change(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[])
    parts = [{"type": "text", "text": "a part"}]
    memory.put({"role": "user", "content": "plain", "metadata": {"topic": "boats"}})
    memory.put({"role": "user", "content": parts, "metadata": {"tags": ["x"]}})
    plain, nested = memory.get()
    with pytest.raises(TypeError, match="change a copy"):
        plain.metadata["topic"] = "cars"  # type: ignore[index]
    nested.metadata["tags"].append("y")
    nested.content[0]["text"] = "changed"  # type: ignore[index]
    again = memory.get()
    assert again[0].metadata == {"topic": "boats"}
    assert (again[1].metadata, again[1].content) == ({"tags": ["x"]}, parts)


def test_a_read_only_dict_is_a_dict_to_all_who_read_it() -> None:
    given = ReadOnlyDict({"a": [1], "b": None})
    for change in ("clear", "popitem", "update", "pop", "setdefault"):
        with pytest.raises(TypeError):
            getattr(given, change)()
    with pytest.raises(TypeError):
        del given["a"]
    with pytest.raises(TypeError):
        given |= {"c": 1}
    for copied in (copy.deepcopy(given), copy.copy(given), pickle.loads(pickle.dumps(given))):  # noqa: S301
        assert (type(copied), copied) == (dict, {"a": [1], "b": None})
    assert json.loads(json.dumps(given)) == given | {}


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(seq: int, size: int = 0) -> MessageRow:
    return MessageRow(seq, f"id{seq}", "user", 3, NOON, json.dumps({"content": "x" * size}), None)


def test_a_cache_keeps_what_was_read_last_within_its_bound() -> None:
    sessions = [(UUID(int=0), UUID(int=number)) for number in range(5)]
    window = NOTHING_KNOWN.move_to(1, [row(1, 1_000)], "seal")
    known = KnownSession(window, size=window.size)
    cache = WindowCache(3 * known.size)
    for session in sessions[:3]:
        cache.keep(session, known)
    assert cache.size == 3 * known.size
    cache.find(sessions[0])
    cache.keep(sessions[3], known)
    assert [cache.find(session) is known for session in sessions] == [True, False, True, True, False]
    cache.keep(sessions[0], replace(known, size=4 * known.size))
    assert cache.find(sessions[0]) is UNKNOWN
    cache.keep(sessions[2], UNKNOWN)
    assert cache.find(sessions[2]) is UNKNOWN
    assert cache.size == known.size


def row_of(body: Mapping[str, Any], metadata: Mapping[str, Any] | None) -> MessageRow:
    stored = None if metadata is None else json.dumps(metadata, ensure_ascii=False)
    return MessageRow(1, "id", "user", 3, NOON, json.dumps(body, ensure_ascii=False), stored)


def in_memory(value: Any) -> int:
    """The bytes that a value and its contents take, computed independently of the cache."""
    if isinstance(value, Message):
        return sum(in_memory(getattr(value, field.name)) for field in fields(value))
    inner = (*value.keys(), *value.values()) if isinstance(value, dict) else ()
    return sys.getsizeof(value) + sum(map(in_memory, inner))


TEXTS = st.text(max_size=8).flatmap(lambda text: st.integers(1, 300).map(lambda times: text * times))
SCALARS = st.dictionaries(
    st.text(max_size=5), st.none() | st.booleans() | st.floats(allow_nan=False) | TEXTS, max_size=30
)


@given(st.none() | TEXTS, SCALARS, st.none() | SCALARS, st.fixed_dictionaries({}, optional={"name": TEXTS}))
def test_a_window_counts_all_that_its_messages_hold(
    content: str | None,
    extra: dict[str, Any],
    metadata: dict[str, Any] | None,
    others: dict[str, Any],
) -> None:
    """Fields beside the content count too: a bound that leaves something out does not bound anything."""
    bodies = [{"content": content}, {"content": content, "extra": extra} | others]
    window = NOTHING_KNOWN.move_to(1, [row_of(body, metadata) for body in bodies], "seal")
    assert window.size >= sum(map(in_memory, window.entries))
    assert window.move_to(2, [], "").size == 0


def test_a_message_whose_weight_is_beside_its_content_counts_with_it() -> None:
    light = NOTHING_KNOWN.move_to(1, [row_of({"content": "", "extra": {"blob": "x"}}, None)], "seal")
    heavy = NOTHING_KNOWN.move_to(
        1, [row_of({"content": "", "extra": {"blob": "x" * 900_000}}, None)], "seal"
    )
    nested = NOTHING_KNOWN.move_to(
        1, [row_of({"content": "", "extra": {"blob": ["x" * 900_000]}}, None)], "seal"
    )
    assert light.size < 5_000
    assert min(heavy.size, nested.size) > 900_000


def test_a_window_moves_over_what_is_known() -> None:
    window = NOTHING_KNOWN.move_to(1, [row(1), row(2), row(4)], "of 4")
    assert window.move_to(1, [], "of 4") is window
    later = window.move_to(2, [row(5)], "of 5")
    assert (later.seqs, later.tokens, later.seal) == ((2, 4, 5), 9, "of 5")
    assert later.move_to(9, [], "") == KnownWindow()
