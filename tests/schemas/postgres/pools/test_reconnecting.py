"""Postgres ends and comes back: whoever waits goes on at once, however long it was away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg_pool import ConnectionPool

from strandline.schemas.errors import DatabaseUnavailableError
from strandline.schemas.postgres.async_database import AsyncDatabase
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.pools.reconnecting import RECONNECT_SECONDS
from strandline.schemas.postgres.pools.thin_pool import ThinPool
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.derived.generations import ServingGenerations
from strandline.schemas.queries.rows import GenerationRow
from strandline.schemas.settings import load_settings
from tests.chaos.servers import PostgresServer
from tests.conftest import wait_until

CONNECTIONS = 8
LOOK = ServingGenerations()


class LookOnce(Query[GenerationRow], name="serving_generations"):
    """The same, as a statement that may not be repeated."""


LOOK_ONCE = LookOnce()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A Postgres that these tests may end."""
    running = PostgresServer(tmp_path_factory.mktemp("reconnecting"))
    running.start()
    migrate(running.url, "strandline")
    yield running
    running.stop()


@pytest.fixture
def options(server: PostgresServer) -> ConnectionOptions:
    patient = load_settings(pool_timeout_seconds=300.0)
    return ConnectionOptions.from_settings(server.url, patient, pool_size=CONNECTIONS)


@pytest.fixture
def database(options: ConnectionOptions) -> Iterator[Database]:
    opened = Database.connect(options)
    yield opened
    opened.close()


def fill_pool(database: Database) -> None:
    """Have it open all the connections that it may."""
    together = threading.Barrier(CONNECTIONS)

    def hold() -> None:
        with database.transaction() as tx:
            tx.fetch(LOOK_ONCE)
            together.wait(100)

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for done in [threads.submit(hold) for _ in range(CONNECTIONS)]:
            done.result()


def test_one_statement_at_most_meets_a_dead_connection(server: PostgresServer, database: Database) -> None:
    for attempt in (_fetch_once, _use_transaction):
        fill_pool(database)
        server.crash()
        server.start()
        with pytest.raises(DatabaseUnavailableError):
            attempt(database)
        for _ in range(CONNECTIONS):
            attempt(database)


def test_a_statement_that_may_be_repeated_meets_none(server: PostgresServer, database: Database) -> None:
    fill_pool(database)
    server.crash()
    server.start()
    for _ in range(CONNECTIONS):
        database.fetch(LOOK)


def test_callers_that_wait_go_on_when_postgres_is_back(
    server: PostgresServer, options: ConnectionOptions, database: Database
) -> None:
    """A waiting caller makes the pool try again each time that it gives up, which it does soon."""
    fill_pool(database)
    assert pool_of(database).reconnect_timeout == RECONNECT_SECONDS
    returned: set[str] = set()
    together, crashed = threading.Barrier(2), threading.Event()

    def wait_sync() -> None:
        database.fetch(LOOK)
        returned.add("sync")

    async def wait_async() -> None:
        opened = AsyncDatabase.connect(options)
        # A server that was never reached is not waited for.
        await opened.fetch(LOOK)
        await asyncio.to_thread(together.wait, 100)
        await asyncio.to_thread(crashed.wait, 100)
        await opened.fetch(LOOK)
        returned.add("async")
        await opened.close()

    in_loop = threading.Thread(target=lambda: asyncio.run(wait_async()))
    in_loop.start()
    together.wait(100)
    server.crash()
    crashed.set()
    waiting = [in_loop, threading.Thread(target=wait_sync)]
    waiting[1].start()
    wait_until(lambda: failed_connects(database) >= 4, timeout=20, what="tries in vain")
    assert returned == set()
    server.start()
    for thread in waiting:
        thread.join(200)
    assert returned == {"sync", "async"}


def failed_connects(database: Database) -> int:
    return int(pool_of(database).get_stats().get("connections_errors", 0))


def pool_of(database: Database) -> ConnectionPool[Any]:
    assert isinstance(database._pool, ThinPool)
    return database._pool._pool


def _fetch_once(database: Database) -> None:
    database.fetch(LOOK_ONCE)


def _use_transaction(database: Database) -> None:
    with database.transaction() as tx:
        tx.fetch(LOOK_ONCE)
