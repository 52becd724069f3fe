"""Group commit: concurrent puts of one process share statements, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.errors import LockNotAvailable

from strandline import ConflictError, Memory
from strandline.producers.writing.group_commit import MAX_PUTS_PER_GROUP, STATEMENTS_AT_ONCE, GroupCommit
from strandline.producers.writing.put import SinglePut, put_many
from strandline.producers.writing.validate import PreparedMessage
from strandline.schemas.errors import (
    DatabaseError,
    DatabaseTimeoutError,
    DatabaseUnavailableError,
    ServerLimitError,
)
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.postgres.query import Query
from strandline.schemas.postgres.translation import translate_errors
from strandline.schemas.queries.conversation.messages import Put, PutManyRow
from strandline.schemas.queries.rows import PutRow, SeqRow
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message
from tests.conftest import MakeMemory, Rig, rows_of

R = TypeVar("R")
T = TypeVar("T")
KEYS = [UUID(int=number) for number in range(1, 6)]


class Log:
    """A log in memory that answers the statements.

    ``refused`` ids fail, ``left_out`` ones go alone, and ``breaking`` ones break both short ways.
    """

    def __init__(
        self,
        refused: frozenset[str] = frozenset(),
        left_out: frozenset[str] = frozenset(),
        breaking: frozenset[str] = frozenset(),
    ) -> None:
        self.refused, self.left_out, self.breaking = refused, left_out, breaking
        self.stored: dict[UUID, list[str]] = {}
        self.groups: list[int] = []
        self.at_once = self.most_at_once = 0

    def run(self, operation: Operation[T]) -> Awaitable[T]:
        raise AssertionError("these tests put single statements")

    async def fetch(self, query: Query[R]) -> list[R]:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await asyncio.sleep(0)
            answers = {"put": self._put, "put_one": self._put_one, "put_many": self._put_many}
            rows: list[R] = answers[query.name](query.params)
            return rows
        finally:
            self.at_once -= 1

    def _put(self, params: Mapping[str, Any]) -> list[Any]:
        (message_id,) = params["ids"]
        if message_id in self.refused:
            raise DatabaseError(message_id)
        return [PutRow("ok", None, [self._store(params["session_key"], message_id)], None, None)]

    def _put_one(self, params: Mapping[str, Any]) -> list[Any]:
        if params["id"] in self.refused:
            raise DatabaseError("refused")
        if params["id"] in self.breaking:
            raise RuntimeError("a defect")
        if params["id"] in self.left_out:
            return []
        return [SeqRow(self._store(params["session_key"], params["id"]))]

    def _put_many(self, params: Mapping[str, Any]) -> list[Any]:
        pairs = [(UUID(one["session_key"]), one["id"]) for one in json.loads(params["messages"])]
        self.groups.append(len(pairs))
        assert len({key for key, _ in pairs}) == len(pairs)
        if self.refused & {message_id for _, message_id in pairs}:
            raise DatabaseError("one of them")
        if self.breaking & {message_id for _, message_id in pairs}:
            raise RuntimeError("a defect")
        return [
            PutManyRow(str(key), self._store(key, message_id))
            for key, message_id in pairs
            if message_id not in self.left_out
        ]

    def _store(self, key: UUID, message_id: str) -> int:
        self.stored.setdefault(key, []).append(message_id)
        return len(self.stored[key])


def put_of(key: UUID, message_id: str, **given: Any) -> SinglePut:
    unset = dict.fromkeys(("metadata", "created_at", "calls", "answers"))
    message = {"role": "user", "digest": b"", "size": 2, "envelope": "{}", "source": Message("user")}
    prepared = PreparedMessage(**{**message, **unset, "id": message_id, **given})
    identity = SessionIdentity("default", str(key), None, key, key, key)
    return SinglePut(identity, prepared, 1, lambda: whole(identity, message_id))


def whole(identity: SessionIdentity, message_id: str) -> Put:
    """What of the statement ``put`` the log looks at."""
    return Put(
        **identity.keys,
        claimed=False,
        session="{}",
        ids=[message_id],
        roles=[],
        tokens=[],
        bytes=[],
        digests=[],
        envelopes=[],
        metadata=[],
        created_at=[],
        data_key=0,
        calls=[],
        answers=[],
        labels=[],
        act=None,
    )


def ok(seq: int) -> PutRow:
    return PutRow("ok", None, [seq], None, None)


@given(
    puts=st.lists(
        st.tuples(st.sampled_from(KEYS), st.sampled_from(["ok", "refused", "left out", "breaking"])),
        max_size=40,
    )
)
def test_each_put_has_its_own_result_in_the_order_of_its_session(puts: list[tuple[UUID, str]]) -> None:
    ids = [f"{number}" for number in range(len(puts))]
    named = {kind: frozenset(i for i, (_, k) in zip(ids, puts, strict=True) if k == kind) for _, kind in puts}
    log = Log(*(named.get(kind, frozenset()) for kind in ("refused", "left out", "breaking")))

    async def put_all() -> list[PutRow | BaseException]:
        grouped = GroupCommit(log)
        work = (grouped.put(put_of(key, i)) for i, (key, _) in zip(ids, puts, strict=True))
        return await asyncio.wait_for(asyncio.gather(*work, return_exceptions=True), 100)

    results = asyncio.run(put_all())
    for message_id, (key, kind), result in zip(ids, puts, results, strict=True):
        if kind == "refused":
            assert isinstance(result, DatabaseError) and str(result) == message_id
        else:
            assert result == ok(log.stored[key].index(message_id) + 1)
    for stored in log.stored.values():
        assert stored == sorted(stored, key=int), "in the order in which they were put"
        assert len(set(stored)) == len(stored)


async def test_puts_that_wait_together_go_together_and_a_lone_one_goes_at_once() -> None:
    log = Log()

    grouped = GroupCommit(log)
    await grouped.put(put_of(UUID(int=1), "alone"))
    assert log.groups == []
    await asyncio.gather(*(grouped.put(put_of(UUID(int=n), "x")) for n in range(1, 301)))
    assert sum(log.groups) == 299, "the first found nobody about"
    assert max(log.groups) == MAX_PUTS_PER_GROUP
    assert log.most_at_once == STATEMENTS_AT_ONCE


async def test_small_groups_that_take_turns_become_large_ones() -> None:
    """Three small groups that take turns, one of which always waits, become two large ones."""

    gates: list[asyncio.Future[None]] = []

    class Gated(Log):
        async def fetch(self, query: Query[R]) -> list[R]:
            gates.append(asyncio.get_running_loop().create_future())
            await gates[-1]
            return await super().fetch(query)

    log = Gated()
    grouped, keys = GroupCommit(log), [UUID(int=number) for number in range(1, 13)]

    async def caller(key: UUID) -> None:
        for turn in range(9):
            await grouped.put(put_of(key, f"{key} {turn}"))

    callers = [asyncio.ensure_future(caller(key)) for key in keys[:8]]
    opened = 0
    while not all(task.done() for task in callers):
        if opened == 6:  # while two groups of four are on their way
            callers += [asyncio.ensure_future(caller(key)) for key in keys[len(callers) :]]
        if opened < len(gates):  # the oldest, when everybody has had a turn
            gates[opened].set_result(None)
            opened += 1
        for _turn in range(10):
            await asyncio.sleep(0)
    groups = log.groups
    assert groups[:6] == [4] * 6
    assert groups[8:16] == [6] * 8


def test_a_put_that_nobody_awaits_any_more_holds_up_nothing() -> None:
    log = Log()

    async def put_all() -> PutRow:
        grouped = GroupCommit(log)
        first = asyncio.create_task(grouped.put(put_of(KEYS[0], "first")))
        second = asyncio.create_task(grouped.put(put_of(KEYS[0], "second")))
        await asyncio.sleep(0)
        first.cancel()
        row = await asyncio.wait_for(second, 100)
        assert await asyncio.wait_for(grouped.put(put_of(KEYS[0], "third")), 100) == ok(2)
        return row

    assert asyncio.run(put_all()) == ok(1), "the first was taken back in time"


def sent_when(failing: Mapping[str, Exception], puts: int) -> tuple[list[str], list[PutRow | BaseException]]:
    """The statements sent for puts at once, the first of which goes alone, and their results."""
    sent: list[str] = []

    class Failing(Log):
        async def fetch(self, query: Query[R]) -> list[R]:
            sent.append(query.name)
            if query.name in failing:
                raise failing[query.name]
            return await super().fetch(query)

    async def put_all() -> list[PutRow | BaseException]:
        grouped = GroupCommit(Failing())
        work = (grouped.put(put_of(UUID(int=number), "x")) for number in range(1, puts + 1))
        return await asyncio.wait_for(asyncio.gather(*work, return_exceptions=True), 100)

    return sent, asyncio.run(put_all())


def waited_for_a_lock() -> DatabaseTimeoutError:
    """As the boundary makes it of what a role's ``lock_timeout`` ends."""
    try:
        with translate_errors():
            raise LockNotAvailable("canceling statement due to lock timeout")
    except DatabaseTimeoutError as error:
        return error


def test_where_no_connection_is_free_each_caller_is_told_and_none_waits_for_one_again() -> None:
    """Alone they would wait for the same connections, each for as long once more."""
    full = DatabaseTimeoutError("no connection became free")
    sent, results = sent_when(dict.fromkeys(("put_one", "put_many", "put"), full), 65)
    assert "put" not in sent
    assert results == [full] * 65


@pytest.mark.parametrize("error", [ServerLimitError("30 s"), waited_for_a_lock()], ids=["time", "lock"])
def test_where_postgres_ends_a_group_at_a_limit_of_its_own_each_goes_alone(error: Exception) -> None:
    """One of them may have waited for a lock that the others do not need."""
    sent, results = sent_when({"put_many": error}, 5)
    assert (sent.count("put_one"), sent.count("put")) == (1, 4)
    assert results == [ok(1)] * 5


def test_a_lone_put_that_postgres_ends_at_a_limit_does_not_wait_for_as_long_again() -> None:
    ended = ServerLimitError("30 s")
    sent, results = sent_when({"put_one": ended}, 1)
    assert (sent, results) == (["put_one"], [ended])


@asynccontextmanager
async def closing(*memories: Memory) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for memory in memories:
            await memory.aclose()


def test_sessions_that_begin_and_cross_at_once_are_all_as_they_should_be(rig: Rig) -> None:
    memories = [rig.memory(f"s{n}", user_id=f"u{n}", token_limit=200, token_flush_size=30) for n in range(40)]

    async def put_all() -> list[list[int]]:
        async def talk(memory: Memory) -> list[int]:
            return [
                await memory.aput({"role": "user", "content": f"harbour number {turn} in a list of them"})
                for turn in range(30)
            ]

        async with closing(*memories):
            return list(await asyncio.gather(*map(talk, memories)))

    assert asyncio.run(put_all()) == [list(range(1, 31))] * 40
    # No session is over its mark, each seq was delivered once, and the tokens add up.
    marks = rows_of(
        rig.url,
        "SELECT count(*) FILTER (WHERE window_tokens > flush_at_tokens), min(next_seq), max(next_seq),"
        " bool_and(window_tokens = (SELECT sum(tokens) FROM strandline.message m"
        "   WHERE m.shard_key = s.shard_key AND m.session_key = s.session_key AND m.seq >= s.window_from)),"
        " bool_and(flushed_through = (SELECT sum(message_count) FROM strandline.flush_event e"
        "   WHERE e.shard_key = s.shard_key AND e.session_key = s.session_key))"
        " FROM strandline.session s",
    )
    assert marks == [(0, 31, 31, True, True)]


def test_a_conflict_and_a_repeated_put_are_told_to_their_callers_alone(make_memory: MakeMemory) -> None:
    memories = [make_memory(f"s{n}") for n in range(20)]

    async def put_all(content: str) -> list[int | BaseException]:
        async with closing(*memories):
            work = (
                memory.aput({"role": "user", "content": content if n % 2 else "the same", "id": "a"})
                for n, memory in enumerate(memories)
            )
            return await asyncio.gather(*work, return_exceptions=True)

    assert asyncio.run(put_all("first")) == [1] * 20
    again = asyncio.run(put_all("other"))
    assert [type(result) for result in again] == [int, ConflictError] * 10
    assert again[::2] == [1] * 10


def test_a_session_that_is_locked_keeps_no_other_waiting(make_memory: MakeMemory, database_url: str) -> None:
    memories = [make_memory(f"s{n}") for n in range(20)]
    for memory in memories:
        memory.put({"role": "user", "content": "first"})

    async def put_all() -> list[int]:
        async with closing(*memories):
            tasks = [
                asyncio.create_task(memory.aput({"role": "user", "content": "second"})) for memory in memories
            ]
            locked = tasks[7]
            await asyncio.wait_for(asyncio.gather(*(task for task in tasks if task is not locked)), 100)
            assert not locked.done()
            holder.rollback()
            return [await task for task in tasks]

    with psycopg.connect(database_url) as holder:
        holder.execute("SELECT FROM strandline.session WHERE session_id = 's7' FOR UPDATE")
        assert asyncio.run(put_all()) == [2] * 20


def test_without_postgres_each_put_of_a_group_raises_database_unavailable(
    make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_POOL_TIMEOUT_SECONDS", "0.5")
    memories = [make_memory(f"s{n}", database_url="postgresql://127.0.0.1:1/none") for n in range(5)]

    async def put_all() -> list[int | BaseException]:
        async with closing(*memories):
            work = (memory.aput({"role": "user", "content": "x"}) for memory in memories)
            return await asyncio.gather(*work, return_exceptions=True)

    assert all(isinstance(result, DatabaseUnavailableError) for result in asyncio.run(put_all()))


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40))
def test_a_message_in_a_group_is_the_message(text: str) -> None:
    """Ids, call ids and texts of any kind arrive as they were, whatever JSON means by their characters."""
    at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=2)))
    one = put_of(
        KEYS[0],
        text,
        envelope=json.dumps({"content": text}),
        metadata=json.dumps({"m": text}),
        calls=json.dumps([text]),
        answers=json.dumps([text]),
        digest=b"\x00\xff",
        created_at=at,
    )
    (record,) = json.loads(put_many([one]).params["messages"])
    assert (record["id"], record["answers"], record["calls"]) == (text, [text], [text])
    assert (record["envelope"], record["metadata"]) == ({"content": text}, {"m": text})
    assert (record["digest"], datetime.fromisoformat(record["created_at"])) == ("\\x00ff", at)
    unset = json.loads(put_many([put_of(KEYS[0], text)]).params["messages"])[0]
    assert not unset.keys() & {"metadata", "calls", "answers", "created_at"}, "as NULL in the rows"
