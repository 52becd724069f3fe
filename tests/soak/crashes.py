"""Acknowledged puts outlive crashes of Postgres; clients of an undeclared pooler get their own answers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg

from strandline import Facts, Memory, StrandlineError
from strandline.schemas.postgres.migrate import migrate
from tests.chaos.servers import PostgresServer
from tests.conftest import rows_of, wait_until
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading
from tests.support.servers.pgbouncer import DROPS_OPTIONS, pgbouncer_before

CRASHES = 50
PUTTERS = 4
CLIENTS, CALLS = 16, 1_250

# How a session's commits wait for no disk: the statement or variable that does it, and whether by a pooler.
WAYS: tuple[tuple[str, str, dict[str, str], bool], ...] = (
    ("by database", "ALTER DATABASE postgres SET synchronous_commit = off", {}, False),
    ("by database, behind PgBouncer", "ALTER DATABASE postgres SET synchronous_commit = off", {}, True),
    ("by role", "ALTER ROLE postgres SET synchronous_commit = off", {}, False),
    ("by role, behind PgBouncer", "ALTER ROLE postgres SET synchronous_commit = off", {}, True),
    ("by PGOPTIONS", "SELECT", {"PGOPTIONS": "-c synchronous_commit=off"}, False),
)


def run(_ground: Ground) -> Iterator[Reading]:
    """Kill all processes of a Postgres under puts, again and again, for each way of losing commits."""
    for says, sql, variables, is_pooled in WAYS:
        with tempfile.TemporaryDirectory(prefix="strandline-crashes-") as folder, ExitStack() as ending:
            server = PostgresServer(Path(folder))
            server.start()
            ending.callback(server.stop)
            migrate(server.url, "strandline")
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
                connection.execute("CREATE TABLE unsafe (number bigint)")
                connection.execute(sql.encode())
            url = server.url
            if is_pooled:
                url = ending.enter_context(pgbouncer_before(server.url, "server_login_retry = 1"))
            server.kill()
            server.start()
            declared = {"STRANDLINE_DATABASE_POOLER": "transaction"} if is_pooled else {}
            ending.enter_context(patch.dict(os.environ, variables | declared))
            crashes = Crashes(server, url)
            for number in range(CRASHES):
                crashes.crash(number)
        yield Reading(
            f"acknowledged puts lost in {CRASHES} crashes, with synchronous_commit off {says}",
            len(crashes.lost),
            0,
            f"of {len(crashes.acknowledged):,}",
        )
        yield Reading("the same of rows that were to be lost", crashes.unsafe_lost, 1, "rows", at_least=True)


class Crashes:
    """What was acknowledged before each crash of a server, and is not there after it."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server = server
        self._url = url
        self.acknowledged: set[str] = set()
        self.lost: set[str] = set()
        self.unsafe_lost = self._unsafe = 0

    def crash(self, number: int) -> None:
        stop = threading.Event()
        memories = [
            Memory.from_defaults(f"{number} {putter}", database_url=self._url, memory_blocks=[])
            for putter in range(PUTTERS)
        ]
        before = len(self.acknowledged)
        threads = [threading.Thread(target=self._put, args=(memory, stop)) for memory in memories]
        threads.append(threading.Thread(target=self._insert))
        for thread in threads:
            thread.start()
        wait_until(lambda: len(self.acknowledged) > before + PUTTERS, timeout=60, what="puts")
        time.sleep(random.uniform(0.02, 0.3))  # noqa: S311
        self._server.kill()
        stop.set()
        self._server.start()
        for thread in threads:
            thread.join()
        for memory in memories:
            memory.close()
        stored = {name for (name,) in rows_of(self._server.url, "SELECT id FROM strandline.message")}
        self.lost |= self.acknowledged - stored
        self.unsafe_lost = self._unsafe - rows_of(self._server.url, "SELECT count(*) FROM unsafe")[0][0]

    def _insert(self) -> None:
        """Rows whose commits wait for no disk: a crash that loses none of them would show nothing."""
        with suppress(psycopg.Error), psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            while True:
                connection.execute("INSERT INTO unsafe VALUES (1)")
                self._unsafe += 1

    def _put(self, memory: Memory, stop: threading.Event) -> None:
        for number in count():
            name = f"{memory.session_id} {number}"
            try:
                memory.put({"role": "user", "content": "I saw gulls.", "id": name})
            except StrandlineError:
                return
            self.acknowledged.add(name)
            if stop.is_set():
                return


def run_pooler(ground: Ground) -> Iterator[Reading]:
    """Clients in processes of their own, behind a PgBouncer that drops the settings of a session."""
    spawning = multiprocessing.get_context("spawn")
    with pgbouncer_before(ground.database_url, DROPS_OPTIONS) as url, spawning.Pool(CLIENTS) as pool:
        outcomes = pool.starmap(converse, [(url, number) for number in range(CLIENTS)], chunksize=1)
    calls, wrong, errors, told = (sum(column) for column in zip(*outcomes, strict=True))
    yield Reading("wrong answers behind an undeclared pooler", wrong, 0, f"of {calls:,} calls")
    yield Reading("errors there", errors, 0, f"of {calls:,} calls")
    yield Reading("clients that tell of it", told, CLIENTS, "clients", at_least=True)


def converse(url: str, client: int) -> tuple[int, int, int, int]:
    """One client's calls, wrong answers and errors, and whether the pooler was told in its log."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(getattr(record, "action", ""))  # type: ignore[method-assign]
    logging.getLogger("strandline.database").addHandler(handler)
    own = f"K{client}K"
    memory = Memory.from_defaults(own, user_id=own, database_url=url, memory_blocks=[])
    facts = Facts.for_owner(user_id=own, database_url=url)
    chance = random.Random(client)  # noqa: S311
    calls: list[Callable[[], Any]] = [
        lambda: [own] * memory.put({"role": "user", "content": f"{own} hello"}),
        lambda: [message.text for message in memory.get_all()],
        lambda: [message.text for message in memory.history(limit=5)],
        lambda: [own] * bool(facts.add(f"{own} fact {chance.random()}")),
        lambda: [fact.text for fact in facts.list(limit=20)],
        lambda: [fact.text for fact in facts.search("fact")],
    ]
    wrong = errors = 0
    for _number in range(CALLS):
        try:
            wrong += not all(own in str(text) for text in chance.choice(calls)())
        except StrandlineError:
            errors += 1
    memory.close()
    return CALLS, wrong, errors, "pooler_noticed" in told
