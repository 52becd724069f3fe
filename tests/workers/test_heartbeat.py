"""The heartbeat waits for nothing but itself: a worker that waits for something else still lives."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from uuid import uuid4

import psycopg
import pytest

from strandline.pipelines.engine.batches import claim
from strandline.schemas.errors import BudgetError, DatabaseTimeoutError, StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.queries.work.workers import Beat
from strandline.schemas.settings import Settings
from strandline.workers.worker import Worker
from tests.conftest import Rig, rows_of, wait_until
from tests.support.workers.hand_worker import TERMS, counting, say, summary_lane

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
