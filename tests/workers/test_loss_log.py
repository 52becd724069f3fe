"""A worker's log when a server goes and comes back: one line for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from strandline import Memory
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.wiring.assembly import prepare_stages
from tests.chaos.servers import PostgresServer
from tests.conftest import PUBLIC_APIS_ONLY, Rig, needs_internals, nothing_due, rows_of, wait_until
from tests.support.servers.broker_proxy import BrokerProxy
from tests.support.workers.worker_processes import WorkerProcess, launch_worker

pytestmark = pytest.mark.timeout(600)

QUICK = {"STRANDLINE_SWEEP_INTERVAL_SECONDS": "0.1", "STRANDLINE_HEARTBEAT_INTERVAL_SECONDS": "0.1"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A Postgres of the test's own, with tables and pipelines."""
    running = PostgresServer(tmp_path)
    running.start()
    migrate(running.url, "strandline")
    settings = load_settings(text_backend="local", embedding_backend="local")
    database = Database.connect(ConnectionOptions.from_settings(running.url, settings))
    prepare_stages(database, settings)
    database.close()
    yield running
    running.stop()


@pytest.fixture
def start(broker_url: str) -> Iterator[Callable[[str, str], WorkerProcess]]:
    started: list[WorkerProcess] = []

    def launch(database_url: str, broker: str) -> WorkerProcess:
        worker = launch_worker(database_url, broker, **QUICK)
        started.append(worker)
        wait_until(lambda: "is ready" in "".join(worker.output), timeout=60, what="the worker")
        return worker

    yield launch
    for worker in started:
        worker.end()
        print("".join(worker.output))


def said(worker: WorkerProcess) -> list[str]:
    """Its lines since it was ready; not those that libraries add where they are left to themselves."""
    lines = "".join(worker.output).splitlines()
    ready = next(number for number, line in enumerate(lines) if "is ready" in line)
    return [line for line in lines[ready + 1 :] if not PUBLIC_APIS_ONLY or is_ours(line)]


def is_ours(line: str) -> bool:
    """Whether a logger of ours wrote it."""
    return " strandline." in line.partition(": ")[0]


def work_through(memory: Memory, url: str, number: int) -> None:
    memory.put({"role": "user", "content": f"I saw {number} gulls."})
    memory.flush(all=True)
    counted = "SELECT count(*) FROM strandline.receipt WHERE stage = 'summary'"
    wait_until(lambda: rows_of(url, counted) == [(number,)], timeout=60, what="the work to be done")


def keep_on_disk(url: str) -> None:
    """Wait for all work and write it to the disk: workers do not wait, and a crash could undo a lane."""
    wait_until(lambda: nothing_due(url), timeout=60, what="all work")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")


def test_a_loss_of_postgres_is_one_line_and_its_end_another(
    rig: Rig, server: PostgresServer, start: Callable[..., WorkerProcess]
) -> None:
    worker = start(server.url, rig.broker_url)
    memory = rig.memory("s", database_url=server.url, broker_url=rig.broker_url)
    work_through(memory, server.url, 1)
    for loss in (1, 2):
        keep_on_disk(server.url)
        server.crash()
        wait_until(lambda: len(said(worker)) == 2 * loss - 1, timeout=30, what="the loss")  # noqa: B023
        server.start()
        work_through(memory, server.url, 1 + loss)
    lines = said(worker)
    assert ["database away" in line for line in lines] == [True, False] * 2, lines
    assert ["database is back" in line for line in lines] == [False, True] * 2, lines


@needs_internals
def test_a_loss_of_the_broker_is_one_line_and_its_end_another(
    rig: Rig, start: Callable[..., WorkerProcess]
) -> None:
    with BrokerProxy(rig.broker_url) as broker:
        worker = start(rig.url, broker.url)
        memory = rig.memory("s", broker_url=rig.broker_url)
        work_through(memory, rig.url, 1)
        for loss in (1, 2):
            broker.down()
            wait_until(lambda: len(said(worker)) == 2 * loss - 1, timeout=30, what="the loss")  # noqa: B023
            broker.up()
            wait_until(lambda: len(said(worker)) >= 2 * loss, timeout=30, what="its end")  # noqa: B023
            work_through(memory, rig.url, 1 + loss)
        lines = said(worker)
        assert ["broker away" in line for line in lines] == [True, False] * 2, lines
        assert ["broker is back" in line for line in lines] == [False, True] * 2, lines
