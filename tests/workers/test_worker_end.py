"""A worker ends: it waits for its threads, which cope if a resource is closed under them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from strandline.schemas.errors import DatabaseTimeoutError, DatabaseUnavailableError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.query import Query
from strandline.schemas.settings import Settings
from strandline.workers.periodic import Periodic
from strandline.workers.worker import CLAIM_SECONDS, Worker
from tests.conftest import Rig
from tests.support.workers.hand_worker import CountingStage, HandWorker, counting, say, summary_lane

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
