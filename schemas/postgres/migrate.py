"""Migrations: bring the tables of one schema to this release, and tell whether they are there.

Only ``strandline migrate``, ``up`` and the embedded default migrate; a configured database is never
changed on the way.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import namedtuple_row

from strandline.schemas.errors import DatabaseUnavailableError, SchemaError
from strandline.schemas.postgres.deadlines import MAINTENANCE_SECONDS, BoundedConnection, within
from strandline.schemas.postgres.migrations import (
    FIRST,
    HEAD_REVISION,
    INDEXED_PER_SECOND,
    Step,
    first_statements,
    functions_at,
    is_newer,
    or_replace,
    steps_after,
)
from strandline.schemas.postgres.options import all_options, options_of, psycopg_url, with_defaults
from strandline.schemas.postgres.own_connection import OwnConnection
from strandline.schemas.postgres.pools.beginnings import (
    LIMITS_TRANSACTIONS,
    NOT_ASKED_FOR,
    PINNED,
    Beginnings,
    find_wrong,
    look_for,
    set_all,
)
from strandline.schemas.postgres.pools.reaching import connect_problem
from strandline.schemas.postgres.revision import (
    Trouble,
    newer_tables,
    pgvector_trouble,
    server_trouble,
    tables_trouble,
)
from strandline.schemas.postgres.statements import differing_functions, function_source, in_schema, statements
from strandline.schemas.values.partitions import check_partitions, require_partitions

# Two concurrent migrations (a deploy, `up` next to a script) take turns.
_TAKE_TURN = f"SELECT pg_try_advisory_xact_lock({0x7374726E646C6E65})"
TURN_PAUSE_SECONDS = 0.2

CONNECT_SECONDS = 10

# For all locks and the work of a step, as a put that comes after it waits as long; then the step gives way,
# and tries again. A divided table is locked and changed partition by partition.
LOCK_MILLISECONDS = 300
PARTITION_MILLISECONDS = 1
LOCK_TRIES = 200
LOCK_PAUSE_SECONDS = 1.0

# How often the server looks whether the client of an index build is there: else a killed one holds its locks.
CLIENT_CHECK_MILLISECONDS = 100

# A role's limits are for its statements, and a migration takes as long as it takes.
_UNLIMITED = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
_NEEDED = {
    **PINNED,
    **NOT_ASKED_FOR,
    **dict.fromkeys((*_UNLIMITED, "transaction_timeout"), ("0", "0")),
    "check_function_bodies": ("off", "off"),  # else a role's plpgsql.extra_errors would end it
}

Report = Callable[[str], None]


def _tell_nothing(_line: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step that a migration would take: its lock on a table, and about for how long; 0 for a moment."""

    revision: str
    text: str
    table: str = ""
    lock: str = ""
    rows: int = 0
    bytes: int = 0
    seconds: float = 0


def migrate(
    url: str,
    schema: str,
    *,
    partitions: int | None = None,
    report: Report = _tell_nothing,
    public_apis_only: bool = False,
) -> str:
    """Bring ``schema`` to the newest revision, and return that revision.

    The tables are made in one transaction. Later steps are transactions of their own, each of which can be
    run again; a put waits for one for ``LOCK_MILLISECONDS`` at most, and ``PARTITION_MILLISECONDS`` more for
    each partition of its table. Functions that are missing or differ are made again.
    If the revision is there already, these are mostly none; then the role needs no right but to read.
    A newer release's tables stay as they are.

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
            is another application's, or lacks columns; or a lock was never free.
    """
    with _connection(url, public_apis_only) as connection:
        tables = _Tables(connection, schema, report)
        with tables.turn():
            before, functions = tables.prepare(partitions)
            if before is not None and is_newer(before):
                report(f"{schema}: {newer_tables(before)}")
                return before
            if before == HEAD_REVISION:
                # For every role: the application's may not make a schema, even an existing one.
                done = tables.renew_functions(functions) or "so there is nothing to do"
                report(f"{schema}: at revision {before}, {done}")
                return before
            if before is None:
                tables.make_first(partitions or 0)
    after = FIRST if HEAD_REVISION == FIRST else _run_steps(url, schema, report, public_apis_only)
    report(f"{schema}: {before or 'empty'} -> {after}")
    return after


def plan(
    url: str, schema: str, *, partitions: int | None = None, public_apis_only: bool = False
) -> list[PlannedStep]:
    """The steps that ``migrate`` would take, none of which is taken; of an empty schema one makes everything.

    Raises:
        ConfigurationError: the number of partitions is out of bounds.
        DatabaseUnavailableError: Postgres cannot be reached.
        SchemaError: as ``migrate``, of existing tables.
    """
    with _transaction(url, public_apis_only) as connection:
        tables = _Tables(connection, schema)
        before, functions = tables.current(partitions)
        if before is not None and is_newer(before):
            return []
        planned = tables.plan_steps(before or FIRST)
        if before is None:
            divided = f", the big tables in {partitions:,} partitions each" if partitions else ""
            return [PlannedStep(FIRST, f"make all tables, indexes and functions{divided}"), *planned]
        if names := tables.functions_to_renew(functions, before):
            planned.append(PlannedStep(HEAD_REVISION, f"make functions again: {', '.join(names)}"))
        if planned and (owner := tables.find_owner()) and not owner.is_mine:
            raise SchemaError(f"{_NOT_THE_OWNER} (must be owner of table alembic_version)")
        return planned


def current_revision(url: str, schema: str, *, public_apis_only: bool = False) -> str | None:
    """The revision that the tables are at; None: no tables exist.

    Raises:
        DatabaseUnavailableError: Postgres cannot be reached.
        SchemaError: the schema is another application's, or its tables are not those of a release.
    """
    with _transaction(url, public_apis_only) as connection:
        return _Tables(connection, schema).current()[0]


def divided_tables(url: str, schema: str, *, public_apis_only: bool = False) -> dict[str, int]:
    """The tables that are divided, and into how many partitions; nothing if all are whole, or not there."""
    with _transaction(url, public_apis_only) as connection:
        return _Tables(connection, schema).count_partitions()


def _run_steps(url: str, schema: str, report: Report, public_apis_only: bool) -> str:
    """Take the later steps on a connection of their own, while another holds the turn; the revision then."""
    with (
        _connection(url, public_apis_only) as turn,
        _Tables(turn, schema, report).turn(),
        _connection(url, public_apis_only) as connection,
    ):
        tables = _Tables(connection, schema, report)
        revision = tables.current()[0] or FIRST
        if is_newer(revision):  # that release came first
            return revision
        steps = tables.steps(revision)
        for number, step in enumerate(steps, 1):
            report(f"{schema}: {step.revision}, step {number} of {len(steps)}: {step.text}")
            tables.take(step)
            if number == len(steps) or steps[number].revision != step.revision:
                tables.ask("set_revision", revision=step.revision)
        with connection.transaction():
            _settle(connection)
            if done := tables.renew_functions(tables.ask("stored_functions")):
                report(f"{schema}: {done}")
        return str(tables.current()[0])  # refuses what lacks columns


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of one schema, on one connection; ``report`` takes a line that describes each step."""

    connection: OwnConnection
    schema: str
    report: Report = _tell_nothing

    def ask(self, name: str, **values: object) -> list[Any]:
        cursor = self.connection.cursor(row_factory=namedtuple_row)
        cursor.execute(statements(self.schema)[name].encode(), {"schema": self.schema, **values})
        return cursor.fetchall() if cursor.description else []

    def current(self, partitions: int | None = None) -> tuple[str | None, list[Any]]:
        """The revision and functions; with ``partitions`` the tables have to be divided so."""
        if partitions is not None:
            check_partitions(partitions)
        columns = [row.column_name for row in self.ask("stored_columns")]
        is_numbered = "alembic_version.version_num" in columns
        numbers = [row.version_num for row in self.ask("schema_revision")] if is_numbered else []
        functions = self.ask("stored_functions")
        _refuse(tables_trouble(self.schema, numbers, columns, [row.function_name for row in functions]))
        if numbers and partitions is not None:
            require_partitions(self.count_partitions(), partitions, self.schema)
        return str(numbers[0]) if numbers else None, functions

    def renew_functions(self, stored: list[Any]) -> str:
        """Make functions again that are missing or differ, as in a renamed schema, and name them."""
        names = self.functions_to_renew(stored, HEAD_REVISION)
        there = {row.function_name for row in stored}
        for name in sorted(names, key=lambda name: name not in there):
            if name not in there:  # others stay whose they are
                self.become_owner()
            self.connection.execute(or_replace(function_source(name, self.schema)).encode())
        return f"functions made again: {', '.join(names)}" if names else ""

    def functions_to_renew(self, stored: list[Any], revision: str) -> list[str]:
        """Functions of ``revision`` that this release does not drop, and that are missing or differ."""
        kept = set(functions_at(HEAD_REVISION))
        return differing_functions(filter(kept.__contains__, functions_at(revision)), stored, self.schema)

    def count_partitions(self) -> dict[str, int]:
        return {row.table_name: row.partitions for row in self.ask("divided_tables")}

    def prepare(self, partitions: int | None) -> tuple[str | None, list[Any]]:
        """The revision and functions before; refuses a server, or tables, that this release cannot change."""
        before, functions = self.current(partitions)
        (server,) = self.ask("describe_server")
        _refuse(server_trouble(server.server, server.encoding))
        if before is not None and before >= HEAD_REVISION:
            return before, functions
        _check_writable(self.connection, is_standby=server.is_standby)
        # Not IF NOT EXISTS, which asks for the right to make one.
        if before is None and _value(self.connection, "SELECT to_regnamespace(%s) IS NULL", self.schema):
            self.connection.execute(f"CREATE SCHEMA {self.schema}".encode())
        _refuse(pgvector_trouble(server.vector_installed, server.vector_available))
        return before, functions

    def make_first(self, partitions: int) -> None:
        where = _value(self.connection, "SELECT quote_ident(coalesce(current_schema(), 'public'))")
        self.connection.execute(f"CREATE EXTENSION IF NOT EXISTS vector SCHEMA {where}".encode())
        _settle(self.connection)  # now that pgvector has a schema
        self.become_owner()
        for statement in first_statements(partitions):
            self.connection.execute(in_schema(statement, self.schema).encode())

    def plan_steps(self, revision: str) -> list[PlannedStep]:
        rows, stored = Counter[str](), Counter[str]()
        for row in self.ask("table_sizes"):
            for name in {row.table_name, row.part_name}:
                rows[name] += row.row_count
                stored[name] += row.bytes
        planned = []
        for step in self.steps(revision):
            form, names = step.form
            table = names.get("table") or ""
            seconds = round(stored[table] / INDEXED_PER_SECOND, 1) if form.concurrent else 0
            planned.append(
                PlannedStep(step.revision, step.text, table, form.lock, rows[table], stored[table], seconds)
            )
        return planned

    def steps(self, revision: str) -> list[Step]:
        parts: dict[str, list[str]] = {}
        for row in self.ask("table_sizes"):
            if row.part_name != row.table_name:
                parts.setdefault(row.table_name, []).append(row.part_name)
        return [
            one
            for step in steps_after(revision)
            for one in step.spread(parts.get(step.form[1].get("table") or "", ()))
        ]

    def take(self, step: Step) -> None:
        form, names = step.form
        statement = in_schema(step.sql, self.schema).encode()
        if form.concurrent:
            with suppress(psycopg.errors.InvalidParameterValue):  # not every system can
                self.connection.execute(
                    f"SET client_connection_check_interval = {CLIENT_CHECK_MILLISECONDS}".encode()
                )
            with within(math.inf, self.connection):
                _drop_invalid(self.connection, f"{self.schema}.{names['index']}")
                self.connection.execute(statement)
            return
        table = names.get("table") or ""
        parts = self.count_partitions().get(table, 0)
        limit = f"SET LOCAL statement_timeout = {LOCK_MILLISECONDS + PARTITION_MILLISECONDS * parts}"
        for _attempt in range(LOCK_TRIES):
            try:
                with self.connection.transaction():
                    _settle(self.connection)
                    self.become_owner()
                    self.connection.execute(limit.encode())
                    self.connection.execute(statement)
            except (psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected):
                self.report(
                    f"{self.schema}: {table or 'its catalog'} is in use; the step gives way, and is tried"
                    " again"
                )
                time.sleep(LOCK_PAUSE_SECONDS)
            else:
                return
        raise SchemaError(
            f"{f'The table {table}' if table else 'The catalog'} was never free for a step of the migration"
            f" ({step.text}): a transaction holds it. End that transaction, and run `strandline migrate`"
            " again."
        )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A transaction in which no other migration runs.

        Each try is a transaction of its own: the build of an index waits for those with a snapshot, and a
        statement that waited here for the lock would have one.
        """
        for attempt in itertools.count():
            with self.connection.transaction():
                _settle(self.connection)
                if _value(self.connection, _TAKE_TURN):
                    yield
                    return
            if attempt == 0:
                self.report(
                    f"{self.schema}: another migration of this database runs, and this one waits for it"
                )
            time.sleep(TURN_PAUSE_SECONDS)

    def find_owner(self) -> Any:
        return self.connection.cursor(row_factory=namedtuple_row).execute(_OWNER, (self.schema,)).fetchone()

    def become_owner(self) -> None:
        """Make what a superuser makes next the owner's: roles have rights on that."""
        owner = self.find_owner()
        if owner is not None and owner.other:
            self.connection.execute(f"SET LOCAL ROLE {owner.other}".encode())


def _drop_invalid(connection: OwnConnection, index: str) -> None:
    """Drop the index that an interrupted build left behind: no query uses it."""
    left = "SELECT FROM pg_index WHERE indexrelid = to_regclass(%s) AND NOT indisvalid"
    if connection.execute(left.encode(), (index,)).fetchone() is not None:
        connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}".encode())


@contextmanager
def _transaction(url: str, public_apis_only: bool) -> Iterator[OwnConnection]:
    with _connection(url, public_apis_only) as connection, connection.transaction():
        _settle(connection)
        yield connection


@contextmanager
def _connection(url: str, public_apis_only: bool) -> Iterator[OwnConnection]:
    kind = OwnConnection if public_apis_only else BoundedConnection
    beginnings = Beginnings(options_of(psycopg_url(url)).get("options", ""))
    connection = _connect(psycopg_url(url), kind, beginnings)
    try:
        yield connection
    except psycopg.OperationalError as error:
        raise DatabaseUnavailableError(
            f"Postgres could not continue; run `strandline migrate` again when it can. ({_first_line(error)})"
        ) from error
    except psycopg.Error as error:
        raise SchemaError(_refusal(error)) from error
    finally:
        connection.close()


def _connect(url: str, kind: type[OwnConnection], beginnings: Beginnings) -> OwnConnection:
    waiting = with_defaults(options_of(url), connect_timeout=CONNECT_SECONDS)
    options: dict[str, Any] = {"client_encoding": "utf8", "prepare_threshold": None, "autocommit": True}

    def connect(unlimited: Sequence[str]) -> OwnConnection:
        limits = {"options": all_options(url, ((name, 0) for name in unlimited))}
        return beginnings.connect(lambda taken: kind.connect(url, **taken), options | waiting | limits)

    try:
        connection = connect(_UNLIMITED)
        if connection.info.server_version >= LIMITS_TRANSACTIONS:  # which a connection has to tell first
            connection.close()
            connection = connect((*_UNLIMITED, "transaction_timeout"))
    except psycopg.Error as error:
        raise DatabaseUnavailableError(connect_problem(error, url)) from None
    connection.statement_seconds = MAINTENANCE_SECONDS
    # A role behind a pooler may have another by default: its snapshot would be from before the lock.
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    return connection


def _settle(connection: OwnConnection) -> None:
    row = connection.execute(look_for(_NEEDED)).fetchone()
    if row is not None and (wrong := set_all(find_wrong(row), "SET LOCAL")):
        connection.execute(wrong.encode())


# Whose the tables are, or are to be: the role that a superuser has to become; whether this one acts as it.
# Nobody can be a member of pg_database_owner, which has the schema public.
_OWNER = b"""
SELECT CASE WHEN me.rolsuper AND o.rolname NOT IN (current_user, 'pg_database_owner')
        AND has_schema_privilege(o.oid, n.oid, 'CREATE') THEN quote_ident(o.rolname) END AS other,
    pg_has_role(o.oid, 'USAGE') AS is_mine
FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'alembic_version'
JOIN pg_roles o ON o.oid = coalesce(c.relowner, n.nspowner) JOIN pg_roles me ON me.rolname = current_user
WHERE n.nspname = %s"""


def _check_writable(connection: OwnConnection, *, is_standby: bool) -> None:
    if is_standby:
        raise SchemaError(
            "The server is a standby, which only reads; run `strandline migrate` on its primary."
        )
    if _value(connection, "SHOW transaction_read_only") == "on":
        raise SchemaError(
            "Transactions are read-only by default here. Run `strandline migrate` past the pooler, or `ALTER"
            " ROLE … SET default_transaction_read_only = off` for this role."
        )


def _refuse(trouble: Trouble | None) -> None:
    if trouble is not None:
        finding, advice = trouble
        raise SchemaError(f"{finding[0].upper()}{finding[1:]}; {advice}.")


def _value(connection: OwnConnection, question: str, *values: object) -> Any:
    row = connection.execute(question.encode(), values or None).fetchone()
    return row[0] if row else None


_NOT_THE_OWNER = (
    "This role may not change the tables; `strandline migrate` has to be run by their owner, or, if there are"
    " none, by a role that may create a schema and the pgvector extension."
)


def _refusal(error: psycopg.Error) -> str:
    if not isinstance(error, psycopg.errors.InsufficientPrivilege):
        return f"A migration step was refused: {_first_line(error)}"
    return f"{_NOT_THE_OWNER} ({_first_line(error)})"


def _first_line(error: psycopg.Error) -> str:
    first = next(iter(str(error).splitlines()), type(error).__name__)
    # Which setting to raise, if Postgres has no room for the locks of many partitions.
    hint = isinstance(error, psycopg.errors.OutOfMemory) and error.diag.message_hint
    return f"{first}: {hint}" if hint else first
