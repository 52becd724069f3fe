"""Migrations are frozen with their release and lead to the declared tables; later steps let puts pass."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from strandline.schemas.errors import SchemaError, StrandlineError
from strandline.schemas.postgres import migrate as runner
from strandline.schemas.postgres import migrations
from strandline.schemas.postgres.migrate import current_revision, migrate, plan
from strandline.schemas.postgres.migrations import FIRST, digest, first_statements, revisions, steps_after
from strandline.schemas.postgres.options import psycopg_url
from strandline.schemas.postgres.own_connection import OwnConnection
from strandline.schemas.postgres.statements import function_names, function_source
from strandline.schemas.tables import SCHEMA
from strandline.schemas.version import VERSION
from tests.conftest import rows_of, wait_until
from tests.schemas.postgres.test_migrations import WAITS, start_to_migrate, whole_tables
from tests.support.processes.commands import run_here
from tools import migrations as writing
from tools.migrations import DIGESTS, FIRST_FILE, ROOT, first_migration, frozen

AGAIN = "Until the release, run `python -m tools.migrations`; after it, add a migration."

# Everything that a migration makes, by name and definition; a column's place says nothing.
CATALOGUE = """
SELECT 'column', c.relname || '.' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
    a.attnotnull, a.attstorage, a.attgenerated, coalesce(a.attstattarget, -1), a.attcollation,
    pg_get_expr(d.adbin, d.adrelid))
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE c.relnamespace = 'strandline'::regnamespace
UNION ALL
SELECT 'table', c.relname, concat_ws(' ', c.relkind, c.reloptions, obj_description(c.oid, 'pg_class'),
    pg_get_indexdef(i.indexrelid), i.indisvalid)
FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relnamespace = 'strandline'::regnamespace
UNION ALL
SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'strandline'::regnamespace
UNION ALL
SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL
SELECT 'function', proname, pg_get_functiondef(oid) FROM pg_proc
WHERE pronamespace = 'strandline'::regnamespace
"""


def catalogue(url: str) -> set[tuple[Any, ...]]:
    return set(rows_of(url, CATALOGUE))


def test_each_step_of_the_first_migration_has_a_name_of_its_own() -> None:
    names = re.findall(r"(?m)^-- step: (.+)$", FIRST_FILE.read_text())
    assert len(set(names)) == len(names)
    assert {"table message", "comment on table message", "unique index message_by_id"} <= set(names)


@pytest.mark.parametrize("revision", revisions())
def test_a_migration_executes_what_its_digest_says(revision: str) -> None:
    lines = dict(line.split(maxsplit=1) for line in DIGESTS.read_text().splitlines())
    assert lines[revision].split()[1] == digest(revision), AGAIN
    assert revision in frozen() or lines[revision].split()[0] == VERSION, AGAIN


def test_until_its_release_the_first_migration_is_what_the_tables_declare() -> None:
    assert FIRST in frozen() or FIRST_FILE.read_text() == first_migration(), AGAIN


def test_a_tag_has_the_digests_of_its_release() -> None:
    for line in frozen().values():
        released = subprocess.run(
            ["git", "show", f"v{line.split()[1]}:{DIGESTS.relative_to(ROOT)}"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert released.returncode or line in released.stdout.splitlines(), AGAIN


def test_a_heading_of_the_release_freezes_its_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_FILE", "DIGESTS"):
        monkeypatch.setattr(writing, name, tmp_path / name)
    monkeypatch.setattr(writing, "ROOT", tmp_path)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## [Unreleased]\n")
    (tmp_path / "DIGESTS").write_text(f"{FIRST} 0.1.0 of-before\n")
    writing.main()
    assert (tmp_path / "FIRST_FILE").read_text() == first_migration()
    assert "of-before" not in (tmp_path / "DIGESTS").read_text()
    changelog.write_text("# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n")
    (tmp_path / "FIRST_FILE").write_text("as released")
    (tmp_path / "DIGESTS").write_text(f"{FIRST} 0.1.0 as-released\n")
    writing.main()
    assert (tmp_path / "FIRST_FILE").read_text() == "as released"
    assert (tmp_path / "DIGESTS").read_text().splitlines()[0] == f"{FIRST} 0.1.0 as-released"
    monkeypatch.setattr(writing, "revisions", lambda: (FIRST, "0002"))
    monkeypatch.setattr(writing, "VERSION", "0.1.0")
    with pytest.raises(SystemExit, match=r"0002 is new, and 0[.]1[.]0 is released: raise VERSION"):
        writing.main()


def test_the_digest_covers_tables_functions_and_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(FIRST)
    statements = list(migrations.first_statements(2))
    for name in function_names():
        source = function_source(name, SCHEMA)
        assert source[source.index("CREATE FUNCTION") :].strip() in statements
    monkeypatch.setattr(migrations, "function_source", lambda *given: function_source(*given) + " ")
    assert digest(FIRST) == before  # what no server sees
    monkeypatch.setattr(
        migrations, "function_source", lambda *given: function_source(*given).replace("RETURN", "Return")
    )
    assert digest(FIRST) != before


@whole_tables
def test_all_migrations_make_what_the_tables_declare(database_url: str, empty_database_url: str) -> None:
    """The catalogue after every step, and after what ``schemas/tables`` declares today: the same."""
    engine = sa.create_engine(
        psycopg_url(empty_database_url).replace("postgresql:", "postgresql+psycopg:", 1)
    )
    with engine.begin() as connection:
        connection.execute(sa.text("SET check_function_bodies = off"))
        connection.execute(sa.text("CREATE SCHEMA strandline"))
        connection.execute(sa.text("CREATE EXTENSION vector"))
        for _text, statement in _declared():
            connection.exec_driver_sql(statement.replace("%", "%%"))
    engine.dispose()
    declared, migrated = catalogue(empty_database_url), catalogue(database_url)
    assert migrated - declared == set()
    assert declared - migrated == set()


def _declared() -> Iterator[tuple[str, str]]:
    pieces = re.split(r"(?m)^-- step: (.+)\n", first_migration())[1:]
    for text, body in zip(pieces[::2], pieces[1::2], strict=True):
        statement = body.strip().removesuffix(migrations.DIVIDED)
        name = statement.removeprefix(migrations.FUNCTION)
        yield text, statement if name == statement else function_source(name, SCHEMA)


NEXT = """\
-- step: the column note of session
ALTER TABLE strandline.session ADD COLUMN IF NOT EXISTS note text DEFAULT 'none' NOT NULL

-- step: the table diary
CREATE TABLE IF NOT EXISTS strandline.diary (entry bigint PRIMARY KEY)

-- step: an index of message by its tokens
CREATE INDEX CONCURRENTLY IF NOT EXISTS message_by_tokens ON strandline.message (tokens)

-- step: statistics of session.note
ALTER TABLE strandline.session ALTER COLUMN note SET STATISTICS 0

-- step: the comment of session
COMMENT ON TABLE strandline.session IS 'sessions'

-- step: the check of notes
CREATE OR REPLACE TRIGGER note_check AFTER UPDATE OF note ON strandline.session \
FOR EACH ROW EXECUTE FUNCTION strandline.check_session_v1()

-- step: the function role_key_v1
-- function: role_key_v1

-- step: nothing that is there
DROP FUNCTION IF EXISTS strandline.no_such_function()
"""
BUILDING = "SELECT pid FROM pg_stat_activity WHERE query ~ '^CREATE INDEX CONC' AND wait_event_type = 'Lock'"


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A release with one more migration, in which each form of a step occurs."""
    (tmp_path / "0001_first.sql").write_text(FIRST_FILE.read_text())
    (tmp_path / "0002_next.sql").write_text(NEXT)
    monkeypatch.setattr(migrations, "FOLDER", tmp_path)
    monkeypatch.setattr(runner, "HEAD_REVISION", "0002")
    monkeypatch.setattr(runner, "LOCK_PAUSE_SECONDS", 0.01)
    revisions.cache_clear()
    yield
    revisions.cache_clear()


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.usefixtures("next_release")
def test_a_migration_killed_at_any_step_is_run_again(database_url: str, empty_database_url: str) -> None:
    steps = len(plan(database_url, SCHEMA))
    for number in range(1, steps + 1):

        def die(line: str, beginning: str = f"{SCHEMA}: 0002, step {number} of") -> None:
            if line.startswith(beginning):
                raise Killed

        with pytest.raises(Killed):
            migrate(database_url, SCHEMA, report=die)
        assert current_revision(database_url, SCHEMA) == FIRST
    assert migrate(database_url, SCHEMA) == "0002"
    assert plan(database_url, SCHEMA) == []
    migrate(empty_database_url, SCHEMA, partitions=None)
    assert migrate(database_url, SCHEMA) == current_revision(empty_database_url, SCHEMA) == "0002"


@pytest.mark.usefixtures("next_release")
def test_the_locks_of_a_plan_are_those_that_the_steps_take(database_url: str) -> None:
    """Each step in a transaction: no other table is locked in a way that puts see."""
    planned = plan(database_url, SCHEMA)
    assert {step.lock for step in planned} > {"ACCESS EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", ""}
    held = (
        "SELECT c.relname::text, upper(regexp_replace("
        "replace(l.mode, 'Lock', ''), '(?<=[a-z])(?=[A-Z])', ' ', 'g'))"
        " FROM pg_locks l JOIN pg_class c ON c.oid = l.relation AND c.relkind IN ('r', 'p')"
        " WHERE l.pid = pg_backend_pid() AND c.relnamespace = 'strandline'::regnamespace"
    )
    with psycopg.connect(database_url) as connection:
        before = {row[0] for row in rows_of(database_url, "SELECT relname FROM pg_class")}
        for step in steps_after(FIRST):
            lock, table = step.form[0].lock, step.form[1].get("table")
            if step.form[0].concurrent:
                continue  # of its own connection: the next test
            with connection.transaction():
                connection.execute(step.sql.encode())
                modes = {row for row in connection.execute(held.encode()).fetchall() if row[0] in before}
                weak = {"ACCESS SHARE", "ROW SHARE"}
                assert {row for row in modes if row[1] not in weak} <= {(table, lock)}, step
                assert not lock or (table, lock) in modes, step


@pytest.mark.usefixtures("next_release")
def test_a_step_gives_way_to_who_waits_behind_it(database_url: str) -> None:
    """While a transaction holds the table, a put waits for a step no longer than the step's time."""
    said: list[str] = []
    with psycopg.connect(database_url) as holder:
        holder.execute("SELECT FROM strandline.session LIMIT 1")
        migrating = start_to_migrate(database_url, said.append)
        wait_until(lambda: sum("gives way" in line for line in said) > 1, timeout=60, what="the second try")
        # What comes now waits behind the step, or finds the table free: it has its lock in any case.
        rows_of(database_url, "SELECT count(*) FROM strandline.session")
        assert migrating.is_alive()
    migrating.join(60)
    assert current_revision(database_url, SCHEMA) == "0002"


@pytest.mark.usefixtures("next_release")
def test_a_table_that_is_never_free_ends_the_migration_with_a_sentence(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOCK_TRIES", 2)
    monkeypatch.setattr(runner, "LOCK_MILLISECONDS", 20)
    with psycopg.connect(database_url) as holder:
        holder.execute("SELECT FROM strandline.session LIMIT 1")
        with pytest.raises(SchemaError, match=r"session was never free .* End that transaction"):
            migrate(database_url, SCHEMA)
    assert current_revision(database_url, SCHEMA) == FIRST


def _migrate_and_fail(url: str) -> None:
    with pytest.raises(StrandlineError):
        migrate(url, SCHEMA)


@pytest.mark.usefixtures("next_release")
def test_an_index_whose_build_was_interrupted_is_built_again(database_url: str) -> None:
    """Its build waits for an older transaction, is ended, and leaves an index that is not valid."""
    invalid = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"
    with psycopg.connect(database_url) as holder:
        holder.execute("SELECT txid_current()")
        holder.execute("LOCK TABLE strandline.message IN ROW EXCLUSIVE MODE")
        migrating = threading.Thread(target=_migrate_and_fail, args=(database_url,))
        migrating.start()
        wait_until(lambda: bool(rows_of(database_url, BUILDING)), timeout=60, what="the build")
        rows_of(database_url, BUILDING.replace("pid", "pg_terminate_backend(pid)"))
        migrating.join(60)
        assert rows_of(database_url, invalid) != [(0,)]
    assert migrate(database_url, SCHEMA) == "0002"
    assert rows_of(database_url, invalid) == [(0,)]
    assert rows_of(database_url, "SELECT to_regclass('strandline.message_by_tokens') IS NOT NULL") == [
        (True,)
    ]


@pytest.mark.usefixtures("next_release")
def test_the_next_run_after_a_kill_while_an_index_is_built_ends_that_build(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server hears of its client's end by the socket alone, and the build holds the table."""
    connections: list[OwnConnection] = []
    connect = runner._connect

    def note(*arguments: Any) -> Any:
        connections.append(connect(*arguments))
        return connections[-1]

    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE strandline.message IN ROW EXCLUSIVE MODE")
        with monkeypatch.context() as patched:
            patched.setattr(runner, "_connect", note)
            killed = threading.Thread(target=_migrate_and_fail, args=(database_url,))
            killed.start()
            wait_until(lambda: bool(rows_of(database_url, BUILDING)), timeout=60, what="the build")
        ((pid,),) = rows_of(database_url, BUILDING)
        for connection in connections:
            if not connection.closed:
                is_building = connection.info.backend_pid == pid
                assert connection.statement_seconds == math.inf or not is_building
                with socket.socket(fileno=os.dup(connection.fileno())) as its:
                    its.shutdown(socket.SHUT_RDWR)
        killed.join(60)
        again = start_to_migrate(database_url, print)
        gone = "SELECT FROM pg_stat_activity WHERE pid = %s"
        wait_until(lambda: not rows_of(database_url, gone, pid), timeout=60, what="the end of the build")
    again.join(60)
    assert current_revision(database_url, SCHEMA) == "0002"


@pytest.mark.usefixtures("next_release")
def test_a_migration_that_waits_for_its_turn_holds_up_no_build_of_an_index(database_url: str) -> None:
    """A build waits for each older snapshot, and so for a statement that waits for the build's turn."""
    said: list[str] = []
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE strandline.message IN ROW EXCLUSIVE MODE")
        first = start_to_migrate(database_url, said.append)
        wait_until(lambda: bool(rows_of(database_url, BUILDING)), timeout=60, what="the build")
        second = start_to_migrate(database_url, said.append)
        wait_until(lambda: WAITS in said, timeout=60, what="the second migration")
    first.join(60)
    second.join(60)
    assert current_revision(database_url, SCHEMA) == "0002"


@pytest.mark.usefixtures("next_release")
def test_a_newer_release_that_migrates_first_leaves_nothing_to_an_older_one(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both began at the same revision."""
    run_steps = runner._run_steps

    def come_second(url: str, schema: str, report: runner.Report, public_apis_only: bool) -> str:
        run_steps(url, schema, lambda _line: None, public_apis_only)
        rows_of(url, "UPDATE strandline.alembic_version SET version_num = '0003' RETURNING 1")
        return run_steps(url, schema, report, public_apis_only)

    monkeypatch.setattr(runner, "_run_steps", come_second)
    said: list[str] = []
    assert migrate(database_url, SCHEMA, report=said.append) == "0003"
    assert said == [f"{SCHEMA}: {FIRST} -> 0003"]


@pytest.mark.usefixtures("next_release")
def test_an_index_of_a_divided_table_is_built_part_by_part(empty_database_url: str) -> None:
    with pytest.raises(Killed):
        migrate(empty_database_url, SCHEMA, partitions=2, report=_die_at_the_first_step)
    named = [step for step in plan(empty_database_url, SCHEMA) if "tokens" in step.text]
    assert [(step.table, step.lock) for step in named] == [
        ("message_p0", "SHARE UPDATE EXCLUSIVE"),
        ("message_p1", "SHARE UPDATE EXCLUSIVE"),
        ("message", "SHARE"),
    ]
    assert migrate(empty_database_url, SCHEMA, partitions=2) == "0002"
    built = (
        "SELECT relid::text FROM pg_partition_tree('strandline.message_by_tokens') WHERE isleaf ORDER BY 1"
    )
    assert [name for (name,) in rows_of(empty_database_url, built)] == [
        f"strandline.{part}_message_by_tokens" for part in ("message_p0", "message_p1")
    ]


@pytest.mark.usefixtures("next_release")
def test_a_step_on_a_divided_table_gives_way_after_one_limit_for_all_partitions(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition is free as its turn comes, but all together take longer than the limit."""
    monkeypatch.setattr(runner, "HEAD_REVISION", FIRST)
    migrate(empty_database_url, SCHEMA, partitions=8)
    monkeypatch.setattr(runner, "HEAD_REVISION", "0002")
    (tmp_path / "0002_next.sql").write_text(
        "-- step: note\nALTER TABLE strandline.message ADD COLUMN IF NOT EXISTS note text\n"
    )
    said: list[str] = []
    locked = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted AND relation ="
    holders = [psycopg.connect(empty_database_url) for _part in range(8)]
    for part, holder in enumerate(holders):
        holder.execute(f"SELECT FROM strandline.message_p{part} LIMIT 1".encode())
    migrating = start_to_migrate(empty_database_url, said.append)
    for part, holder in enumerate(holders):
        waits = f"{locked} 'strandline.message_p{part}'::regclass"
        wait_until(partial(_finds, empty_database_url, waits), timeout=60, what="the step")
        rows_of(empty_database_url, "SELECT pg_sleep(0.2)")  # of the 0.3 s that a lock may take
        holder.close()
    migrating.join(60)
    assert any("message is in use; the step gives way" in line for line in said)
    assert current_revision(empty_database_url, SCHEMA) == "0002"


def _finds(url: str, counting: str) -> bool:
    return rows_of(url, counting) != [(0,)]


@pytest.mark.usefixtures("next_release")
def test_the_size_of_a_divided_table_in_a_plan_is_that_of_its_partitions(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "HEAD_REVISION", FIRST)
    migrate(empty_database_url, SCHEMA, partitions=2)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        for part in range(2):
            connection.execute(
                f"UPDATE pg_class SET reltuples = {part + 1}000 WHERE relname = 'message_p{part}'".encode()
            )
    sizes = {step.table: (step.rows, step.bytes) for step in plan(empty_database_url, SCHEMA)}
    assert sizes["message"][0] == 3_000
    assert sizes["message"][1] == sizes["message_p0"][1] + sizes["message_p1"][1] > 0


@pytest.mark.usefixtures("next_release")
def test_a_migration_makes_missing_functions_again_and_plans_it(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what the migration drops."""
    (tmp_path / "0002_next.sql").write_text("-- step: no pop\nDROP FUNCTION IF EXISTS strandline.pop_v1\n")
    there = "SELECT array_agg(proname::text) FROM pg_proc WHERE proname IN ('flush_v1', 'pop_v1')"
    monkeypatch.setattr(migrations, "HEAD_REVISION", "0002")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "DO $$ BEGIN EXECUTE 'DROP FUNCTION ' || (SELECT oid::regprocedure FROM pg_proc"
            " WHERE proname = 'flush_v1'); END $$"
        )
    for _again in range(2):
        said: list[str] = []
        planned = [step.text for step in plan(database_url, SCHEMA)]
        migrate(database_url, SCHEMA, report=said.append)
        assert rows_of(database_url, there) == [(["flush_v1"],)]
        again = "make functions again: flush_v1"
        assert planned == (["no pop", again] if _again == 0 else [])
        assert any("functions made again: flush_v1" in line for line in said) == (_again == 0)


def test_a_plan_shows_the_partitions_or_refuses_them_as_migrate_does(
    database_url: str, empty_database_url: str
) -> None:
    planned = run_here("migrate", "--plan", "--partitions", "16", on=empty_database_url)
    assert "the big tables in 16 partitions each: waits for nothing" in planned.out
    refused = [
        run_here("migrate", *option, "--partitions", "3", on=database_url) for option in (["--plan"], [])
    ]
    assert [each.code for each in refused] == [1, 1]
    assert "exist already, with" in refused[0].err
    assert refused[0].err == refused[1].err


@pytest.mark.usefixtures("next_release")
def test_a_step_without_a_table_that_is_never_free_names_what_it_waits_for(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOCK_TRIES", 2)
    monkeypatch.setattr(runner, "LOCK_MILLISECONDS", 20)
    (tmp_path / "0002_next.sql").write_text(
        "-- step: diary\nCREATE TABLE IF NOT EXISTS strandline.diary (entry bigint)\n"
    )
    said: list[str] = []
    with psycopg.connect(database_url) as holder:
        holder.execute("CREATE TABLE strandline.diary (entry bigint)")
        with pytest.raises(SchemaError, match=r"catalog was never free .*diary.* End that transaction"):
            migrate(database_url, SCHEMA, report=said.append)
    assert not any("None" in line for line in said)


def _die_at_the_first_step(line: str) -> None:
    if "step 1 of" in line:
        raise Killed


def test_a_plan_is_printed_and_nothing_is_done(
    database_url: str, empty_database_url: str, next_release: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.cli.doctor.servers.HEAD_REVISION", "0002")
    looked = run_here("doctor", "--no-model-call", on=database_url).out
    assert "at revision 0001, not 0002; run `strandline migrate` as their owner" in looked
    planned = run_here("migrate", "--plan", on=database_url)
    assert planned.code == 0
    lines = planned.out.splitlines()[-len(steps_after(FIRST)) :]
    assert lines[0] == (
        "0002: the column note of session: ACCESS EXCLUSIVE on session (0 rows, 0 MB), at once"
    )
    assert lines[1] == "0002: the table diary: waits for nothing"
    report = json.loads(run_here("migrate", "--plan", "--json", on=database_url).out)
    assert (report["before"], report["after"]) == ("0001", "0001")
    assert [step["text"] for step in report["plan"]] == [step.text for step in steps_after(FIRST)]
    empty = json.loads(run_here("migrate", "--plan", "--json", on=empty_database_url).out)
    assert (empty["before"], empty["after"], empty["plan"][0]["revision"]) == (None, None, FIRST)
    assert current_revision(database_url, SCHEMA) == FIRST
    assert current_revision(empty_database_url, SCHEMA) is None


def test_the_time_of_an_index_follows_from_the_size_of_its_table(
    database_url: str, next_release: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "INDEXED_PER_SECOND", 100)
    (build,) = [step for step in plan(database_url, SCHEMA) if step.table == "message"]
    assert build.seconds == round(build.bytes / 100, 1) > 0


_ADD = "ALTER TABLE strandline.session ADD COLUMN IF NOT EXISTS"
NO_FORM = [
    f"{_ADD} at timestamptz DEFAULT clock_timestamp()",
    f"{_ADD} n bigint GENERATED ALWAYS AS IDENTITY",
    f"{_ADD} n bigint GENERATED ALWAYS AS (tokens + 1) STORED",
    f"{_ADD} n uuid DEFAULT gen_random_uuid()",
    f"{_ADD} n bigint DEFAULT 1 NOT NULL, DROP COLUMN note",
    f"{_ADD} n bigint UNIQUE",
    f"{_ADD} n a_domain",
    "ALTER TABLE strandline.session ADD COLUMN note text",
    "ALTER TABLE strandline.session DROP COLUMN note",
    "ALTER TABLE strandline.session ALTER COLUMN note SET STATISTICS 0, ALTER COLUMN note TYPE bigint",
    "CREATE INDEX message_by_tokens ON strandline.message (tokens)",
    "CREATE INDEX IF NOT EXISTS message_by_tokens ON strandline.message (tokens)",
    "CREATE TABLE IF NOT EXISTS strandline.d (n) AS SELECT count(*) FROM strandline.message JOIN x USING (k)",
    "CREATE TABLE IF NOT EXISTS strandline.d AS (SELECT 1)",
    "DROP FUNCTION IF EXISTS strandline.check_session_v1() CASCADE",
    "UPDATE strandline.session SET note = ''",
    "CREATE TABLE strandline.diary (entry bigint)",
]


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ("CREATE TABLE IF NOT EXISTS strandline.d (k uuid REFERENCES strandline.erasure)", "second table"),
        ("CREATE TABLE IF NOT EXISTS strandline.d (k uuid references strandline.erasure)", "second table"),
        ("CREATE TABLE IF NOT EXISTS strandline.d PARTITION  OF strandline.message DEFAULT", "second table"),
        ("CREATE TABLE IF NOT EXISTS strandline.d () INHERITS (strandline.message)", "second table"),
        (f"{_ADD} n bigserial", "serial column"),
        (f"{_ADD} n serial", "serial column"),
        (f"{_ADD} n SERIAL4", "serial column"),
        ("COMMENT ON TABLE strandline.message IS 'a'; DELETE FROM strandline.message", "one statement"),
        (
            "COMMENT ON TABLE strandline.message IS E'\\' '; DELETE FROM strandline.message --'",
            "one statement",
        ),
        ("COMMENT ON TABLE strandline.message IS $a$'$a$; DELETE FROM x; SELECT '$a$'", "one statement"),
        ("COMMENT ON TABLE strandline.d IS 'a' -- it's\n; DELETE FROM strandline.d --'", "one statement"),
        ("CREATE TABLE IF NOT EXISTS strandline.d (\"it's\" uuid); DELETE FROM x --'", "one statement"),
        *((refused, "none of the forms") for refused in NO_FORM),
    ],
)
def test_a_step_that_would_hold_its_lock_or_cannot_be_run_again_is_refused(refused: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"the step is refused: .*{reason}"):
        _ = migrations.Step("0002", "refused", refused).form


@pytest.mark.parametrize(
    "allowed",
    [
        f"{_ADD} n TEXT[] DEFAULT 'a; -- it''s' NOT NULL",
        f"{_ADD} at TIMESTAMP WITH TIME ZONE;",
        "COMMENT ON TABLE strandline.message IS 'REFERENCES; a serial -- \"x\"'",
        "CREATE TABLE IF NOT EXISTS strandline.d (\n\tk UUID, \n\tPRIMARY KEY (k)\n) WITH (fillfactor = 50)",
        f"{_ADD} k TEXT COLLATE \"C\" DEFAULT 'a' NOT NULL",
        'CREATE TABLE IF NOT EXISTS strandline.d (\n\tk TEXT COLLATE "C" NOT NULL\n)',
        "DROP FUNCTION IF EXISTS strandline.pop_v1(uuid, text[])",
        "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS d ON strandline.message (k) WHERE label = 'a'",
        *(
            sql.replace("CREATE", "CREATE OR REPLACE", 1)
            for sql in first_statements(0)
            if "FUNCTION" in sql[:16]
        ),
    ],
)
def test_words_in_texts_and_one_last_semicolon_refuse_no_step(allowed: str) -> None:
    assert migrations.Step("0002", "allowed", allowed).form


def test_every_step_of_this_release_has_a_form() -> None:
    for step in steps_after(FIRST):
        assert step.form
