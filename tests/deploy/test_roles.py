"""The roles of deploy/postgres/roles.sql: the application's is enough for all but migrations."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from strandline import Memory
from strandline.cli.doctor.servers import check_database
from strandline.cli.servers.targets import Servers
from strandline.deploy.embedded.postgres import EmbeddedPostgres
from strandline.deploy.embedded.wheel_binaries import postgres_programs
from strandline.schemas.errors import SchemaError
from strandline.schemas.postgres import migrate as runner
from strandline.schemas.postgres import migrations
from strandline.schemas.postgres.migrate import migrate, plan
from strandline.schemas.postgres.migrations import HEAD_REVISION
from strandline.schemas.settings import load_settings
from tests.conftest import nothing_due, rows_of, wait_until
from tests.support.processes import forking
from tests.support.servers.databases import PARTITIONS
from tests.support.workers.worker_processes import launch_worker
from tools.migrations import FIRST_FILE

ROLES = Path(__file__).resolve().parent.parent.parent / "deploy/postgres/roles.sql"


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@"))


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A separate server, since roles belong to all its databases, migrated by the owner."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("roles") / "postgres")
    url = server.start()
    passwords = {"OWNER_PASSWORD": "o'wner", "APP_PASSWORD": "a$pp"}
    forking.run(
        [postgres_programs() / "psql", "--no-psqlrc", "--quiet", "--file", ROLES, url],
        env={**os.environ, **passwords},
        check=True,
    )
    migrate(as_role(url, "strandline_owner"), "strandline", partitions=PARTITIONS)
    yield url
    server.stop()


def run_command(url: str, *arguments: str) -> None:
    forking.run(
        [sys.executable, "-m", "strandline", *arguments],
        env={**os.environ, "STRANDLINE_DATABASE_URL": url, "STRANDLINE_EMBEDDED": "never"},
        check=True,
        timeout=120,
    )


def test_a_worker_and_a_producer_need_no_more_than_the_applications_role(
    server_url: str, broker_url: str, tmp_path: Path
) -> None:
    url = as_role(server_url, "strandline_app")
    worker = launch_worker(url, broker_url)
    try:
        wait_until(
            lambda: rows_of(url, "SELECT 1 FROM strandline.worker"),
            timeout=30,
            what="the worker to register",
        )
        memory = Memory.from_defaults(
            "chat", user_id="ana", token_limit=500, token_flush_size=60, database_url=url
        )
        for n in range(40):
            memory.put(
                {"role": "user", "content": f"My dog number {n} is called Bolt, and it lives in Porto."}
            )
        memory.flush()
        wait_until(lambda: nothing_due(url), timeout=60, what="the work to be done")
        assert memory.get("Which dog?").to_openai()
        assert rows_of(url, "SELECT 1 FROM strandline.fact")
        lines = tmp_path / "chat.jsonl"
        lines.write_text("".join(f'{{"role": "user", "content": "Line {n}."}}\n' for n in range(20)))
        run_command(url, "import", str(lines), "--session", "old", "--user", "ana")
        run_command(url, "verify", "--deep")
        run_command(url, "status")
        memory.reset(derived=True)
        memory.close()
    finally:
        worker.end()


def run_migrate(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    return forking.run(
        [sys.executable, "-m", "strandline", "migrate", "--database-url", url, *options],
        env={**os.environ, "STRANDLINE_EMBEDDED": "never"},
        capture_output=True,
        timeout=120,
    )


def test_the_applications_role_finds_that_nothing_is_to_be_migrated(server_url: str) -> None:
    done = run_migrate(as_role(server_url, "strandline_app"))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"strandline: at revision {HEAD_REVISION}, so there is nothing to do" in done.stdout


def test_what_is_to_be_migrated_is_left_to_the_owner(server_url: str) -> None:
    done = run_migrate(as_role(server_url, "strandline_app"), "--schema", "another")
    assert done.returncode == 1
    assert done.stderr == (
        "strandline: This role may not change the tables; `strandline migrate` has to be run by their owner,"
        " or, if there are none, by a role that may create a schema and the pgvector extension."
        " (permission denied for database postgres)\n"
    )


@pytest.mark.parametrize("role", ["strandline_app", "strandline_owner"])
def test_no_role_of_strandlines_is_a_superuser(server_url: str, role: str) -> None:
    with psycopg.connect(as_role(server_url, role)) as connection:
        row = connection.execute(
            "SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
    assert row == (False,)


@pytest.fixture(scope="module")
def hardened_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose superuser leaves PUBLIC no right on new functions, pgvector's and those of the owner."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("hardened") / "postgres")
    url = server.start()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
        connection.execute("ALTER DEFAULT PRIVILEGES REVOKE USAGE ON TYPES FROM PUBLIC")
        connection.execute("CREATE SCHEMA extensions")
        connection.execute("CREATE EXTENSION vector SCHEMA extensions")
    psql(url, "--file", str(ROLES), OWNER_PASSWORD="o", APP_PASSWORD="a")
    psql(url, "--command", REVOKE_FROM_PUBLIC)
    migrate(as_role(url, "strandline_owner"), "strandline")
    yield url
    server.stop()


REVOKE_FROM_PUBLIC = (
    "ALTER DEFAULT PRIVILEGES FOR ROLE strandline_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC"
)


OLD_POP = """
DO $$ BEGIN
    EXECUTE replace(pg_get_functiondef('strandline.pop_v1'::regproc), 'BEGIN', 'BEGIN  -- older');
END $$
"""


def psql(url: str, *arguments: str, **variables: str) -> None:
    forking.run(
        [postgres_programs() / "psql", "--no-psqlrc", "--quiet", *arguments, url],
        env={**os.environ, **variables},
        check=True,
    )


def findings(url: str, name: str) -> list[tuple[str, str | None]]:
    checks = check_database(Servers(url, None, "configured", "configured"), load_settings(database_url=url))
    return [(check.found, check.advice) for check in checks if check.name == name]


rights_missing = partial(findings, name="rights")
functions_differing = partial(findings, name="functions")


def test_the_roles_are_enough_on_a_hardened_server(hardened_url: str) -> None:
    url = as_role(hardened_url, "strandline_app")
    assert rights_missing(url) == []
    memory = Memory.from_defaults("chat", user_id="ana", database_url=url, consume="background")
    memory.put({"role": "user", "content": "My dog is called Bolt, and it lives in Porto."})
    memory.flush(all=True)
    wait_until(lambda: nothing_due(url), timeout=60, what="the work to be done")
    assert memory.get("Which dog?").to_openai()
    memory.close()


def test_the_applications_role_can_dump_its_schema(hardened_url: str, tmp_path: Path) -> None:
    url = as_role(hardened_url, "strandline_app")
    program = str(postgres_programs() / "pg_dump")
    forking.run([program, "--schema=strandline", f"--file={tmp_path / 'dump'}", url], check=True)
    assert "COPY strandline.message" in (tmp_path / "dump").read_text()


@pytest.mark.parametrize(
    ("taken", "found", "advice"),
    [
        (
            "EXECUTE ON ALL FUNCTIONS IN SCHEMA strandline",
            "EXECUTE on the function",
            "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA strandline TO",
        ),
        (
            "EXECUTE ON ALL FUNCTIONS IN SCHEMA extensions",
            "EXECUTE on the function",
            "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA extensions TO",
        ),
        (
            "USAGE ON SCHEMA extensions",
            "USAGE on the schema",
            "GRANT USAGE ON SCHEMA extensions TO",
        ),
        ("USAGE ON SCHEMA strandline", "USAGE on the schema", "GRANT USAGE ON SCHEMA strandline TO"),
        (
            "DELETE ON strandline.message",
            "DELETE on the table 'message'",
            "GRANT DELETE ON ALL TABLES IN SCHEMA strandline TO",
        ),
        (
            "SELECT ON ALL SEQUENCES IN SCHEMA strandline",
            "SELECT on the sequence",
            "GRANT SELECT ON ALL SEQUENCES IN SCHEMA strandline TO",
        ),
        (
            "TEMPORARY ON DATABASE postgres",
            "TEMPORARY on the database 'postgres'",
            "GRANT TEMPORARY ON DATABASE postgres TO",
        ),
        (
            "USAGE ON ALL SEQUENCES IN SCHEMA strandline",
            "USAGE on the sequence",
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA strandline TO",
        ),
    ],
)
def test_doctor_names_each_right_that_was_taken(
    hardened_url: str, taken: str, found: str, advice: str
) -> None:
    psql(hardened_url, "--command", f"REVOKE {taken} FROM strandline_app")
    try:
        ((said, to_do),) = rights_missing(as_role(hardened_url, "strandline_app"))
        assert (found in said, advice in str(to_do)) == (True, True), (said, to_do)
        assert "strandline_app" in str(to_do)
    finally:
        psql(hardened_url, "--command", f"GRANT {taken} TO strandline_app")
    assert rights_missing(as_role(hardened_url, "strandline_app")) == []


GUARD = "ALTER TABLE strandline.message {} ROW LEVEL SECURITY"


@pytest.mark.parametrize(
    ("role", "guarding", "found"),
    [
        ("strandline_app", ["ENABLE"], "of message only rows by policy"),
        ("strandline_owner", ["ENABLE", "FORCE"], "of message only rows by policy"),
        ("strandline_owner", ["ENABLE"], None),
        ("postgres", ["ENABLE", "FORCE"], None),
    ],
)
def test_doctor_names_row_level_security(
    hardened_url: str, role: str, guarding: list[str], found: str | None
) -> None:
    psql(hardened_url, *(f"--command={GUARD.format(act)}" for act in guarding))
    policy = "POLICY everything ON strandline.message"
    url = hardened_url if role == "postgres" else as_role(hardened_url, role)
    try:
        missing = rights_missing(url)
        assert [str(found) in said for said, _to_do in missing] == ([True] if found else [])
        assert all(f"ALTER ROLE {role} BYPASSRLS" in str(to_do) for _said, to_do in missing)
        psql(hardened_url, f"--command=CREATE {policy} USING (true)")
        assert len(rights_missing(url)) == len(missing)
    finally:
        psql(hardened_url, f"--command=DROP {policy.replace('POLICY', 'POLICY IF EXISTS')}")
        psql(hardened_url, *(f"--command={GUARD.format(act)}" for act in ("NO FORCE", "DISABLE")))
    assert rights_missing(url) == []


@pytest.mark.parametrize(
    "change",
    ["DROP FUNCTION strandline.pop_v1", "ALTER FUNCTION strandline.pop_v1 RENAME TO pop_v0", OLD_POP],
)
def test_doctor_names_a_function_that_is_not_this_releases(hardened_url: str, change: str) -> None:
    url = as_role(hardened_url, "strandline_owner")
    assert functions_differing(url) == []
    psql(url, "--command", change)
    ((said, to_do),) = functions_differing(url)
    assert (
        said.startswith("1 function of schema strandline, as pop_v1,"),
        "strandline migrate" in str(to_do),
    ) == (True, True)
    migrate(url, "strandline")
    assert functions_differing(url) == []


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE strandline.message",
        "ALTER TABLE strandline.message ADD COLUMN extra integer",
        "TRUNCATE strandline.message",
        "CREATE TABLE strandline.other (n integer)",
        "CREATE TABLE public.other (n integer)",
        "CREATE SCHEMA other",
        "CREATE ROLE other SUPERUSER",
        "SELECT pg_read_file('postgresql.conf')",
    ],
)
def test_the_applications_role_changes_no_table_and_reads_no_file(server_url: str, statement: str) -> None:
    with (
        psycopg.connect(as_role(server_url, "strandline_app")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


def test_no_password_is_in_the_servers_log_for_a_second_database_either(tmp_path: Path) -> None:
    """Whatever is logged; nor where the environment names files."""
    server = EmbeddedPostgres(tmp_path / "postgres")
    url = server.start()
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            for setting in ("log_statement = 'all'", "log_min_duration_statement = 0", "log_duration = on"):
                connection.execute(f"ALTER SYSTEM SET {setting}".encode())
            connection.execute("SELECT pg_reload_conf()")
            logs = "SELECT current_setting('log_statement') = 'all'"
            wait_until(
                lambda: connection.execute(logs).fetchone() == (True,), timeout=5, what="the new settings"
            )
            connection.execute("CREATE DATABASE second")
        for name in ("owner", "app"):
            (tmp_path / name).write_text(f"0f-{name}-in-a-file\n")
        by_file = {f"{name.upper()}_PASSWORD_FILE": str(tmp_path / name) for name in ("owner", "app")}
        by_value = {"OWNER_PASSWORD": "0f-owner-by-value", "APP_PASSWORD": "0f-app-by-value"}
        second = urlunsplit(urlsplit(url)._replace(path="/second"))
        for database, passwords in ((url, by_value), (second, by_file), (second, by_value)):
            forking.run(
                [postgres_programs() / "psql", "--no-psqlrc", "--quiet", "--file", ROLES, database],
                env={**os.environ, **passwords},
                check=True,
            )
        refused = forking.run(
            [
                postgres_programs() / "psql",
                "--no-psqlrc",
                "--quiet",
                "--file",
                ROLES,
                as_role(url, "strandline_app"),
            ],
            env={**os.environ, **by_value},
            check=False,
        )
        assert refused.returncode != 0
        with psycopg.connect(url) as connection:
            kept = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname LIKE 'strandline%'")
            assert [password[:14] for (password,) in kept] == ["SCRAM-SHA-256$"] * 2
    finally:
        server.stop()
    logged = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*log*") if path.is_file())
    assert "CREATE DATABASE second" in logged and "0f-" not in logged


OWNERS = """SELECT pg_get_userbyid(relowner)::text FROM pg_class
    WHERE relnamespace = 'strandline'::regnamespace
    UNION SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'strandline'::regnamespace"""


@pytest.mark.parametrize("renewing", ["strandline_app", "postgres"])
@pytest.mark.parametrize("change", ["DROP FUNCTION strandline.pop_v1", OLD_POP])
def test_the_tables_may_be_anothers_than_the_schema(renewing: str, change: str, server_url: str) -> None:
    """Of an administrator who made the schema, and lets the application's role make its tables."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS theirs")
        connection.execute("CREATE DATABASE theirs")
    url = urlunsplit(urlsplit(server_url)._replace(path="/theirs"))
    app = as_role(url, "strandline_app")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute("CREATE SCHEMA strandline AUTHORIZATION strandline_owner")
        connection.execute("GRANT USAGE, CREATE ON SCHEMA strandline TO strandline_app")
        migrate(app, "strandline")
        connection.execute(change.encode())
        plan(as_role(url, renewing), "strandline")
        migrate(as_role(url, renewing), "strandline")
        assert plan(app, "strandline") == []
        assert connection.execute(OWNERS).fetchall() == [("strandline_app",)]


def test_a_superuser_makes_tables_in_the_schema_of_the_databases_owner(server_url: str) -> None:
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE publics OWNER strandline_owner")
    url = urlunsplit(urlsplit(server_url)._replace(path="/publics"))
    migrate(url, "public")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP FUNCTION pop_v1")
    migrate(url, "public")
    assert plan(url, "public") == []


def test_a_superusers_migration_makes_what_is_the_owners_of_the_schema(
    server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the application's role has no right on it; another role is refused, also by a plan."""
    (tmp_path / "0001_first.sql").write_text(FIRST_FILE.read_text())
    (tmp_path / "0002_next.sql").write_text(
        "-- step: the table diary\nCREATE TABLE IF NOT EXISTS strandline.diary (entry bigint)\n"
        "-- step: an index\nCREATE INDEX CONCURRENTLY IF NOT EXISTS noted ON strandline.worker (pid)\n"
    )
    monkeypatch.setattr(migrations, "FOLDER", tmp_path)
    monkeypatch.setattr(runner, "HEAD_REVISION", "0002")
    migrations.revisions.cache_clear()
    try:
        for ask in (plan, migrate):
            with pytest.raises(SchemaError, match="has to be run by their owner"):
                ask(as_role(server_url, "strandline_app"), "strandline")
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute("DROP FUNCTION strandline.pop_v1")
        migrate(server_url, "strandline")
        with psycopg.connect(as_role(server_url, "strandline_app"), autocommit=True) as connection:
            assert connection.execute(OWNERS).fetchall() == [("strandline_owner",)]
            connection.execute("INSERT INTO strandline.diary VALUES (1)")
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS strandline.diary")
            connection.execute("DROP INDEX IF EXISTS strandline.noted")
            connection.execute("UPDATE strandline.alembic_version SET version_num = '0001'")
        migrations.revisions.cache_clear()
