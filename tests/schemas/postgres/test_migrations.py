"""Migrations on a real Postgres: an empty database migrated is what the tables declare."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from strandline import SchemaError
from strandline.cli.entry import run
from strandline.schemas.errors import DatabaseUnavailableError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import Report, current_revision, migrate
from strandline.schemas.postgres.migrations import HEAD_REVISION, columns_at
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.revision import major_version
from strandline.schemas.postgres.statements import function_names
from strandline.schemas.settings import load_settings
from strandline.schemas.tables import SCHEMA, metadata
from strandline.schemas.tables.base import ERASURE
from strandline.wiring.assembly import ensure_tables
from tests.conftest import MakeMemory, Rig, rows_of, wait_until
from tests.support.processes import forking
from tests.support.servers.databases import PARTITIONS

whole_tables = pytest.mark.skipif(
    PARTITIONS is not None,
    reason="whole tables are compared; test_partitions.py compares partitions with them",
)

STORAGE = """
SELECT a.attname::text, a.attstorage::text FROM pg_attribute a
WHERE a.attrelid = 'strandline.chunk'::regclass AND a.attname IN ('embedding', 'code')
"""


def test_embeddings_are_stored_in_line(database_url: str) -> None:
    assert dict(rows_of(database_url, STORAGE)) == {"embedding": "p", "code": "m"}


def test_every_table_of_an_owners_data_begins_its_key_with_the_shard(database_url: str) -> None:
    rows = rows_of(
        database_url,
        "SELECT c.relname::text, a.attname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]"
        " WHERE i.indisprimary AND n.nspname = %s",
        SCHEMA,
    )
    first = dict(rows)
    small = {table.name for table in metadata.tables.values() if "shard_key" not in table.c}
    assert not {t.name for t in metadata.tables.values() if t.info[ERASURE].kind == "goes"} & small
    small.add("alembic_version")
    assert {first[table] for table in first if table not in small} == {"shard_key"}


def test_migrating_twice_changes_nothing(empty_database_url: str) -> None:
    said: list[str] = []
    assert current_revision(empty_database_url, SCHEMA) is None
    assert migrate(empty_database_url, SCHEMA, report=said.append) == HEAD_REVISION
    before = rows_of(empty_database_url, "SELECT oid FROM pg_class ORDER BY oid")
    assert migrate(empty_database_url, SCHEMA, report=said.append) == HEAD_REVISION
    assert rows_of(empty_database_url, "SELECT oid FROM pg_class ORDER BY oid") == before
    assert said == [
        f"{SCHEMA}: empty -> {HEAD_REVISION}",
        f"{SCHEMA}: at revision {HEAD_REVISION}, so there is nothing to do",
    ]
    assert current_revision(empty_database_url, SCHEMA) == HEAD_REVISION


def start_to_migrate(url: str, report: Report) -> threading.Thread:
    thread = threading.Thread(target=migrate, args=(url, SCHEMA), kwargs={"report": report})
    thread.start()
    return thread


WAITS = f"{SCHEMA}: another migration of this database runs, and this one waits for it"


def test_two_processes_migrate_at_once(empty_database_url: str) -> None:
    """The second one waits for the first, and finds its work done."""
    code = (
        "import sys; from strandline.schemas.postgres.migrate import migrate;"
        " migrate(sys.argv[1], 'strandline', report=print)"
    )
    processes = [
        forking.Popen(
            [sys.executable, "-c", code, empty_database_url],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    said = [line for process in processes for line in process.communicate(timeout=600)[0].splitlines()]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sorted(line for line in said if line != WAITS) == [
        f"{SCHEMA}: at revision {HEAD_REVISION}, so there is nothing to do",
        f"{SCHEMA}: empty -> {HEAD_REVISION}",
    ]


def test_a_second_migration_waits_for_the_first(empty_database_url: str) -> None:
    said: list[str] = []
    with psycopg.connect(empty_database_url) as first:
        first.execute(b"SELECT pg_advisory_xact_lock(%s)", (0x7374726E646C6E65,))
        second = start_to_migrate(empty_database_url, said.append)
        wait_until(lambda: said == [WAITS], timeout=20, what="the second migration")
        assert current_revision(empty_database_url, SCHEMA) is None
    second.join(300)
    assert current_revision(empty_database_url, SCHEMA) == HEAD_REVISION


def test_tables_live_in_the_schema_that_is_asked_for(
    empty_database_url: str, make_memory: MakeMemory
) -> None:
    assert migrate(empty_database_url, "tenant_7") == HEAD_REVISION
    schemas = rows_of(
        empty_database_url,
        "SELECT DISTINCT schemaname::text FROM pg_tables WHERE schemaname !~ '^(pg_|information_schema)'",
    )
    functions = rows_of(
        empty_database_url,
        "SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'tenant_7'::regnamespace ORDER BY 1",
    )
    assert schemas == [("tenant_7",)]
    assert [name for (name,) in functions] == function_names()
    memory = make_memory(
        "s", database_url=empty_database_url, schema="tenant_7", memory_blocks=[], token_limit=50
    )
    assert [memory.put({"role": "user", "content": "word " * 10}) for _ in range(10)] == list(range(1, 11))
    assert len(memory.get_all()) == 10
    assert len(memory.get()) < 10
    assert rows_of(empty_database_url, "SELECT count(*) FROM tenant_7.flush_event") != [(0,)]
    memory.reset(derived=True)
    assert memory.get_all() == []


def test_a_server_that_is_too_old_is_named_with_the_version_that_is_needed(
    empty_database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """No old server is at hand; a function of that name, found first, makes this one look so."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(OLD_SERVER)
        connection.execute(b"ALTER ROLE CURRENT_USER IN DATABASE " + _name(connection) + _PATH)
    with pytest.raises(SchemaError, match=r"is PostgreSQL 13[.]23 .* needs PostgreSQL 14 or newer"):
        migrate(empty_database_url, SCHEMA)
    assert rows_of(empty_database_url, "SELECT 1 FROM pg_namespace WHERE nspname = %s", SCHEMA) == []
    assert run(["doctor", "--database-url", empty_database_url]) == 1
    assert "needs PostgreSQL 14 or newer; upgrade it" in capfd.readouterr().out


OLD_SERVER = b"""
CREATE FUNCTION public.current_setting(name text) RETURNS text LANGUAGE sql AS
$$SELECT CASE name WHEN 'server_version' THEN '13.23 (Debian)' ELSE pg_catalog.current_setting(name) END$$
"""


@pytest.mark.parametrize(
    ("version", "major"), [("14.23", 14), ("18.4 (Debian 18.4-1)", 18), ("19beta1", 19), ("20devel", 20)]
)
def test_the_major_version_is_the_number_that_a_servers_version_begins_with(version: str, major: int) -> None:
    assert major_version(version) == major


def test_a_server_without_pgvector_is_told_what_to_install(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server without it is at hand; a view of that name, found first, makes this one look so."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(
            b"CREATE VIEW public.pg_available_extensions AS"
            b" SELECT ''::name AS name, ''::text AS default_version WHERE false"
        )
        connection.execute(b"ALTER ROLE CURRENT_USER IN DATABASE " + _name(connection) + _PATH)
    with pytest.raises(SchemaError, match="pgvector"):
        migrate(empty_database_url, SCHEMA)
    assert current_revision(empty_database_url, SCHEMA) is None
    assert rows_of(empty_database_url, "SELECT 1 FROM pg_namespace WHERE nspname = %s", SCHEMA) == []


_PATH = b" SET search_path = public, pg_catalog"


def _name(connection: psycopg.Connection[Any]) -> bytes:
    return connection.info.dbname.encode()


def test_a_refused_step_is_a_sentence_and_leaves_nothing(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(b"CREATE SCHEMA strandline")
        connection.execute(b"CREATE TABLE strandline.watch (mine integer)")
    with pytest.raises(SchemaError, match="watch"):
        migrate(empty_database_url, SCHEMA)
    tables = rows_of(
        empty_database_url, "SELECT tablename::text FROM pg_tables WHERE schemaname = %s", SCHEMA
    )
    assert tables == [("watch",)]


@pytest.mark.parametrize("revision", [HEAD_REVISION, "deadbeef"])
def test_the_version_table_of_another_application_is_not_ours(
    revision: str, empty_database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its revision may be called as ours is."""
    _be_at(empty_database_url, revision)
    refusal = (
        f"Schema strandline has another application's Alembic table (at revision '{revision}'), and no tables"
        " of Strandline; name another schema in STRANDLINE_DATABASE_SCHEMA."
    )
    for ask in (current_revision, migrate):
        with pytest.raises(SchemaError) as refused:
            ask(empty_database_url, SCHEMA)
        assert str(refused.value) == refusal
    assert run(["migrate", "--database-url", empty_database_url]) == 1
    assert capfd.readouterr().err == f"strandline: {refusal}\n"
    assert run(["doctor", "--json", "--database-url", empty_database_url]) == 1
    checks = {check["name"]: check for check in json.loads(capfd.readouterr().out)["checks"]}
    assert checks["tables"]["result"] == "problem"
    assert "another application" in checks["tables"]["found"]
    assert checks["tables"]["advice"] == "name another schema in STRANDLINE_DATABASE_SCHEMA"


def test_a_newer_releases_tables_are_told_as_such(
    empty_database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    migrate(empty_database_url, SCHEMA)
    _be_at(empty_database_url, "deadbeef")
    assert run(["migrate", "--database-url", empty_database_url]) == 1
    assert "which this release does not know: its tables are a newer Strandline's" in capfd.readouterr().err


NEWER = "the tables are a newer release's (revision 9999); this release runs on them"
ALL = "SELECT proname::text, prosrc FROM pg_proc WHERE pronamespace = 'strandline'::regnamespace ORDER BY 1"


def test_an_older_release_runs_on_a_newer_releases_tables_and_changes_nothing(
    database_url: str, make_memory: MakeMemory, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also a function that the newer release has made again stays as it is."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION strandline.role_key_v1(text) RETURNS text LANGUAGE sql RETURN 'x'"
        )
        connection.execute("ALTER TABLE strandline.session ADD COLUMN note text")
    _be_at(database_url, "9999")
    before = rows_of(database_url, ALL)
    for options in ([], ["--plan"]):
        assert run(["migrate", *options, "--database-url", database_url]) == 0
        said = capfd.readouterr().out
        assert NEWER in said and "->" not in said
    assert run(["migrate", "--json", "--database-url", database_url]) == 0
    assert json.loads(capfd.readouterr().out)["after"] == "9999"
    run(["doctor", "--json", "--database-url", database_url])
    (tables,) = [check for check in json.loads(capfd.readouterr().out)["checks"] if check["name"] == "tables"]
    assert (tables["result"], tables["found"]) == ("warning", NEWER)
    settings = load_settings(database_url=database_url)
    database = Database.connect(ConnectionOptions.from_settings(database_url, settings))
    ensure_tables(database_url, database, settings)  # as `up` does
    database.close()
    assert rows_of(database_url, ALL) == before
    make_memory("s").put({"role": "user", "content": "hello"})


@pytest.mark.parametrize(
    ("change", "revision", "finding"),
    [
        ("ALTER TABLE strandline.flush_event DROP tokens", HEAD_REVISION, "without flush_event.tokens"),
        ("DROP TABLE strandline.retention_run", HEAD_REVISION, "without retention_run.counts and 8 more"),
        ("DROP TABLE strandline.retention_run", "9999", "without retention_run.counts and 8 more: a newer"),
        ("DROP FUNCTION strandline.role_key_v1 CASCADE", "9999", "without role_key_v1: a newer release"),
        ("DELETE FROM strandline.alembic_version", None, "has tables of Strandline, and no row in"),
        ("DROP TABLE strandline.alembic_version", None, "has tables of Strandline, and no row in"),
    ],
)  # fmt: skip
def test_tables_of_no_release_are_refused_in_one_sentence_by_all(
    change: str, revision: str | None, finding: str, database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(change.encode())
    if revision is not None:
        _be_at(database_url, revision)
    said = []
    for command in (["migrate"], ["migrate", "--plan"]):
        assert run([*command, "--database-url", database_url]) == 1
        said.append(capfd.readouterr().err)
    assert said[0] == said[1] and finding in said[0]
    assert run(["doctor", "--json", "--database-url", database_url]) == 1
    (tables,) = [check for check in json.loads(capfd.readouterr().out)["checks"] if check["name"] == "tables"]
    assert tables["result"] == "problem" and finding in tables["found"]


def test_a_release_knows_the_columns_of_its_tables() -> None:
    declared = {f"{t.name}.{column.name}" for t in metadata.tables.values() for column in t.columns}
    assert columns_at(HEAD_REVISION) == declared


def _be_at(url: str, revision: str) -> None:
    """Make the version table say so, as Alembic does for whoever uses it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(b"CREATE SCHEMA IF NOT EXISTS strandline")
        connection.execute(
            b"CREATE TABLE IF NOT EXISTS strandline.alembic_version (version_num varchar(32) PRIMARY KEY)"
        )
        connection.execute(b"TRUNCATE strandline.alembic_version")
        connection.execute(b"INSERT INTO strandline.alembic_version VALUES (%s)", (revision,))


def test_migrating_an_unreachable_server_raises_database_unavailable() -> None:
    with pytest.raises(DatabaseUnavailableError):
        migrate("postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=2", SCHEMA)


def test_a_configured_database_is_never_migrated_on_the_way(
    empty_database_url: str, make_memory: MakeMemory
) -> None:
    memory = make_memory(uuid4().hex, database_url=empty_database_url)
    with pytest.raises(SchemaError, match="strandline migrate"):
        memory.put({"role": "user", "content": "hello"})
    with pytest.raises(SchemaError, match="strandline migrate"):
        memory.get()
    assert rows_of(empty_database_url, "SELECT 1 FROM pg_namespace WHERE nspname = %s", SCHEMA) == []


def test_session_rows_are_updated_in_place(rig: Rig) -> None:
    """No index covers a counter of ``session``: its updates are HOT as long as the page has room."""
    memory = rig.memory("hot", memory_blocks=[], token_limit=10_000_000)
    puts = 150
    for number in range(puts):
        memory.put({"role": "user", "content": f"message {number}"})
    counts = (
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables"
        " WHERE relname = 'session' AND schemaname = 'strandline'"
    )
    memory.close()  # a backend reports its figures when it ends
    wait_until(lambda: rows_of(rig.url, counts)[0][0] >= puts - 1, timeout=20, what="the server's statistics")
    updates, hot = rows_of(rig.url, counts)[0]
    assert hot >= 0.9 * updates
    assert rows_of(rig.url, "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'message'") == [(0,)]
