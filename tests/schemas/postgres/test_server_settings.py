"""Every setting of a server that a session can have its own value of: set by us, looked at, or irrelevant."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import Conninfo

from strandline import ConfigurationError, DatabaseUnavailableError
from strandline.cli.doctor.servers import check_database
from strandline.cli.servers.targets import Servers
from strandline.deploy.embedded.wheel_binaries import postgres_programs
from strandline.schemas.display.shown_url import LIBPQ_OPTIONS
from strandline.schemas.postgres.async_database import AsyncDatabase
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import _NEEDED, migrate
from strandline.schemas.postgres.options import ConnectionOptions, options_of
from strandline.schemas.postgres.pools.beginnings import MARK, NOT_ASKED_FOR
from strandline.schemas.postgres.revision import OLDEST_PGVECTOR, version_numbers
from strandline.schemas.queries.inspection.status import SchemaRevision
from strandline.schemas.settings import load_settings
from tests.conftest import MakeMemory

# Costs, memory, logs: a session does the same, sooner or later.
IRRELEVANT_CATEGORIES = (
    "Autovacuum", "Connections and Authentication", "Developer Options", "Lock Management", "Query Tuning",
    "Replication", "Reporting and Logging", "Resource Usage", "Statistics", "Vacuuming", "Write-Ahead Log",
    "Client Connection Defaults / Shared Library Preloading",
)  # fmt: skip
# The rest by name, with the reason.
IRRELEVANT = {
    "makes nothing that the statements read": (
        "createrole_self_grant", "default_table_access_method", "default_tablespace", "event_triggers",
        "default_toast_compression", "dynamic_library_path", "extension_control_path", "temp_tablespaces",
        "gin_pending_list_limit",
    ),
    "of texts that no statement makes": (
        "default_text_search_config", "icu_validation_level", "lc_monetary", "lc_numeric", "lc_time",
        "xmlbinary", "xmloption", "quote_all_identifiers", "timezone_abbreviations",
    ),
    "errors are told by their codes, notices are not read": ("lc_messages", "client_min_messages"),
    "of literals that no statement has": ("backslash_quote", "escape_string_warning"),
    "an order that no statement relies on": ("synchronize_seqscans",),
    "of large objects, views and policies, which the tables do not have": (
        "lo_compat_privileges", "restrict_nonsystem_relation_kind", "row_security",
    ),
    "a limit: what it ends says so, and is retried": ("idle_session_timeout", "transaction_timeout"),
    "of indexes of vectors, which the tables do not have": ("hnsw.", "ivfflat.", "vector."),
    "of what functions do not do: none has names that are ambiguous under the default, `error`": (
        "plpgsql.check_asserts", "plpgsql.print", "plpgsql.variable_conflict",
    ),
    "of VACUUM": ("vacuum_",),
    "of this transaction: begun as its default says": ("transaction_",),
}  # fmt: skip
BY_LIBPQ = {"client_encoding", "application_name", "search_path"}
SETTABLE = """
SELECT name, category FROM pg_settings WHERE context IN ('user', 'superuser') ORDER BY name
"""


def asked_for(url: str) -> set[str]:
    options = ConnectionOptions.from_settings(url, load_settings(), durable=False, planned_once=True)
    return set(re.findall(r"-c ([\w.]+)=", options.connect_arguments()["options"]))


def verdicts(name: str, category: str, asked: set[str]) -> Iterator[str]:
    """What is to be said of a setting; one verdict each."""
    if name.lower() in asked | BY_LIBPQ:
        yield "set"
    elif name in NOT_ASKED_FOR:
        yield "looked at"
    elif name in {*_NEEDED, "plpgsql.extra_errors", "plpgsql.extra_warnings"}:
        yield "set by a migration"
    elif category.startswith(IRRELEVANT_CATEGORIES):
        yield "irrelevant: of its category"
    else:
        yield from (reason for reason, names in IRRELEVANT.items() if name.startswith(names))


def test_each_setting_of_a_session_has_its_verdict(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("LOAD 'plpgsql'")
        rows = connection.execute(SETTABLE).fetchall()
    asked = asked_for(database_url)
    said = {name: list(verdicts(name, category, asked)) for name, category in rows}
    without = [name for name, verdict in said.items() if len(verdict) != 1]
    assert not without, "say of each whether a statement's meaning depends on it"
    assert asked - {name.lower() for name in said} == {MARK}, "no setting of ours is unknown to the server"


@pytest.fixture
def session(database_url: str) -> Callable[..., dict[str, str]]:
    """What a connection of ours to a URL has of some settings."""

    def look(query: str, *names: str) -> dict[str, str]:
        url = f"{database_url}&{query}"
        database = Database.connect(ConnectionOptions.from_settings(url, load_settings(database_url=url)))
        try:
            with database.transaction() as tx:
                shown = "SELECT current_setting(name) FROM unnest(%s::text[]) AS s (name)"
                found = tx._connection.execute(shown, [list(names)]).fetchall()
        finally:
            database.close()
        return dict(zip(names, (str(value) for (value,) in found), strict=True))

    return look


OURS = ("work_mem", "application_name", "datestyle", "statement_timeout")


def test_options_of_the_url_stay_and_ours_are_added(session: Callable[..., dict[str, str]]) -> None:
    assert session("options=-cwork_mem%3D9MB%20-cdatestyle%3DGerman&application_name=billing", *OURS) == {
        "work_mem": "9MB",
        "application_name": "billing",
        "datestyle": "ISO, DMY",
        "statement_timeout": "30s",
    }


def test_pgoptions_stay_as_well(
    session: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=9MB -c synchronous_commit=off")
    assert session("", "work_mem", "synchronous_commit", "application_name") == {
        "work_mem": "9MB",
        "synchronous_commit": "local",
        "application_name": "strandline",
    }


@pytest.mark.parametrize("by", ["the URL", "PGSERVICE", "its own file"])
def test_options_of_a_service_stay_and_the_urls_are_above_them(
    by: str,
    session: Callable[..., dict[str, str]],
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "services"
    of_session = "options=-c work_mem=9MB -c datestyle=German -c synchronous_commit=off"
    file.write_text(
        f"[ours]\n{of_session}\nconnect_timeout=17\nkeepalives_idle=60\napplication_name=billing\n"
    )
    if by != "its own file":
        monkeypatch.setenv("PGSERVICEFILE", str(file))
    else:
        monkeypatch.setenv("HOME", str(tmp_path))
        file.rename(tmp_path / ".pg_service.conf")
    if by == "PGSERVICE":
        monkeypatch.setenv("PGSERVICE", "ours")
    query = "sslmode=prefer" if by == "PGSERVICE" else "service=ours"
    assert session(query, *OURS, "synchronous_commit") == {
        "work_mem": "9MB",
        "application_name": "billing",
        "datestyle": "ISO, DMY",
        "statement_timeout": "30s",
        "synchronous_commit": "local",
    }
    assert session(f"{query}&options=-cwork_mem%3D7MB", "work_mem") == {"work_mem": "7MB"}
    options = ConnectionOptions.from_settings(f"{database_url}&{query}", load_settings()).connect_arguments()
    assert not {"connect_timeout", "keepalives_idle"} & set(options)
    assert options["keepalives_count"] == 3


@pytest.mark.parametrize(
    "named", ["hostaddr=127.0.0.1", "host=127.0.0.1", "host=a,b\nhostaddr=::1,127.0.0.1"]
)
def test_a_service_is_read_without_a_connection(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        file = tmp_path / "services"
        file.write_text(f"[ours]\n{named}\nport={server.getsockname()[1]}\nconnect_timeout=17\n")
        monkeypatch.setenv("PGSERVICEFILE", str(file))
        monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
        assert options_of("postgresql://?service=ours") == {"service": "ours", "connect_timeout": "17"}
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_service_that_no_file_has_is_refused_by_name(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", database_url=f"{database_url}&service=nobodys")
    with pytest.raises(DatabaseUnavailableError, match="no service file defines"):
        memory.put({"role": "user", "content": "hello"})


@pytest.mark.parametrize("level", ["local", "on", "remote_write", "remote_apply"])
def test_an_operators_durability_stays(level: str, session: Callable[..., dict[str, str]]) -> None:
    set_to = f"options=-csynchronous_commit%3D{level}"
    assert session(set_to, "synchronous_commit") == {"synchronous_commit": level}


def test_no_variable_moves_a_url_that_names_its_host(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "any")
    assert migrate(database_url, "strandline")
    reports = [*check_database(Servers(database_url, None, "configured", "configured"), load_settings())]
    assert [report.found for report in reports if report.name == "environment"] == [
        "the URL of the database leaves open what PGTARGETSESSIONATTRS decides"
    ]

    async def look() -> None:
        options = ConnectionOptions.from_settings(database_url, load_settings())
        database = AsyncDatabase.connect(options)
        await database.fetch(SchemaRevision())
        await database.close()

    asyncio.run(look())


def test_the_urls_time_to_connect_stays(database_url: str) -> None:
    def arguments(query: str) -> dict[str, object]:
        return ConnectionOptions.from_settings(f"{database_url}&{query}", load_settings()).connect_arguments()

    assert arguments("")["connect_timeout"] == 5
    assert "connect_timeout" not in arguments("connect_timeout=2")
    assert "keepalives_idle" not in arguments("keepalives_idle=60")


@pytest.mark.parametrize(
    ("query", "name"),
    [("pgbouncer=true", "pgbouncer"), ("schema=public", "schema"), ("sslmode=disable&supa=x", "supa")],
)
def test_an_unknown_option_is_refused_by_name_as_the_setting_is_read(query: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the option '{name}'"):
        load_settings(database_url=f"postgresql://u:p@127.0.0.1:1/d?{query}")


def test_a_piece_of_a_password_is_not_taken_for_the_name_of_an_option() -> None:
    for url in ("postgresql://u@h/d?password=a&bcd=e", "postgresql://u:12?b&cd@h/d"):
        with pytest.raises(ConfigurationError) as told:
            load_settings(database_url=url)
        assert "bcd" not in str(told.value) and "cd@" not in str(told.value)


def test_all_options_of_libpq_are_known() -> None:
    assert {option.keyword.decode() for option in Conninfo.get_defaults()} <= LIBPQ_OPTIONS


def test_pgvector_from_the_declared_floor_on_has_all_that_is_used() -> None:
    """Its later releases add casts to sparse vectors in SQL, and nothing else."""
    scripts = [path for path in _scripts() if _from_version(path) >= OLDEST_PGVECTOR]
    assert scripts
    for path in scripts:
        for statement in re.sub(r"^(--|\\).*$", "", path.read_text(), flags=re.MULTILINE).split(";"):
            assert not statement.strip() or "sparsevec" in statement, path.name


def _scripts() -> list[Path]:
    return sorted(postgres_programs().parent.rglob("share/**/extension/vector--*--*.sql"))


def _from_version(script: Path) -> tuple[int, ...]:
    return version_numbers(script.name.split("--")[1])
