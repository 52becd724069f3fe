"""Migrations: bring the tables of one schema to this release, and tell whether they are there.

Only ``strandline migrate``, ``up`` and the embedded default migrate; a configured database is never
changed on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import DatabaseUnavailableError, SchemaError
from strandline.schemas.postgres.deadlines import MAINTENANCE_SECONDS, BoundedConnection
from strandline.schemas.postgres.options import all_options, options_of, psycopg_url, with_defaults
from strandline.schemas.postgres.own_connection import OwnConnection
from strandline.schemas.postgres.pools.beginnings import (
    NOT_ASKED_FOR,
    PINNED,
    Beginnings,
    find_wrong,
    look_for,
    set_all,
)
from strandline.schemas.postgres.pools.connect_problems import connect_problem
from strandline.schemas.postgres.revision import (
    NAME_ANOTHER_SCHEMA,
    Trouble,
    pgvector_trouble,
    server_trouble,
)
from strandline.schemas.postgres.statements import differing_functions, function_source, statements
from strandline.schemas.values.partitions import check_partitions, require_partitions

# Two concurrent migrations (a deploy, `up` next to a script) take turns.
_LOCK = 0x7374726E646C6E65

CONNECT_SECONDS = 10

# A role's limits are for its statements, and a migration takes as long as it takes.
_UNLIMITED = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
_NEEDED = {
    **PINNED,
    **NOT_ASKED_FOR,
    **dict.fromkeys((*_UNLIMITED, "transaction_timeout"), ("0", "0")),
    "check_function_bodies": ("off", "off"),  # else a role's plpgsql.extra_errors would end it
}


def migrate(
    url: str,
    schema: str,
    *,
    partitions: int | None = None,
    report: Callable[[str], None] = lambda _line: None,
    public_apis_only: bool = False,
) -> str:
    """Bring ``schema`` to the newest revision, in one transaction, and return that revision.

    If it is there already, only functions that differ are made again, mostly none; then the role needs no
    right but to read.

    Args:
        url: the database.
        schema: where the tables are, or are made.
        partitions: divide the big tables into so many partitions when they are made; tables that are there
            must be divided so already. Without it new tables are whole, and others stay as they are.
        report: takes a line that describes each step.
        public_apis_only: as in ``ConnectionOptions``.

    Raises:
        ConfigurationError: the number of partitions is out of bounds.
        DatabaseUnavailableError: Postgres cannot be reached.
        SchemaError: the server is too old, or refused a step, such as creating the pgvector extension, or has
            the tables already, with another number of partitions; or the role may not do it; or the schema
            is another application's, or a newer release's.
    """
    if partitions is not None:
        check_partitions(partitions)
    with _connection(url, _kind(public_apis_only)) as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        before = _current(connection, schema)
        server = connection.exec_driver_sql(statements(schema)["describe_server"], {"schema": schema}).one()
        _refuse(server_trouble(server.server, server.encoding))
        if partitions is not None and before is not None:
            require_partitions(_count_partitions(connection, schema), partitions, schema)
        if before == head_revision():
            # For every role: the application's may not make a schema, even an existing one.
            renewed = _renew_functions(connection, schema)
            done = f"functions made again: {', '.join(renewed)}" if renewed else "so there is nothing to do"
            report(f"{schema}: at revision {before}, {done}")
            return before
        _check_writable(connection, is_standby=server.is_standby)
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {schema}"))
        _refuse(pgvector_trouble(server.vector_installed, server.vector_available))
        where = connection.scalar(text("SELECT quote_ident(coalesce(current_schema(), 'public'))"))
        connection.execute(text(f"CREATE EXTENSION IF NOT EXISTS vector SCHEMA {where}"))
        _settle(connection)  # now that pgvector has a schema
        command.upgrade(_config(connection, schema, partitions or 0), "head")
        after = _current(connection, schema) or ""
        report(f"{schema}: {before or 'empty'} -> {after}")
        return after


def head_revision() -> str:
    """The newest revision that this release knows."""
    return ScriptDirectory(str(_folder())).get_current_head() or ""


def current_revision(url: str, schema: str, *, public_apis_only: bool = False) -> str | None:
    """The revision that the tables are at, or None if there are none.

    Raises:
        DatabaseUnavailableError: Postgres cannot be reached.
        SchemaError: the schema is another application's, or a newer release's.
    """
    with _connection(url, _kind(public_apis_only)) as connection:
        return _current(connection, schema)


def divided_tables(url: str, schema: str, *, public_apis_only: bool = False) -> dict[str, int]:
    """The tables that are divided, and into how many partitions; nothing if all are whole, or not there."""
    with _connection(url, _kind(public_apis_only)) as connection:
        return _count_partitions(connection, schema)


def _kind(public_apis_only: bool) -> type[OwnConnection]:
    return OwnConnection if public_apis_only else BoundedConnection


@contextmanager
def _connection(url: str, kind: type[OwnConnection]) -> Iterator[Connection]:
    # SQLAlchemy reads URLs in its own way; this one goes to libpq as it stands, as it does elsewhere.
    beginnings = Beginnings(options_of(psycopg_url(url)).get("options", ""))
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: _connect(psycopg_url(url), kind, beginnings),
        # A role behind a pooler may have another by default: its snapshot would be from before the lock.
        isolation_level="READ COMMITTED",
    )
    try:
        with engine.begin() as connection:
            _settle(connection)
            yield connection
    except OperationalError as error:
        raise DatabaseUnavailableError(
            f"Postgres could not continue; run `strandline migrate` again when it can. ({_first_line(error)})"
        ) from error
    except DBAPIError as error:
        raise SchemaError(_refusal(error)) from error
    finally:
        engine.dispose()


def _connect(url: str, kind: type[OwnConnection], beginnings: Beginnings) -> OwnConnection:
    waiting = with_defaults(options_of(url), connect_timeout=CONNECT_SECONDS)
    limits = all_options(url, ((name, 0) for name in _UNLIMITED))
    options = {"options": limits, "client_encoding": "utf8", "prepare_threshold": None} | waiting
    try:
        connection = beginnings.connect(lambda taken: kind.connect(url, **taken), options)
    except psycopg.Error as error:
        raise DatabaseUnavailableError(connect_problem(error, url)) from None
    connection.statement_seconds = MAINTENANCE_SECONDS
    return connection


def _settle(connection: Connection) -> None:
    row = connection.exec_driver_sql(look_for(_NEEDED).decode()).one()
    if wrong := set_all(find_wrong(row), "SET LOCAL"):
        connection.exec_driver_sql(wrong)


def _check_writable(connection: Connection, *, is_standby: bool) -> None:
    if is_standby:
        raise SchemaError(
            "The server is a standby, which only reads; run `strandline migrate` on its primary."
        )
    if connection.scalar(text("SHOW transaction_read_only")) == "on":
        raise SchemaError(
            "Transactions are read-only by default here. Run `strandline migrate` past the pooler, or `ALTER"
            " ROLE … SET default_transaction_read_only = off` for this role."
        )


def _refuse(trouble: Trouble | None) -> None:
    if trouble is not None:
        finding, advice = trouble
        raise SchemaError(f"{finding[0].upper()}{finding[1:]}; {advice}.")


def _current(connection: Connection, schema: str) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table_schema": schema})
    revisions = context.get_current_heads()
    if not revisions:
        return None
    _check_own(connection, schema, ", ".join(map(quote, revisions)))
    if len(revisions) > 1 or revisions[0] not in _known_revisions():
        raise SchemaError(
            f"Schema {schema} is at revision {', '.join(map(quote, revisions))}, which this release does not"
            " know: its tables are a newer Strandline's, or another application migrates them; use the"
            f" release that made them, or {NAME_ANOTHER_SCHEMA}."
        )
    return revisions[0]


def _check_own(connection: Connection, schema: str, revision: str) -> None:
    """Refuse the version table of another application, whose revision may have a name of ours."""
    asked = {"name": f"{schema}.session_owner"}
    if connection.scalar(text("SELECT to_regclass(:name) IS NULL"), asked):
        raise SchemaError(
            f"Schema {schema} has another application's Alembic table (at revision {revision}), and no tables"
            f" of Strandline; {NAME_ANOTHER_SCHEMA}."
        )


def _renew_functions(connection: Connection, schema: str) -> list[str]:
    """Make the functions again that are missing or differ, as all do in a schema that was renamed."""
    rows = connection.exec_driver_sql(statements(schema)["stored_functions"], {"schema": schema})
    names = differing_functions({row.function_name: row.digest for row in rows}, schema)
    for name in names:
        source = function_source(name, schema).replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
        connection.exec_driver_sql(source.replace("%", "%%"))
    return names


def _known_revisions() -> set[str]:
    return {script.revision for script in ScriptDirectory(str(_folder())).walk_revisions()}


def _count_partitions(connection: Connection, schema: str) -> dict[str, int]:
    rows = connection.exec_driver_sql(statements(schema)["divided_tables"], {"schema": schema})
    return {row.table_name: row.partitions for row in rows}


def _config(connection: Connection, schema: str, partitions: int) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema
    config.attributes["partitions"] = partitions
    return config


def _folder() -> Path:
    return Path(__file__).parent.parent / "migrations"


def _refusal(error: DBAPIError) -> str:
    if not isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
        return f"A migration step was refused: {_first_line(error)}"
    return (
        "This role may not change the tables; `strandline migrate` has to be run by their owner, or, if there"
        f" are none, by a role that may create a schema and the pgvector extension. ({_first_line(error)})"
    )


def _first_line(error: DBAPIError) -> str:
    first = next(iter(str(error.orig).splitlines()), type(error).__name__)
    # Which setting to raise, if Postgres has no room for the locks of many partitions.
    hint = isinstance(error.orig, psycopg.errors.OutOfMemory) and error.orig.diag.message_hint
    return f"{first}: {hint}" if hint else first
