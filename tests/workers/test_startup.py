"""A worker that is started before its servers, or while they restart: it waits, and says for what."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from strandline.schemas.errors import BrokerUnavailableError, DatabaseUnavailableError
from strandline.schemas.settings import load_settings
from strandline.workers.celery_app.app import make_app
from strandline.workers.startup import Patience
from tests.conftest import Rig, rows_of, wait_until
from tests.support.proxies.stalling_proxy import StallingProxy
from tests.support.servers.broker_proxy import BrokerProxy
from tests.support.workers.worker_processes import WorkerProcess, launch_worker

NOBODY = "redis://:s3cret@127.0.0.1:1/0"


@pytest.fixture
def running() -> Iterator[list[WorkerProcess]]:
    """Workers that a test has started; ended after it."""
    started: list[WorkerProcess] = []
    yield started
    for worker in started:
        worker.end()


def begin(running: list[WorkerProcess], database_url: str, broker_url: str, wait: str) -> WorkerProcess:
    """Start a worker process without waiting for it."""
    worker = launch_worker(
        database_url, broker_url, "--queues", "summary", STRANDLINE_STARTUP_WAIT_SECONDS=wait
    )
    running.append(worker)
    return worker


def said(worker: WorkerProcess, words: str) -> int:
    return sum(words in line for line in list(worker.output))


def test_a_worker_waits_for_a_broker_that_starts_after_it(rig: Rig, running: list[WorkerProcess]) -> None:
    with BrokerProxy(rig.broker_url) as broker:
        broker.down()
        worker = begin(running, rig.url, broker.url, "600")
        wait_until(lambda: said(worker, "server=the broker"), timeout=60, what="the worker to say so")
        broker.up()
        wait_until(lambda: said(worker, "is ready"), timeout=60, what="the worker to be ready")
        assert said(worker, "worker waits for a server") == 1
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(300) == 0
    wait_until(lambda: said(worker, "stops (SIGTERM)"), timeout=5, what="the reason why it stops")


def test_a_worker_waits_for_a_postgres_that_starts_after_it(rig: Rig, running: list[WorkerProcess]) -> None:
    """As long as a server has not started, nothing listens on its port."""
    with StallingProxy(rig.url) as gone:
        pass
    port = urlsplit(gone.url).port
    assert port is not None
    worker = begin(running, gone.url, rig.broker_url, "600")
    wait_until(lambda: said(worker, "server=Postgres"), timeout=60, what="the worker to say so")
    pids = "SELECT pid FROM strandline.worker"
    with StallingProxy(rig.url, port=port):
        wait_until(
            lambda: rows_of(rig.url, pids) == [(worker.pid,)],
            timeout=60,
            what="the worker to register",
        )
        assert said(worker, "worker waits for a server") == 1
        worker.end()


@pytest.mark.parametrize("away", ["Postgres", "The broker"])
def test_a_worker_whose_server_stays_away_ends_with_a_sentence(
    rig: Rig, away: str, running: list[WorkerProcess]
) -> None:
    nowhere = urlsplit(NOBODY)._replace(scheme="postgresql", path="/nowhere").geturl()
    urls = (nowhere, rig.broker_url) if away == "Postgres" else (rig.url, NOBODY)
    worker = begin(running, *urls, "0.2")
    assert worker.process.wait(300) == 1
    wait_until(
        lambda: said(worker, f"{away} did not answer within 0.2 seconds of the worker's start"),
        timeout=5,
        what="the sentence",
    )
    assert "Traceback" not in "".join(worker.output)
    assert "s3cret" not in "".join(worker.output)


def test_each_server_is_asked_once_at_least(database_url: str) -> None:
    patience = Patience(0.0)
    calls = []

    def start() -> None:
        calls.append(1)
        raise DatabaseUnavailableError("Postgres is starting up.")

    with pytest.raises(DatabaseUnavailableError, match=r"STARTUP_WAIT_SECONDS.*is starting up"):
        patience.for_postgres(start)
    with pytest.raises(BrokerUnavailableError, match="STRANDLINE_BROKER_URL"):
        patience.for_broker(make_app(load_settings(), NOBODY, ["summary"]))
    assert calls == [1]
    assert patience.for_postgres(lambda: "there") == "there"


def test_one_time_is_waited_for_all_servers_together() -> None:
    """Postgres takes an hour of it; 600 seconds pass from one look at the clock to the next."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 600.0
        return now

    def start() -> str:
        if now < 3_600.0:
            raise DatabaseUnavailableError("Postgres is starting up.")
        return "there"

    patience = Patience(7_200.0, clock)
    assert patience.for_postgres(start) == "there"
    with pytest.raises(BrokerUnavailableError, match="within 7200 seconds"):
        patience.for_broker(make_app(load_settings(), NOBODY, ["summary"]))
    # Of the first look, what is waited, and the look that finds the time over.
    assert 7_200.0 + 600.0 <= now <= 7_200.0 + 1_200.0
