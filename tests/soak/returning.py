"""Postgres ends and comes back: who waits goes on at once, however long it was away."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from strandline.schemas.postgres.async_database import AsyncDatabase
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.derived.generations import ServingGenerations
from strandline.schemas.queries.rows import GenerationRow
from strandline.schemas.settings import load_settings
from tests.chaos.servers import PostgresServer
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading

LOOK = ServingGenerations()


class LookOnce(Query[GenerationRow], name="serving_generations"):
    """The same, as a statement that may not be repeated."""


LOOK_ONCE = LookOnce()
# Long enough for waits that double to have grown well beyond what is allowed.
AWAY_SECONDS = 3.3
BOUND_SECONDS = 1.5


def run(ground: Ground) -> Iterator[Reading]:
    """Threads and tasks that wait for a connection while a Postgres of this case's own is away."""
    with TemporaryDirectory(prefix="soak-returning-") as place:
        Path(place).chmod(0o755)
        server = PostgresServer(Path(place))
        server.start()
        try:
            migrate(server.url, "strandline")
            waited = _seconds_after_return(server)
        finally:
            server.stop()
    for name, seconds in waited.items():
        yield Reading(f"{name} that waited goes on once Postgres is back", seconds, BOUND_SECONDS)


def _seconds_after_return(server: PostgresServer) -> dict[str, float]:
    options = ConnectionOptions.from_settings(server.url, load_settings(), pool_size=8)
    database = Database.connect(options)
    database.fetch(LOOK_ONCE)
    returned: dict[str, float] = {}

    # Only a database that was reached before is waited for.
    is_reached, is_away = threading.Event(), threading.Event()

    def wait() -> None:
        database.fetch(LOOK)
        returned["a thread"] = time.monotonic()

    async def wait_async() -> None:
        opened = AsyncDatabase.connect(options)
        await opened.fetch(LOOK_ONCE)
        is_reached.set()
        await asyncio.to_thread(is_away.wait)
        await opened.fetch(LOOK)
        returned["a task"] = time.monotonic()
        await opened.close()

    waiting = [threading.Thread(target=call) for call in (lambda: asyncio.run(wait_async()), wait)]
    waiting[0].start()
    is_reached.wait(60)
    server.crash()
    is_away.set()
    waiting[1].start()
    time.sleep(AWAY_SECONDS)
    server.start()
    back = time.monotonic()
    for thread in waiting:
        thread.join(60)
    database.close()
    assert len(returned) == len(waiting), "one of them has failed"
    return {name: at - back for name, at in returned.items()}
