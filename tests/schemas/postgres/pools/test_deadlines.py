"""Connections that are cut without a word: whoever waits for Postgres waits within a deadline of his own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from strandline import OutcomeUnknownError
from strandline.schemas.errors import DatabaseBusyError, DatabaseTimeoutError, DatabaseUnavailableError
from strandline.schemas.postgres import deadlines
from strandline.schemas.postgres.async_database import AsyncDatabase
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.deadlines import BoundedConnection
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.conversation.sessions import FindOwner, FindOwnerRow
from strandline.schemas.queries.work.workers import Beat
from strandline.schemas.settings import Settings
from strandline.workers.worker import Worker
from tests.conftest import MakeMemory, Rig, needs_internals, rows_of, wait_until
from tests.support.opened_rows import clear_only
from tests.support.proxies.stalling_proxy import Direction, StallingProxy
from tests.support.stored import registered_workers
from tests.support.workers.hand_worker import CountingStage, HandWorker, counting, folded, say, summary_lane

LOOK = FindOwner(directory_key=UUID(int=1))


class LookOnce(Query[FindOwnerRow], name="find_owner"):
    """The same, as a statement that may not be repeated."""

    directory_key: UUID


LOOK_ONCE = LookOnce(directory_key=UUID(int=1))
BOTH_WAYS = pytest.mark.parametrize("direction", ["asked", "answered"])
STORED = "SELECT id FROM strandline.message ORDER BY seq"

pytestmark = [needs_internals, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _short_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_STATEMENT_TIMEOUT_SECONDS", "0.5")
    monkeypatch.setenv("STRANDLINE_CONNECT_TIMEOUT_SECONDS", "2")
    monkeypatch.setenv("STRANDLINE_POOL_TIMEOUT_SECONDS", "4")


@pytest.fixture
def proxy(database_url: str) -> Iterator[StallingProxy]:
    with StallingProxy(database_url) as running:
        yield running


@pytest.fixture
def through(proxy: StallingProxy, settings: Settings) -> Iterator[Database]:
    impatient = settings.model_copy(update={"statement_timeout_seconds": 0.5})
    opened = Database.connect(ConnectionOptions.from_settings(proxy.url, impatient))
    yield opened
    opened.close()


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text, "id": text}


@BOTH_WAYS
def test_a_put_on_a_connection_cut_without_a_word_is_repeated_and_there_once(
    rig: Rig, direction: Direction, proxy: StallingProxy
) -> None:
    memory = rig.memory("s", database_url=proxy.url, memory_blocks=[])
    assert memory.put(said("first")) == 1
    proxy.stall(direction)
    assert memory.put(said("second")) == 2
    assert proxy.swallowed.is_set()
    assert memory.put(said("third")) == 3
    assert rows_of(rig.url, STORED) == [("first",), ("second",), ("third",)]


@BOTH_WAYS
def test_an_async_put_is_repeated_and_there_once(
    rig: Rig, direction: Direction, proxy: StallingProxy
) -> None:
    memories = [rig.memory(f"s{n}", database_url=proxy.url, memory_blocks=[]) for n in range(5)]

    async def put_all(text: str) -> list[int]:
        return await asyncio.gather(*(memory.aput(said(text)) for memory in memories))

    async def main() -> None:
        assert await put_all("first") == [1] * 5
        proxy.stall(direction)
        assert await put_all("second") == [2] * 5
        assert proxy.swallowed.is_set()
        for memory in memories:
            await memory.aclose()

    asyncio.run(main())
    counted = "SELECT id, count(*)::int FROM strandline.message GROUP BY 1 ORDER BY 1"
    assert rows_of(rig.url, counted) == [("first", 5), ("second", 5)]


def test_a_read_on_a_connection_cut_without_a_word_is_repeated(
    proxy: StallingProxy, make_memory: MakeMemory
) -> None:
    memory = make_memory("s", database_url=proxy.url, memory_blocks=[])
    memory.put(said("first"))
    proxy.stall("answered")
    assert [message.text for message in memory.get()] == ["first"]


def test_a_statement_that_must_not_be_repeated_has_an_unknown_outcome(
    proxy: StallingProxy, through: Database
) -> None:
    through.fetch(LOOK_ONCE)
    proxy.stall("answered")
    with pytest.raises(OutcomeUnknownError, match="unknown"):
        through.fetch(LOOK_ONCE)
    assert through.fetch(LOOK_ONCE) == [], "the next one has another connection"
    assert proxy.connections >= 2


def test_behind_a_pooler_statements_have_a_deadline_too(proxy: StallingProxy, settings: Settings) -> None:
    pooled = {"statement_timeout_seconds": 0.5, "database_pooler": "transaction"}
    options = ConnectionOptions.from_settings(proxy.url, settings.model_copy(update=pooled))
    database = Database.connect(options)
    try:
        database.fetch(LOOK_ONCE)
        proxy.stall("asked")
        assert database.fetch(LOOK) == []
        assert proxy.swallowed.is_set()
    finally:
        database.close()


def test_a_put_that_never_gets_through_is_told_so(proxy: StallingProxy, make_memory: MakeMemory) -> None:
    memory = make_memory("s", database_url=proxy.url, memory_blocks=[])
    memory.put(said("first"))
    proxy.stall("asked", newer=True)
    with pytest.raises(DatabaseUnavailableError):
        memory.put(said("second"))


def test_a_transaction_cut_before_its_commit_was_sent_has_done_nothing(
    proxy: StallingProxy, through: Database, database_url: str
) -> None:

    def cut_short() -> None:
        with through.transaction() as tx:
            tx.fetch(beat_of())
            proxy.stall("answered")
            tx.fetch(LOOK_ONCE)

    with pytest.raises(DatabaseUnavailableError, match="did not answer"):
        cut_short()
    assert registered_workers(database_url) == 0
    with through.transaction() as tx:
        assert tx.fetch(LOOK_ONCE) == []


def test_a_transaction_whose_commit_is_not_answered_has_an_unknown_outcome(
    proxy: StallingProxy, through: Database, database_url: str
) -> None:

    def commit() -> None:
        with through.transaction() as tx:
            tx.fetch(beat_of())
            proxy.stall("answered")

    with pytest.raises(OutcomeUnknownError):
        commit()
    assert registered_workers(database_url) == 1, "it was done"


def beat_of() -> Beat:
    return Beat(worker_id=uuid4(), host="h", pid=1, version="1", stages=["extract"])


def test_a_statement_that_postgres_itself_ends_leaves_its_connection_open(through: Database) -> None:
    """The server ends a statement itself, and the connection goes on."""
    used: list[psycopg.Connection[Any]] = []

    def oversleep() -> None:
        with through.transaction() as tx:
            used.append(tx._connection)
            tx._connection.execute("SELECT pg_sleep(60)")

    with pytest.raises(DatabaseTimeoutError):
        oversleep()
    assert isinstance(used[0], BoundedConnection)
    assert not used[0].closed


def test_a_callers_own_connection_is_neither_closed_nor_repeated(
    rig: Rig, proxy: StallingProxy, through: Database
) -> None:
    """It waits for as long as its owner lets it, also when a later statement of ours was given up."""
    memory = rig.memory("s", memory_blocks=[])
    memory.put(said("first"))
    through.fetch(LOOK_ONCE)
    with psycopg.connect(proxy.url) as own, ThreadPoolExecutor(1) as threads:
        memory.put(said("second"), connection=own)
        own.commit()
        proxy.stall("answered")
        waiting = threads.submit(memory.put, said("third"), connection=own)
        wait_until(proxy.swallowed.is_set, timeout=10, what="the put to be answered")
        with pytest.raises(OutcomeUnknownError):
            through.fetch(LOOK_ONCE)
        assert not waiting.done()
        assert not own.closed
        proxy.cut()
        with pytest.raises(DatabaseUnavailableError):
            waiting.result(300)
    assert rows_of(rig.url, STORED) == [("first",), ("second",)], "what its owner did not commit"


@clear_only("the statement that hangs would be that for keys, which is repeated")
@BOTH_WAYS
def test_a_lane_whose_thread_hangs_in_a_statement_is_taken_over(
    rig: Rig, direction: Direction, proxy: StallingProxy, through: Database
) -> None:
    """Its worker beats on other connections, and would vouch for the lane until its lease's deadline."""
    say(rig.memory("s"), "first")
    lane = summary_lane(rig.url, "s")
    cut = CountingStage(fail=lambda _batch: proxy.stall(direction))
    first = Worker(through, counting(cut), rig.settings, ring=lambda _lanes: None, with_sweep=False)
    second = HandWorker(rig.database, counting())
    first.start()
    try:
        assert first.drain(lane) == "lost"
        assert proxy.swallowed.is_set()
        wait_until(lambda: second.drain(lane) == "drained", timeout=30, what="the lane to be released")
        assert folded(rig.url) == [1]
        assert len(rows_of(rig.url, "SELECT 1 FROM strandline.worker")) == 2, "the first still lives"
    finally:
        first.stop()


def test_a_heartbeat_on_a_connection_cut_without_a_word_goes_on_by_another(
    rig: Rig, proxy: StallingProxy
) -> None:
    """Long before the deadline of a statement, by when the worker would count as dead."""
    patient = rig.settings.model_copy(update={"statement_timeout_seconds": 600.0})
    through = Database.connect(ConnectionOptions.from_settings(proxy.url, patient))
    worker = Worker(through, counting(), patient, ring=lambda _lanes: None, with_sweep=False)
    beaten = "SELECT heartbeat_at FROM strandline.worker"
    worker._beat()
    last = rows_of(rig.url, beaten)
    proxy.stall("asked")
    with ThreadPoolExecutor() as threads:
        beating = threads.submit(worker._beat)
        beating.result(300)
    assert proxy.swallowed.is_set()
    assert rows_of(rig.url, beaten) > last
    through.close()


class Clock:
    """The deadlines' clock, which moves as a test says when a connection is lent: that long was the wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *waits: float) -> None:
        self._waits = iter(waits)
        self._moved = 0.0
        monkeypatch.setattr(deadlines, "monotonic", lambda: time.monotonic() + self._moved)

    def lends(self, connection: Callable[..., Any]) -> Callable[..., Any]:
        def lend(*timeout: Any) -> Any:
            self._moved += next(self._waits, 0.0)
            return connection(*timeout)

        return lend


def cut_off(pid: int, url: str) -> None:
    """End a connection that lies in a pool, and see it gone."""
    rows_of(url, "SELECT pg_terminate_backend(%s)", pid)
    gone = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
    wait_until(lambda: rows_of(url, gone, pid) == [(0,)], timeout=10, what="the connection's end")


def await_waiting(url: str) -> None:
    """Wait until a statement has waited for a lock while its client looked at its deadline twice."""
    waits = "SELECT count(*) FROM pg_locks WHERE clock_timestamp() - waitstart > interval '0.5 s'"
    wait_until(lambda: rows_of(url, waits) == [(1,)], timeout=20, what="a statement to wait")


def patiently(url: str, settings: Settings) -> ConnectionOptions:
    """So that Postgres does not end a statement that waits for a lock."""
    return ConnectionOptions.from_settings(
        url, settings.model_copy(update={"statement_timeout_seconds": 600.0})
    )


def test_a_long_wait_for_a_connection_leaves_time_for_another(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = Database.connect(patiently(rig.url, rig.settings))
    try:
        through.fetch(LOOK_ONCE)
        with through._pool.connection() as connection:
            pid = connection.info.backend_pid
        cut_off(pid, rig.url)
        lends = Clock(monkeypatch, 3600.0).lends(through._pool.connection)
        monkeypatch.setattr(through._pool, "connection", lends)
        with psycopg.connect(rig.url) as blocker, ThreadPoolExecutor(1) as threads:
            blocker.execute("LOCK TABLE strandline.worker")
            beat = threads.submit(through.fetch, beat_of())
            await_waiting(rig.url)
            blocker.rollback()
            beat.result(300)
    finally:
        through.close()
    assert registered_workers(rig.url) == 1


async def test_on_an_event_loop_there_is_time_for_another_connection_as_well(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = AsyncDatabase.connect(patiently(rig.url, rig.settings))
    await through.fetch(LOOK_ONCE)
    async with through._pool.connection() as connection:
        pid = connection.info.backend_pid
    await asyncio.to_thread(cut_off, pid, rig.url)
    lends = Clock(monkeypatch, 3600.0).lends(through._pool.connection)
    monkeypatch.setattr(through._pool, "connection", lends)
    with psycopg.connect(rig.url) as blocker:
        blocker.execute("LOCK TABLE strandline.worker")
        beat = asyncio.create_task(through.fetch(beat_of()))
        await asyncio.to_thread(await_waiting, rig.url)
        blocker.rollback()
        await asyncio.wait_for(beat, 300)
    await through.close()
    assert registered_workers(rig.url) == 1


def test_a_statement_whose_time_is_up_is_not_sent(
    proxy: StallingProxy, through: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    through.fetch(LOOK_ONCE)
    proxy.stall("asked")
    lends = Clock(monkeypatch, 0.0, 3600.0).lends(through._pool.connection)
    monkeypatch.setattr(through._pool, "connection", lends)
    with pytest.raises(OutcomeUnknownError):
        through.fetch(beat_of())
    assert through.fetch(LOOK_ONCE) == [], "what was sent before it on that connection is done"
    assert registered_workers(database_url) == 0


@pytest.mark.parametrize(("ask", "sent"), [("fetch", 3), ("fetch_within", 2)])
def test_all_attempts_at_a_statement_share_one_deadline(
    ask: str, sent: int, through: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at one that another transaction is in the way of each time; a connection comes at 0.7 of each."""
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE SEQUENCE tries")
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " PERFORM nextval('tries'); RAISE SQLSTATE '40001'; END $$"
        )
        connection.execute(
            "CREATE TRIGGER refused BEFORE INSERT ON strandline.worker FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    seconds = through._statement_seconds
    lends = Clock(monkeypatch, *[0.7 * seconds] * 9).lends(through._pool.connection)
    monkeypatch.setattr(through._pool, "connection", lends)
    asked: dict[str, Callable[[Beat], object]] = {
        "fetch": through.fetch,
        "fetch_within": partial(through.fetch_within, seconds),
    }
    with pytest.raises(DatabaseBusyError):
        asked[ask](beat_of())
    # Of two times the seconds: without the first wait at 0, 0.7 and 1.4; with it at 0.7 and 1.4.
    assert rows_of(database_url, "SELECT last_value FROM tries") == [(sent,)]


@pytest.fixture
def single(proxy: StallingProxy, settings: Settings) -> ConnectionOptions:
    """Of a pool with one connection, for which nobody waits long."""
    one = {"statement_timeout_seconds": 0.5, "pool_max_size": 1, "pool_timeout_seconds": 0.2}
    return ConnectionOptions.from_settings(proxy.url, settings.model_copy(update=one))


def test_a_repetition_without_a_free_connection_does_not_say_that_nothing_was_done(
    proxy: StallingProxy, single: ConnectionOptions, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt took effect; then another thread has the only connection."""
    through = Database.connect(single)
    lend, lent = through._pool.connection, count()
    with ExitStack() as elsewhere:

        def lend_elsewhere_first(*timeout: float | None) -> Any:
            if next(lent) == 1:
                elsewhere.enter_context(lend(30.0))
            return lend(*timeout)

        through.fetch(LOOK)
        proxy.stall("answered")
        monkeypatch.setattr(through._pool, "connection", lend_elsewhere_first)
        with pytest.raises(OutcomeUnknownError) as told:
            through.fetch(beat_of())
    through.close()
    assert "nothing was" not in str(told.value)
    assert registered_workers(database_url) == 1


async def test_nor_does_one_of_an_event_loop(
    proxy: StallingProxy, single: ConnectionOptions, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = AsyncDatabase.connect(single)
    pool, lent = through._pool, count()
    async with AsyncExitStack() as elsewhere:

        @asynccontextmanager
        async def lend_elsewhere_first() -> AsyncIterator[Any]:
            if next(lent) == 1:
                await elsewhere.enter_async_context(lend())
            async with lend() as connection:
                yield connection

        await through.fetch(LOOK)
        proxy.stall("answered")
        lend = pool.connection
        monkeypatch.setattr(pool, "connection", lend_elsewhere_first)
        with pytest.raises(OutcomeUnknownError) as told:
            await through.fetch(beat_of())
    await through.close()
    assert "nothing was" not in str(told.value)
    assert registered_workers(database_url) == 1
