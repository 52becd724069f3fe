"""Behind PgBouncer in transaction mode: each transaction may meet another connection, and nothing breaks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from strandline import Facts
from strandline.cli.doctor.servers import check_database
from strandline.cli.servers.targets import Servers
from strandline.erasure import Erasures
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.async_database import AsyncDatabase
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.own_connection import AsyncOwnConnection, OwnConnection
from strandline.schemas.queries.inspection.status import SchemaRevision
from strandline.schemas.queries.upkeep.erasing import VacuumErased
from strandline.schemas.settings import load_settings
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.servers import pgbouncer

pytestmark = pytest.mark.skipif(
    pgbouncer.program() is None, reason="PgBouncer is not installed (Debian's package is pgbouncer)"
)


@pytest.fixture
def pooled_url(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("STRANDLINE_DATABASE_POOLER", "transaction")
    with pgbouncer.pgbouncer_before(database_url) as url:
        yield url


def test_puts_reads_and_a_worker_share_three_connections_of_pgbouncer(rig: Rig, pooled_url: str) -> None:
    """Twelve threads and twenty tasks share three connections, with a worker beside them."""
    rig.start_worker(
        STRANDLINE_DATABASE_URL=pooled_url,
        STRANDLINE_DATABASE_POOLER="transaction",
        STRANDLINE_TEXT_BACKEND="local",
        STRANDLINE_EMBEDDING_BACKEND="local",
    )
    options = {
        "database_url": pooled_url,
        "broker_url": rig.broker_url,
        "token_limit": 300,
        "token_flush_size": 40,
    }

    def talk(number: int) -> int:
        memory = rig.memory(f"t{number}", user_id=f"u{number % 3}", **options)
        for turn in range(12):
            memory.put({"role": "user", "content": f"I keep boat {turn} in harbour {number}."})
            memory.put_messages([{"role": "assistant", "content": "Noted."}] * 2)
            assert memory.get().messages
        return len(memory.get_all())

    async def talk_at_once() -> None:
        memories = [rig.memory(f"a{number}", **options) for number in range(20)]
        for turn in range(5):
            await asyncio.gather(*(m.aput({"role": "user", "content": f"turn {turn}"}) for m in memories))
        await memories[0].aclose()

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(talk, range(12))) == [36] * 12
    asyncio.run(talk_at_once())
    memory = rig.memory("imported", **options)
    many = [{"role": "user", "content": f"line {n}", "id": f"i{n}"} for n in range(300)]
    assert memory.import_messages(many).added == 300
    assert memory.import_messages(many).known == 300
    wait_until(lambda: nothing_due(rig.url), timeout=40, what="everything to be derived")
    assert memory.search("line 17", limit=3)
    assert rows_of(rig.url, "SELECT count(*) > 12 FROM strandline.flush_event") == [(True,)]
    settings = load_settings(database_url=pooled_url)
    through = Database.connect(ConnectionOptions.from_settings(pooled_url, settings))
    try:
        assert verify(through).violations == verify(rig.database).violations == ()
    finally:
        through.close()


@pytest.mark.parametrize("public_apis_only", ["false", "true"])
def test_tables_are_vacuumed_after_an_erasure(
    pooled_url: str, make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch, public_apis_only: str
) -> None:
    """Postgres refuses that in a transaction, even in that of the settings."""
    monkeypatch.setenv("STRANDLINE_PUBLIC_APIS_ONLY", public_apis_only)
    make_memory("s", user_id="u", database_url=pooled_url).put({"role": "user", "content": "Hello"})
    erasures = Erasures.of_namespace(database_url=pooled_url)
    erasures.erase_user("u")
    erasures.vacuum()
    vacuumed = "SELECT count(*) FROM pg_stat_user_tables WHERE relname = 'message' AND vacuum_count > 0"
    wait_until(lambda: rows_of(pooled_url, vacuumed) == [(1,)], timeout=30, what="the vacuum to be counted")
    asyncio.run(vacuum_in_a_loop(pooled_url))


async def vacuum_in_a_loop(url: str) -> None:
    database = AsyncDatabase.connect(ConnectionOptions.from_settings(url, load_settings()))
    assert await database.fetch(VacuumErased()) == []
    await database.close()


@pytest.fixture(params=["", pgbouncer.DROPS_OPTIONS], ids=["refuses options", "drops options"])
def undeclared_url(request: pytest.FixtureRequest, database_url: str) -> Iterator[str]:
    with pgbouncer.pgbouncer_before(database_url, request.param) as url:
        yield url


CLIENTS, ROUNDS = 16, 20


def test_clients_of_a_pooler_that_nobody_declared_get_their_own_answers(
    undeclared_url: str, make_memory: MakeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """Their statements share three connections; each is noticed to do so before it is used."""

    def talk(number: int) -> None:
        memory = make_memory(f"c{number}", user_id=f"u{number}", database_url=undeclared_url)
        facts = Facts.for_owner(user_id=f"u{number}", database_url=undeclared_url)
        for turn in range(ROUNDS):
            memory.put({"role": "user", "content": f"K{number} says {turn}"})
            facts.add(f"K{number} knows {turn}")
            said = [*memory.history(limit=5), *memory.get().messages]
            known = [*facts.list(limit=5), *facts.search("knows")]
            for one in (*said, *known):
                assert set(re.findall(r"\bK(\d+) ", one.text)) == {str(number)}
            assert said and known

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(talk, range(CLIENTS)))
    told = [record for record in caplog.records if record.getMessage() == "pooler noticed"]
    assert told and all("STRANDLINE_DATABASE_POOLER=transaction" in vars(one)["reason"] for one in told)


def test_doctor_names_the_pooler(undeclared_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(url: str) -> list[str]:
        servers = Servers(url, None, "configured", "configured")
        checks = check_database(servers, load_settings(database_url=url))
        return [f"{check.result}: {check.advice}" for check in checks if check.name == "pooler"]

    (told,) = look(undeclared_url)
    assert told.startswith("warning: set STRANDLINE_DATABASE_POOLER=transaction")
    monkeypatch.setenv("STRANDLINE_DATABASE_POOLER", "transaction")
    assert look(undeclared_url) == []


@pytest.mark.parametrize("options", ["", pgbouncer.DROPS_OPTIONS], ids=["refuses options", "drops options"])
def test_a_pooler_without_transactions_is_refused(make_memory: MakeMemory, rig: Rig, options: str) -> None:
    with pgbouncer.pgbouncer_before(rig.url, f"{options}\npool_mode = statement") as url:
        memory = make_memory("s", database_url=url)
        with pytest.raises(ConfigurationError, match=r"is in statement mode.*Set its pool_mode"):
            memory.put({"role": "user", "content": "Hello"})
        servers = Servers(url, None, "configured", "configured")
        found = [f"{one}" for one in check_database(servers, load_settings(database_url=url))]
        assert any("statement mode" in finding for finding in found), found


# Values with which statements would mean something else, or an acknowledgement nothing.
OTHERS = {
    "array_nulls": "off",
    "bytea_output": "escape",
    "datestyle": "SQL, DMY",
    "gin_fuzzy_search_limit": "1",
    "intervalstyle": "sql_standard",
    "search_path": "pg_temp",
    "standard_conforming_strings": "off",
    "synchronous_commit": "off",
    "timezone": "Asia/Tokyo",
    "transform_null_equals": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "enable_seqscan": "on",
    "idle_in_transaction_session_timeout": "7min",
    "session_replication_role": "replica",
    "statement_timeout": "7min",
}
# What a role may rightly have by default.
ONLY_LEAKED = {
    "lock_timeout": "7min",
    "plan_cache_mode": "force_generic_plan",
    "role": "pg_monitor",
    "row_security": "off",
    "session_authorization": "pg_monitor",
}
SEEN = "SELECT " + ", ".join(
    # Whoever finds it off makes it "local".
    f"replace(current_setting('{name.removeprefix('default_')}'), 'local', 'on')"
    for name in (*OTHERS, *ONLY_LEAKED)
)


def change_the_database(database_url: str, _pooled_url: str, name: str) -> None:
    """The pooler's connections end, and those that it makes in their place begin otherwise."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE \"{connection.info.dbname}\" SET {name} = '{OTHERS[name]}'")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_what_another_client_left_before_changes_nothing(pooled_url: str, make_memory: MakeMemory) -> None:
    for name in (*OTHERS, *ONLY_LEAKED):
        leak_into_every_session("", pooled_url, name)
    memory = make_memory("s", database_url=pooled_url)
    assert memory.put({"role": "user", "content": "hello"}) == 1
    assert [message.text for message in memory.get_all()] == ["hello"]
    with closing(Database.connect(ConnectionOptions.from_settings(pooled_url, load_settings()))) as database:
        database.fetch(SchemaRevision())
        with database._pool.connection() as connection:
            assert isinstance(connection, OwnConnection) and connection._lone


def test_a_lone_statement_that_fails_says_why_and_leaves_its_connection_usable(pooled_url: str) -> None:
    options = ConnectionOptions.from_settings(pooled_url, load_settings())

    def divide(connection: psycopg.Connection[Any]) -> list[Any]:
        assert isinstance(connection, OwnConnection)
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.run(b"SELECT 1 / 0 FROM generate_series(1, 9)", (), tuple)
        return connection.run(b"SELECT 1", (), tuple)

    async def divide_in_a_loop() -> list[Any]:
        database = AsyncDatabase.connect(options)
        await database.fetch(SchemaRevision())
        async with database._pool.connection() as connection:
            assert isinstance(connection, AsyncOwnConnection)
            with pytest.raises(psycopg.errors.DivisionByZero):
                await connection.run(b"SELECT 1 / 0 FROM generate_series(1, 9)", (), tuple)
            rows = await connection.run(b"SELECT 1", (), tuple)
        await database.close()
        return rows

    with closing(Database.connect(options)) as database:
        database.fetch(SchemaRevision())
        with database._pool.connection() as lent:
            assert [divide(lent) for _attempt in range(50)] == [[(1,)]] * 50
    assert asyncio.run(divide_in_a_loop()) == [(1,)]


def leak_into_every_session(_database_url: str, pooled_url: str, name: str) -> None:
    with ExitStack() as stack:
        for _client in range(pgbouncer.SERVER_CONNECTIONS):
            connection = stack.enter_context(psycopg.connect(pooled_url, prepare_threshold=None))
            connection.execute(f"SET SESSION {name} = '{(OTHERS | ONLY_LEAKED)[name]}'".encode())
            stack.callback(connection.commit)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, change_the_database) for name in OTHERS),
        *((name, leak_into_every_session) for name in (*OTHERS, *ONLY_LEAKED)),
    ],
)
def test_what_changes_under_a_live_client_of_a_pooler_changes_nothing(
    database_url: str, pooled_url: str, make_memory: MakeMemory, name: str, change: Callable[..., None]
) -> None:
    memory = make_memory("s", user_id="u", database_url=pooled_url)
    memory.put({"role": "user", "content": "before", "id": "1"})
    database = Database.connect(ConnectionOptions.from_settings(pooled_url, load_settings()))
    database._open()

    def seen() -> list[tuple[str, ...]]:
        looks = []
        for _attempt in range(20):
            with suppress(psycopg.OperationalError), database._pool.connection() as connection:
                assert isinstance(connection, OwnConnection)
                looks += connection.run(SEEN.encode(), (), tuple)
                with connection.transaction():
                    looks += connection.execute(SEEN.encode()).fetchall()
        return [tuple(look) for look in looks]

    (before,) = set(seen())
    change(database_url, pooled_url, name)
    allowed = {before}
    if name == "search_path" and change is change_the_database:
        # A client that has to connect again keeps the path it finds, behind the built-ins.
        place = list(OTHERS).index(name)
        allowed.add((*before[:place], "pg_catalog, pg_temp, public", *before[place + 1 :]))
    found = set(seen())
    assert found and found <= allowed
    created = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)
    memory.put({"role": "user", "content": "after", "id": "2", "created_at": created})
    asyncio.run(memory.aput({"role": "user", "content": "at last", "id": "3"}))
    assert [one.text for one in memory.get_all()] == ["before", "after", "at last"]
    assert memory.get_all()[1].created_at == created
    database.close()
