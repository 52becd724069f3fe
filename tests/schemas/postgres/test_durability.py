"""A worker's writes need not wait for the disk, except that of an answer that was paid for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from strandline import Memory
from strandline.pipelines.engine.stage import Batch
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.errors import DatabaseUnavailableError, OutcomeUnknownError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.statements import statements
from strandline.schemas.settings import Settings, load_settings
from strandline.wiring.assembly import prepare_stages
from tests.chaos.servers import PostgresServer
from tests.conftest import rows_of, wait_until
from tests.support.servers import pgbouncer
from tests.support.workers.hand_worker import CountingStage, HandWorker, counting, folded, say, summary_lane

needs_pgbouncer = pytest.mark.skipif(
    pgbouncer.program() is None, reason="PgBouncer is not installed (Debian's package is pgbouncer)"
)

SETTING = "SELECT current_setting('synchronous_commit')"


@pytest.fixture
def connection(database_url: str, settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    options = ConnectionOptions.from_settings(database_url, settings, durable=False)
    with psycopg.connect(options.url, **options.connect_arguments()) as opened:
        yield opened


def setting(connection: psycopg.Connection[Any]) -> str:
    return str(connection.execute(SETTING).fetchall()[0][0])


def test_a_workers_commits_do_not_wait_for_the_disk(connection: psycopg.Connection[Any]) -> None:
    assert setting(connection) == "off"


def test_a_stored_answer_does(connection: psycopg.Connection[Any]) -> None:
    keys = dict.fromkeys(("shard_key", "scope_key", "worker_id", "batch_id"), uuid4())
    answer = {"step": "s", "model": "m", "prompt_hash": "h", "body": b"", "seconds": 0.1, "cost_usd": None}
    lane = {"generation_id": 1, "stage": "summary", "lease_epoch": 1, "input_tokens": 1, "output_tokens": 1}
    with connection.transaction():
        connection.execute(
            "INSERT INTO strandline.batch (shard_key, batch_id, scope_key, generation_id, stage, lease_epoch,"
            " event_ids) VALUES (%(shard_key)s, %(batch_id)s, %(scope_key)s, 1, 'summary', 1,"
            " ARRAY[%(batch_id)s::uuid])",
            keys,
        )
        connection.execute(
            "INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage, lease_epoch, holder)"
            " VALUES (%(shard_key)s, %(scope_key)s, 1, 'summary', 1, %(worker_id)s)",
            keys,
        )
        connection.execute(statements("strandline")["store_answer"].encode(), keys | answer | lane)
        assert setting(connection) == "on", "until the end of its transaction"
    assert setting(connection) == "off"


def test_producers_wait_for_the_disk(database_url: str, settings: Settings) -> None:
    options = ConnectionOptions.from_settings(database_url, settings)
    with psycopg.connect(options.url, **options.connect_arguments()) as connection:
        assert setting(connection) == "on"


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[PostgresServer]:
    """A separate Postgres that writes to the disk only what a commit waits for."""
    server = PostgresServer(tmp_path)
    server.start()
    try:
        migrate(server.url, "strandline")
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            connection.execute("SELECT pg_reload_conf()")
        yield server
    finally:
        server.stop()


def test_a_batch_that_a_crash_of_postgres_took_writes_nothing(postgres: PostgresServer) -> None:
    """Its worker lives on, with a lease that is on the disk and a batch that is not."""
    settings = load_settings(database_url=postgres.url, text_backend="local", embedding_backend="local")
    made: list[Batch] = []

    def crash(batch: Batch) -> None:
        made.append(batch)
        if len(made) == 2:
            postgres.crash()
            postgres.start()
            # As its heartbeat would: the first statement meets a dead connection, the next gets a live one.
            with suppress(DatabaseUnavailableError):
                worker.beat()

    options = ConnectionOptions.from_settings(postgres.url, settings, durable=False)
    with (
        closing(Database.connect(options)) as database,
        closing(Memory.from_defaults("s", database_url=postgres.url)) as memory,
    ):
        prepare_stages(database, settings)
        say(memory, "one", "two", "three")
        stage = CountingStage(crash)
        worker = HandWorker(database, counting(stage), budget=1)
        lane = summary_lane(postgres.url, "s")
        assert worker.drain(lane) == "lost"

        batches = "SELECT batch_id FROM strandline.batch WHERE stage = 'summary'"
        assert rows_of(postgres.url, batches) == [(made[0].batch_id,)], "the second one's row is gone"
        assert rows_of(postgres.url, "SELECT batch_id FROM strandline.answer") == [(made[0].batch_id,)]

        worker.die(postgres.url)
        heir = HandWorker(database, counting(stage), budget=1)
        assert heir.drain(lane) == "drained"
        assert folded(postgres.url) == [1, 2, 3]
        assert stage.calls_made == 4, "the first one's answer was kept; the second one's named no batch"
        orphans = "SELECT count(*) FROM strandline.receipt r WHERE stage = 'summary' AND NOT EXISTS"
        assert rows_of(
            postgres.url, f"{orphans} (SELECT FROM strandline.batch b WHERE b.batch_id = r.batch_id)"
        ) == [(0,)]
        assert not [found for found in verify(database).violations if "batch" in found.sentence]


def test_a_flush_that_a_crash_of_postgres_took_is_made_again(postgres: PostgresServer) -> None:
    """The put that crossed the mark is on the disk, its flush is not."""
    settings = load_settings(database_url=postgres.url, text_backend="local", embedding_backend="local")
    recorded = "SELECT from_seq, through_seq FROM strandline.flush_event ORDER BY from_seq"
    accepted: list[int] = []

    def put() -> None:
        accepted.append(memory.put({"role": "user", "content": f"message {len(accepted) + 1} of many"}))

    options = ConnectionOptions.from_settings(postgres.url, settings)
    with closing(Database.connect(options)) as database:
        prepare_stages(database, settings)
    with closing(
        Memory.from_defaults("s", database_url=postgres.url, token_limit=100, token_flush_size=20)
    ) as memory:
        while not rows_of(postgres.url, recorded):
            put()
        postgres.crash()
        postgres.start()
        assert rows_of(postgres.url, recorded) == []
        assert [message.seq for message in memory.get_all()] == accepted
        put()
    again = rows_of(postgres.url, recorded)
    assert again[0][0] == 1
    assert again[-1][1] < accepted[-1]
    with closing(Database.connect(options)) as database:
        assert verify(database).violations == ()


def test_a_flush_by_hand_waits_for_the_disk(postgres: PostgresServer) -> None:
    settings = load_settings(database_url=postgres.url, text_backend="local", embedding_backend="local")
    with (
        closing(Database.connect(ConnectionOptions.from_settings(postgres.url, settings))) as database,
        closing(Memory.from_defaults("s", database_url=postgres.url)) as memory,
    ):
        prepare_stages(database, settings)
        memory.put({"role": "user", "content": "one"})
        events = memory.flush(all=True)
        postgres.crash()
        postgres.start()
        assert rows_of(postgres.url, "SELECT event_id FROM strandline.flush_event") == [(events[0],)]


# How commits would not wait for the disk, and whether a pooler that nobody declared stands before it.
BY_DATABASE = "ALTER DATABASE postgres SET synchronous_commit = off"
BY_ROLE = "ALTER ROLE postgres SET synchronous_commit = off"
WITHOUT = "SELECT"
ROUNDS = 2


@pytest.mark.parametrize(
    ("statement", "pooler", "variable"),
    [
        pytest.param(BY_DATABASE, None, "", id="by database"),
        pytest.param(BY_ROLE, None, "", id="by role"),
        pytest.param(WITHOUT, None, "-c synchronous_commit=off", id="by PGOPTIONS"),
        pytest.param(BY_DATABASE, "", "", id="by database behind a pooler", marks=needs_pgbouncer),
        pytest.param(
            BY_ROLE, pgbouncer.DROPS_OPTIONS, "", id="by role behind a pooler", marks=needs_pgbouncer
        ),
    ],
)
def test_an_acknowledged_put_outlives_a_crash_whatever_is_set(
    statement: str,
    pooler: str | None,
    variable: str,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All processes of Postgres are killed as the last put is acknowledged."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(statement.encode())
    if variable:
        monkeypatch.setenv("PGOPTIONS", variable)
    acknowledged: set[str] = set()
    with ExitStack() as running:
        url = postgres.url
        if pooler is not None:
            retry = "server_login_retry = 1\n"
            url = running.enter_context(pgbouncer.pgbouncer_before(url, retry + pooler))
        memory = running.enter_context(closing(Memory.from_defaults("s", database_url=url, memory_blocks=[])))
        for number in range(ROUNDS):
            for turn in range(5):
                name = f"{number}-{turn}"
                while name not in acknowledged:
                    with suppress(OutcomeUnknownError, DatabaseUnavailableError):  # of a dead connection
                        memory.put({"role": "user", "content": name, "id": name})
                        acknowledged.add(name)
            postgres.kill()
            postgres.start()
            stored = {row[0] for row in rows_of(postgres.url, "SELECT id FROM strandline.message")}
            assert acknowledged <= stored, f"lost in round {number}: {acknowledged - stored}"


def test_a_reload_under_a_live_session_changes_no_acknowledgement(postgres: PostgresServer) -> None:
    with closing(Memory.from_defaults("s", database_url=postgres.url, memory_blocks=[])) as memory:
        acknowledged = [memory.put({"role": "user", "content": "before"})]
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            connection.execute("ALTER SYSTEM SET synchronous_commit = off")
            connection.execute("SELECT pg_reload_conf()")
            wait_until(lambda: setting(connection) == "off", timeout=10, what="the reload")
        acknowledged += [memory.put({"role": "user", "content": f"after {turn}"}) for turn in range(5)]
        postgres.kill()
        postgres.start()
    stored = rows_of(postgres.url, "SELECT seq FROM strandline.message ORDER BY seq")
    assert [seq for (seq,) in stored] == acknowledged
