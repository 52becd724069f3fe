"""A worker ends: it waits for its threads, which cope if a resource is closed under them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest

from strandline import DatabaseUnavailableError
from strandline.pipelines.engine.batches import claim
from strandline.pipelines.engine.drain import Turn
from strandline.schemas.errors import BudgetError, DatabaseTimeoutError, StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.work.workers import Beat
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import Lane
from strandline.workers.periodic import Periodic
from strandline.workers.worker import CLAIM_SECONDS, Worker, follow
from tests.conftest import Rig, rows_of, wait_until
from tests.support.workers.hand_worker import TERMS, CountingStage, HandWorker, counting, say, summary_lane

R = TypeVar("R")


class Slow(Database):
    """Looks for replays only when told to go on, and may be gone by then."""

    looking: threading.Event
    go_on: threading.Event
    left: threading.Event

    def fetch(self, query: Query[R]) -> list[R]:
        if query.name == "replay_lanes":
            self.looking.set()
            assert self.go_on.wait(100)
            if self.left.is_set():
                raise DatabaseUnavailableError("the connection pool is closed")
        elif query.name == "leave":
            self.left.set()
        return super().fetch(query)


@pytest.fixture
def slow(database_url: str, settings: Settings) -> Iterator[Slow]:
    slow = Slow.connect(ConnectionOptions.from_settings(database_url, settings))
    slow.looking, slow.go_on, slow.left = (threading.Event() for _ in range(3))
    yield slow
    slow.go_on.set()
    slow.close()


def looking(slow: Slow, settings: Settings) -> Worker:
    """A worker one of whose threads is looking for replays."""
    worker = Worker(slow, counting(), settings, ring=lambda _lanes: None, with_sweep=False)
    worker.start()
    assert slow.looking.wait(100)
    return worker


def test_a_look_under_way_is_waited_for(slow: Slow, settings: Settings) -> None:
    """The caller that stops a worker closes the database next."""
    worker = looking(slow, settings)
    with ThreadPoolExecutor() as threads:
        ending = threads.submit(worker.stop)
        assert not slow.left.wait(0.2)
        slow.go_on.set()
        ending.result(100)
    assert slow.left.is_set()


def test_a_look_that_takes_too_long_loses_its_connection_without_a_warning(
    slow: Slow, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """As a script on a slow machine would otherwise print at its end, where nothing is wrong."""
    worker = looking(slow, settings)
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "strandline-replay-0")
    with caplog.at_level(logging.INFO, logger="strandline"):
        worker.stop()  # after CLAIM_SECONDS at most
        slow.go_on.set()
        thread.join(10 + CLAIM_SECONDS)
    said = [(record.levelname, record.message) for record in caplog.records]
    assert said == [("INFO", "replay failed")]


@pytest.mark.parametrize(
    ("error", "stopping", "level"),
    [
        (DatabaseTimeoutError("a lock"), False, "WARNING"),
        (DatabaseTimeoutError("a lock"), True, "INFO"),
        (DatabaseUnavailableError("the connection pool is closed"), False, "INFO"),
        (DatabaseUnavailableError("the connection pool is closed"), True, "INFO"),
    ],
)
def test_a_slow_database_is_trouble_unless_the_process_ends_and_one_that_is_away_is_said_once_elsewhere(
    rig: Rig, error: DatabaseUnavailableError, stopping: bool, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(_event: object) -> None:
        raise error

    say(rig.memory("s", memory_blocks=["summary"]), "one")
    worker = HandWorker(rig.database, counting(CountingStage(fail=gone)))
    worker.stopping = stopping
    with caplog.at_level(logging.INFO, logger="strandline"):
        assert worker.drain(summary_lane(rig.url, "s")) == "lost"
    assert [(one.levelname, one.message) for one in caplog.records] == [(level, "database unavailable")]


def test_a_tick_that_outlasts_its_stop_fails_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    ticking, go_on, failed = (threading.Event() for _ in range(3))

    def tick() -> None:
        ticking.set()
        assert go_on.wait(100)
        failed.set()
        raise DatabaseUnavailableError("the connection pool is closed")

    periodic = Periodic("test", 0.001, tick)
    with caplog.at_level(logging.INFO, logger="strandline"):
        periodic.start()
        assert ticking.wait(100)
        periodic.stop(timeout_seconds=0.01)
        go_on.set()
        periodic.stop()
    assert failed.is_set()
    assert [(one.levelname, one.message) for one in caplog.records] == [("INFO", "periodic work failed")]


# The heartbeat waits for nothing but itself: a worker that waits for something else still lives.
BEATEN = "SELECT heartbeat_at FROM strandline.worker"
LIMIT = (
    "INSERT INTO strandline.namespace_limit (namespace, calls_per_day) VALUES ('default', %s)"
    " RETURNING namespace"
)
WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@contextmanager
def held(url: str, lock: str) -> Iterator[None]:
    """Keep it locked by another transaction."""
    with psycopg.connect(url) as connection:
        connection.execute(lock.encode())
        yield


@pytest.fixture
def worker(settings: Settings, database_url: str) -> Iterator[Worker]:
    """A worker that has not begun to beat by itself, and whose statements may wait longer than a test may."""
    patient = settings.model_copy(
        update={"heartbeat_interval_seconds": 0.1, "statement_timeout_seconds": 600.0}
    )
    database = Database.connect(ConnectionOptions.from_settings(database_url, patient))
    worker = Worker(database, counting(), patient, ring=lambda _lanes: None, with_sweep=False)
    yield worker
    worker.stop()
    database.close()


def await_lock(url: str) -> None:
    """Wait until a session of Postgres waits for a lock."""
    wait_until(lambda: rows_of(url, WAITS) != [(0,)], timeout=30, what="somebody to wait for a lock")


def await_beats(url: str) -> None:
    """Until the worker has beaten twice more: one beat may have been under way."""
    for _time in range(2):
        last = rows_of(url, BEATEN)
        wait_until(lambda last=last: rows_of(url, BEATEN) > last, timeout=10, what="a beat")  # type: ignore[misc]


def test_a_worker_beats_while_a_thread_of_it_waits_for_a_slice(worker: Worker, database_url: str) -> None:
    rows_of(database_url, LIMIT, 0)
    worker.start()
    with ThreadPoolExecutor() as threads:
        with held(database_url, "SELECT FROM strandline.namespace_limit FOR UPDATE"):
            asking = threads.submit(worker._budgets.admit, "default", 10)
            await_lock(database_url)
            await_beats(database_url)
            assert not asking.done()
        with pytest.raises(BudgetError):
            asking.result(300)


@pytest.mark.parametrize("table", ["lane", "budget_slice"])
def test_a_worker_beats_while_what_else_it_writes_waits_for_a_lock(
    table: str, worker: Worker, database_url: str
) -> None:
    rows_of(database_url, LIMIT, 100)
    worker.start()
    worker._budgets.admit("default", 10)
    # It ends soon, and is to be returned.
    worker._budgets._shares.of("default")._ends_at = 1.0
    with held(database_url, f"LOCK TABLE strandline.{table}"):
        await_lock(database_url)
        await_beats(database_url)


def test_a_beat_waits_for_a_connection_no_longer_than_for_its_answer(rig: Rig) -> None:
    """The pool itself would let it wait for the length of this test."""
    patient = rig.settings.model_copy(update={"pool_timeout_seconds": 600.0})
    only_one = Database.connect(ConnectionOptions.from_settings(rig.url, patient, pool_size=1))
    with ThreadPoolExecutor() as threads:
        beat = Beat(worker_id=uuid4(), host="h", pid=1, version="1", stages=[])
        with only_one.transaction():
            beating = threads.submit(only_one.fetch_within, 0.1, beat)
            with suppress(StrandlineError):
                wait_until(beating.done, timeout=30, what="the beat to be given up")
            given_up = beating.done()
        assert given_up
        with pytest.raises(DatabaseTimeoutError):
            beating.result(300)
    only_one.close()


@pytest.mark.parametrize("leaves", [True, False])
def test_lanes_are_handed_back_though_what_was_used_of_a_budget_cannot_be_written(
    rig: Rig, leaves: bool, worker: Worker
) -> None:
    rows_of(rig.url, LIMIT, 100)
    say(rig.memory("s"), "one")
    worker._beat()
    worker._budgets.admit("default", 10)
    worker._budgets._shares.of("default")._ends_at = 1.0
    lane = summary_lane(rig.url, "s")
    assert claim(rig.database, lane, worker.worker_id, TERMS, 8_000) is not None
    rows_of(rig.url, "UPDATE strandline.lane SET leased_at = leased_at - interval '1 minute' RETURNING 1")
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE strandline.budget_slice RENAME TO not_there")
        if leaves:
            assert worker.leave() == [lane]
        else:
            with pytest.raises(StrandlineError):
                worker._keep_up()
        connection.execute("ALTER TABLE strandline.not_there RENAME TO budget_slice")
    assert rows_of(rig.url, "SELECT holder FROM strandline.lane") == [(None,)]


# A thread that drained a lane goes on with what this gave work to, and leaves the rest to others.


def lane(stage: str, number: int = 0) -> Lane:
    return Lane(UUID(int=1), UUID(int=number), 1, stage)


class Work:
    """Drains by name: each lane gives work to the lanes given for it, once."""

    def __init__(self, next_lanes: dict[Lane, list[Lane]], unserved: tuple[Lane, ...] = ()) -> None:
        self.next_lanes, self.unserved = next_lanes, unserved
        self.drained: list[Lane] = []
        self.rung: list[Lane] = []
        self.stopping = False

    def drain(self, one: Lane) -> Turn:
        self.drained.append(one)
        outcome = "unserved" if one in self.unserved else "drained"
        return Turn(one, outcome, tuple(self.next_lanes.pop(one, [])))  # type: ignore[arg-type]

    def follow(self) -> None:
        follow(self.drain(lane("extract")), self.drain, self.rung.extend, lambda: self.stopping)


def test_each_lane_that_was_given_work_is_drained_once() -> None:
    work = Work({lane("extract"): [lane("merge"), lane("summary"), lane("merge")]})
    work.follow()
    assert (work.drained, work.rung) == ([lane("extract"), lane("merge"), lane("summary")], [])


def test_a_lane_that_has_work_again_is_drained_again() -> None:
    work = Work({lane("extract"): [lane("extract"), lane("merge")], lane("merge"): [lane("merge", 2)]})
    work.follow()
    assert work.drained == [lane("extract"), lane("extract"), lane("merge"), lane("merge", 2)]


def test_a_worker_that_stops_or_cannot_serve_leaves_them_to_others() -> None:
    work = Work({lane("extract"): [lane("merge"), lane("merge", 2)]}, unserved=(lane("merge"),))
    work.follow()
    assert (work.drained[-1], work.rung) == (lane("merge", 2), [lane("merge")])
    work = Work({lane("extract"): [lane("merge")]})
    work.stopping = True
    work.follow()
    assert (work.drained, work.rung) == ([lane("extract")], [lane("merge")])


def test_following_lanes_that_could_not_be_drained_are_rung_for() -> None:
    work = Work({lane("extract"): [lane("merge"), lane("merge", 2)]})
    first = work.drain(lane("extract"))

    def fail(_lane: Lane) -> Turn:
        raise DatabaseUnavailableError("Postgres does not answer.")

    with pytest.raises(DatabaseUnavailableError):
        follow(first, fail, work.rung.extend, lambda: False)
    assert work.rung == [lane("merge"), lane("merge", 2)]
