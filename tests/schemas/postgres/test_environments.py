"""Environments as operators have them: in each, the same short conversation is put, derived and read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from strandline import ConfigurationError
from strandline.cli.doctor.servers import check_database
from strandline.cli.servers.targets import Servers
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.errors import SchemaError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import current_revision, migrate
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.own_connection import OwnConnection
from strandline.schemas.postgres.pools.engine_pool import CallersPool
from strandline.schemas.postgres.translation import is_refused_by_standby
from strandline.schemas.queries.inspection.status import SchemaRevision
from strandline.schemas.settings import load_settings
from tests.chaos.servers import PostgresServer
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.servers import pgbouncer

pytestmark = pytest.mark.timeout(600)

SAID = r"Nora lives in Lisbon \o/ 'NULL' \x41 😀."
EVIL = "CREATE FUNCTION public.length(text) RETURNS integer LANGUAGE sql AS 'SELECT 1 / 0'"


@dataclass(frozen=True)
class Environment:
    """``database``: what ALTER DATABASE sets; ``first``: SQL before that; ``pooler``: settings of one."""

    says: str
    database: tuple[str, ...] = ()
    first: str = "SELECT"
    pooler: str | None = None
    options: str = ""
    variable: tuple[str, str] | None = None


MEANINGS = (
    "datestyle = 'SQL, DMY'",
    "timezone = 'Australia/Lord_Howe'",
    "intervalstyle = 'iso_8601'",
    "standard_conforming_strings = off",
    "array_nulls = off",
    "transform_null_equals = on",
    "bytea_output = 'escape'",
    "extra_float_digits = -15",
    "exit_on_error = on",
    "synchronous_commit = off",
    "session_replication_role = replica",
    "plpgsql.variable_conflict = 'use_column'",
)
ELSEWHERE = "CREATE SCHEMA extensions; ALTER EXTENSION vector SET SCHEMA extensions"

DIRECT = [
    *(Environment(f"the database sets {setting}", (setting,)) for setting in MEANINGS),
    Environment("the database sets all of that", MEANINGS),
    Environment("dates are German", ("datestyle = 'German'",)),
    Environment("begins serializable", ("default_transaction_isolation = 'serializable'",)),
    Environment("begins read-only", ("default_transaction_read_only = on",)),
    Environment("pgvector is in another schema", first=ELSEWHERE),
    Environment("pgvector is elsewhere, and the path is empty", ("search_path = ''",), ELSEWHERE),
    Environment(
        "a schema of the path shadows built-in functions", ("search_path = public, pg_catalog",), EVIL
    ),
    Environment("the URL asks for another path", first=ELSEWHERE, options="-csearch_path%3Dpublic"),
    Environment(
        "PGOPTIONS asks for other settings",
        variable=("PGOPTIONS", "-c datestyle=German -c array_nulls=off"),
    ),
    Environment("PGDATESTYLE asks for German dates", variable=("PGDATESTYLE", "German")),
    Environment("PGTZ asks for another time zone", variable=("PGTZ", "Asia/Kathmandu")),
]
POOLED = [
    Environment("a pooler that nobody declared refuses options", pooler=""),
    Environment("a pooler that nobody declared drops options", pooler=pgbouncer.DROPS_OPTIONS),
    Environment(
        "behind a pooler that refuses options, PGOPTIONS asks for others",
        pooler="",
        variable=("PGOPTIONS", "-c work_mem=9MB"),
    ),
    Environment("behind a pooler the database sets all of that", MEANINGS, pooler=""),
    Environment("behind a pooler that drops options it does", MEANINGS, ELSEWHERE, pgbouncer.DROPS_OPTIONS),
]
needs_pgbouncer = pytest.mark.skipif(
    pgbouncer.program() is None, reason="PgBouncer is not installed (Debian's package is pgbouncer)"
)


def prepare(environment: Environment, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(environment.first.encode())
        for setting in environment.database:
            connection.execute(f"ALTER DATABASE {connection.info.dbname} SET {setting}".encode())


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Environment, str], str]]:
    """Makes an environment of a database, and gives its URL there."""
    with ExitStack() as running:

        def enter(environment: Environment, url: str) -> str:
            prepare(environment, url)
            if environment.variable:
                monkeypatch.setenv(*environment.variable)
            if environment.pooler is not None:
                return running.enter_context(pgbouncer.pgbouncer_before(url, environment.pooler))
            return f"{url}&options={environment.options}" if environment.options else url

        yield enter


@pytest.mark.parametrize(
    "environment",
    [*DIRECT, *(pytest.param(environment, marks=needs_pgbouncer) for environment in POOLED)],
    ids=lambda environment: environment.says,
)
def test_what_is_put_is_derived_and_read_as_ever(
    rig: Rig, environment: Environment, entered: Callable[[Environment, str], str]
) -> None:
    url = entered(environment, rig.url)
    converse(url, rig.memory)
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="everything to be derived")
    assert rows_of(rig.url, "SELECT count(*)::int FROM strandline.flush_event") != [(0,)]
    assert rows_of(rig.url, "SELECT count(*)::int FROM strandline.dead_letter") == [(0,)]
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.chunk WHERE embedding IS NOT NULL") != [(0,)]
    through = Database.connect(ConnectionOptions.from_settings(url, load_settings(database_url=url)))
    try:
        assert verify(through).violations == ()
    finally:
        through.close()


@needs_pgbouncer
@pytest.mark.parametrize("declared", ["none", "transaction"])
def test_a_pooler_gets_the_options_of_the_url_and_no_others(
    database_url: str, declared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(url: str) -> None:
        settings = load_settings(database_url=url, database_pooler=declared)
        with closing(Database.connect(ConnectionOptions.from_settings(url, settings))) as database:
            database.fetch(SchemaRevision())

    with pgbouncer.pgbouncer_before(database_url) as url:
        monkeypatch.setenv("PGOPTIONS", "-c work_mem=9MB")
        look(url)
        with pytest.raises(ConfigurationError, match="refuses the options= of the database URL"):
            look(f"{url}?options=-cwork_mem%3D9MB")


def test_a_setting_that_the_role_may_not_correct_is_named(database_url: str) -> None:
    prepare(Environment("", ("session_replication_role = replica",)), database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:
        role = f"ordinary_{uuid4().hex}"
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        url = urlunsplit(urlsplit(database_url)._replace(netloc=f"{role}@"))
        options = ConnectionOptions.from_settings(url, load_settings(database_url=url))
        said = "values of session_replication_role .* DATABASE … RESET"
        try:
            with (
                closing(Database.connect(options)) as database,
                pytest.raises(ConfigurationError, match=said),
            ):
                database.fetch(SchemaRevision())
        finally:
            connection.execute(f"DROP ROLE {role}".encode())


def test_a_renamed_schema_is_seen_by_doctor_and_mended_by_migrate(
    database_url: str, make_memory: MakeMemory
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER SCHEMA strandline RENAME TO elsewhere")
    servers = Servers(database_url, None, "configured", "configured")

    def look() -> list[str]:
        settings = load_settings(database_url=database_url, database_schema="elsewhere")
        return [one.advice or "" for one in check_database(servers, settings) if one.name == "functions"]

    assert look() == ["run `strandline migrate` as their owner, to make them again"]
    lines: list[str] = []
    migrate(database_url, "elsewhere", report=lines.append)
    assert "functions made again: " in lines[0]
    assert look() == []
    converse(database_url, partial(make_memory, schema="elsewhere"))


def test_doctor_says_what_it_could_not_look_at(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE strandline.retention_act RENAME TO gone")
    reports = [*check_database(Servers(database_url, None, "configured", "configured"), load_settings())]
    assert [report.result for report in reports if report.name == "database"] == ["ok", "problem"]


def converse(url: str, make_memory: MakeMemory) -> None:
    """Nine messages by threads and by an event loop, and the reads of each."""
    options = {"user_id": "ana", "token_limit": 300, "token_flush_size": 40, "consume": "background"}
    memory = make_memory("s", database_url=url, **options)
    for turn in range(6):
        memory.put({"role": "user", "content": f"{turn}: {SAID}", "id": f"m{turn}"})

    async def more() -> None:
        for turn in range(6, 9):
            await memory.aput({"role": "user", "content": f"{turn}: {SAID}", "id": f"m{turn}"})
        assert len(await memory.aget_all()) == 9
        await memory.aclose()

    asyncio.run(more())
    assert [message.text for message in memory.get_all()] == [f"{turn}: {SAID}" for turn in range(9)]
    memory.flush()
    assert memory.search("where does Nora live?", limit=3)
    assert memory.get("where is Nora?").messages


MIGRATED = [
    *DIRECT[len(MEANINGS) :],
    Environment("a statement may take a millisecond", ("statement_timeout = 1",)),
    Environment("transactions may idle for a moment", ("idle_in_transaction_session_timeout = 1",)),
    Environment("locks are waited for a moment", ("lock_timeout = 1",)),
    Environment("functions are checked strictly", ("plpgsql.extra_errors = 'all'",), "LOAD 'plpgsql'"),
    Environment("warnings are asked for", ("plpgsql.extra_warnings = 'all'",), "LOAD 'plpgsql'"),
    *POOLED,
]


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param(environment, marks=[needs_pgbouncer] if environment.pooler is not None else [])
        for environment in MIGRATED
        if environment.first != ELSEWHERE
    ],
    ids=lambda environment: environment.says,
)
def test_tables_are_made_there(
    environment: Environment, entered: Callable[[Environment, str], str], empty_database_url: str
) -> None:
    url = entered(environment, empty_database_url)
    assert migrate(url, "strandline") == migrate(url, "strandline")


def test_tables_are_made_where_pgvector_is_elsewhere(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA extensions")
        connection.execute("CREATE EXTENSION vector SCHEMA extensions")
    migrate(empty_database_url, "strandline")


def test_tables_are_made_where_no_transaction_may_take_a_moment(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as connection:
        if connection.info.server_version < 170_000:
            pytest.skip("Postgres limits transactions since version 17")
    prepare(Environment("", ("transaction_timeout = 1",)), empty_database_url)
    migrate(empty_database_url, "strandline")


@pytest.fixture
def standby_url(tmp_path: Path) -> Iterator[str]:
    """A server that only reads, as one that follows a primary does."""
    server = PostgresServer(tmp_path)
    server.start()
    server.stop()
    (tmp_path / "postgres" / "standby.signal").touch()
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


def test_a_standby_is_refused_by_a_sentence(standby_url: str) -> None:
    assert current_revision(standby_url, "strandline") is None
    with pytest.raises(SchemaError, match="a standby, which only reads; run"):
        migrate(standby_url, "strandline")
    report = next(check_database(Servers(standby_url, None, "configured", "configured"), load_settings()))
    assert (report.result, "a standby, which only reads" in report.found) == ("warning", True)


@pytest.mark.skipif(pgbouncer.program() is None, reason="PgBouncer is not installed")
def test_a_standby_behind_a_pooler_is_read_and_takes_no_writes(
    standby_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_POOLER", "transaction")
    with (
        pgbouncer.pgbouncer_before(standby_url) as url,
        closing(Database.connect(ConnectionOptions.from_settings(url, load_settings()))) as database,
    ):
        database._open()
        with database._pool.connection() as connection:
            assert isinstance(connection, OwnConnection) and connection.pooled
            assert connection.run(b"SELECT 1", (), tuple) == [(1,)]
            with connection.transaction():
                assert connection.execute("SELECT 1").fetchall() == [(1,)]
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                connection.run(b"CREATE TABLE t ()", (), tuple)
            # As one whose pooler led to the primary when it began.
            connection.stay_unprepared(b"SET LOCAL transaction_read_only = off", ())
            with pytest.raises(psycopg.Error) as refused:
                connection.run(b"SELECT 1", (), tuple)
            assert is_refused_by_standby(refused.value)
        test_a_standby_is_refused_by_a_sentence(url)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_an_encoding_that_does_not_hold_every_text_is_refused_by_a_sentence(
    encoding: str, database_url: str
) -> None:
    name = f"encoded_{uuid4().hex}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode()
        )
        try:
            url = urlunsplit(urlsplit(database_url)._replace(path=f"/{name}"))
            with pytest.raises(SchemaError, match=f"in the encoding {encoding}, which does not hold every"):
                migrate(url, "strandline")
            report = next(check_database(Servers(url, None, "configured", "configured"), load_settings()))
            assert (report.result, f"in the encoding {encoding}" in report.found) == ("problem", True)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("datestyle = 'SQL, DMY'", "datestyle"),
        ("standard_conforming_strings = off", "standard_conforming_strings"),
    ],
)
def test_a_pool_of_the_callers_with_another_meaning_is_refused(rig: Rig, setting: str, name: str) -> None:
    prepare(Environment("", (setting, "timezone = 'Asia/Kathmandu'", "synchronous_commit = off")), rig.url)
    with (
        ConnectionPool(rig.url, min_size=0, max_size=2, open=True) as pool,
        pytest.raises(ConfigurationError, match=f"ALTER ROLE … SET {name} = "),
    ):
        rig.memory("s", pool=pool).put({"role": "user", "content": "hello"})


def test_a_look_at_a_connection_of_the_callers_leaves_no_transaction(database_url: str) -> None:
    with (
        ConnectionPool(database_url, min_size=0, max_size=2, open=True) as pool,
        CallersPool(pool).connection() as connection,
    ):
        assert connection.info.transaction_status == TransactionStatus.IDLE


def test_a_pool_of_the_callers_has_its_own_time_zone(make_memory: MakeMemory, database_url: str) -> None:
    prepare(Environment("", ("timezone = 'Asia/Kathmandu'", "synchronous_commit = off")), database_url)
    with ConnectionPool(database_url, min_size=0, max_size=2, open=True) as pool:
        assert make_memory("s", pool=pool).put({"role": "user", "content": "hello"}) == 1
