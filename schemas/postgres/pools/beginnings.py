"""Sets, once per connection, the settings that a statement's meaning or an acknowledgement depends on.

A server, a database, a role, ``PGOPTIONS`` and other clients of a pooler can change them.  Most are asked for
as the session starts; one statement then checks the result and the settings that only some roles may set.
Behind a pooler in transaction mode no setting stays, and another client's may: each transaction sets all
that a session asks for, and undoes what only other clients set.  An undeclared pooler is noticed here: it
drops or refuses options, or answers from another backend.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.own_connection import (
    AsyncOwnConnection,
    OwnConnection,
    run_by_cursor,
    run_by_cursor_async,
)

logger = logging.getLogger("strandline.database")

T = TypeVar("T")

# By name: the value, and the values that are as good.
PINNED: Mapping[str, tuple[str, str]] = {
    "array_nulls": ("on", "on"),
    "bytea_output": ("hex", "hex"),
    "datestyle": ("ISO", "ISO.*"),
    "exit_on_error": ("off", "off"),
    "extra_float_digits": ("1", "[123]"),
    "gin_fuzzy_search_limit": ("0", "0"),
    "intervalstyle": ("postgres", "postgres"),
    "standard_conforming_strings": ("on", "on"),
    "timezone": ("UTC", "(Etc/)?(UTC|UCT|GMT|Zulu|Universal)"),
    "transform_null_equals": ("off", "off"),
}
# Set where they are wrong, and not asked for: only some roles may, and an operator may want more durability.
_TRIGGERS = {"session_replication_role": ("origin", "origin|local")}
NOT_ASKED_FOR: Mapping[str, tuple[str, str]] = {
    **_TRIGGERS,
    "synchronous_commit": ("local", "local|on|remote_write|remote_apply"),
}
# Behind a pooler a transaction begins with these; None is the role's own, whatever another client left.
_OF_A_TRANSACTION: Mapping[str, str | None] = {
    "transaction_isolation": "read committed",
    **dict.fromkeys(("session_authorization", "role", "lock_timeout", "search_path", "synchronous_commit")),
    **dict.fromkeys(("plan_cache_mode", "row_security")),
}
# From version 17 on there is a transaction_timeout.
LIMITS_TRANSACTIONS = 170_000
# By their present values psycopg reads rows; no statement returns an interval.
_READ_BY = frozenset({"datestyle", "timezone"})
# Of a caller's connection: psycopg and the statements get along with any value.
_CALLERS_OWN = frozenset({"bytea_output", "exit_on_error", "extra_float_digits", "intervalstyle", "timezone"})

# Asked for as a session starts: without it, nothing that was asked for had any effect.
MARK = "strandline.own"

# Whatever another client of a pooler made the default.
_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"

_SET = re.compile(r"SET \w+ (\w+)")
_REFUSES_OPTIONS = re.compile("unsupported startup parameter|command-line options")


class Beginnings:
    """How the connections of one pool begin, and whether a pooler in transaction mode is before the server.

    A pooler gets ``own_options``, those of the URL; ``session``: the settings that a session asks for.
    """

    def __init__(
        self,
        own_options: str = "",
        session: Mapping[str, str] | None = None,
        *,
        is_declared: bool = False,
        durable: bool = True,
    ) -> None:
        self._own_options = own_options
        self._session = session or {}
        self.pooled = self.is_declared = is_declared
        looked_for = look_for({**PINNED, **(NOT_ASKED_FOR if durable else _TRIGGERS)})
        self.question = looked_for + _STAY_DURABLE if durable else looked_for

    def connect(self, connect: Callable[[dict[str, Any]], T], options: Mapping[str, Any]) -> T:
        """Connect with the options that the server, or a pooler before it, accepts."""
        while True:
            taken = self.arguments(options)
            try:
                return connect(taken)
            except psycopg.OperationalError as error:
                self._note_refusal(taken, error)

    async def connect_async(
        self, connect: Callable[[dict[str, Any]], Awaitable[T]], options: Mapping[str, Any]
    ) -> T:
        while True:
            taken = self.arguments(options)
            try:
                return await connect(taken)
            except psycopg.OperationalError as error:
                self._note_refusal(taken, error)

    def arguments(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options to connect with: a pooler takes no settings of a session, nor ``PGOPTIONS``."""
        return {**options, "options": self._own_options} if self.pooled else dict(options)

    def _note_refusal(self, taken: Mapping[str, Any], error: psycopg.Error) -> None:
        """Return if connecting without our settings may succeed; else raise."""
        if not _REFUSES_OPTIONS.search(str(error)):
            raise error
        if taken["options"] != self._own_options:
            self._notice("it refuses the settings of a session")
        elif self._own_options:
            raise ConfigurationError(
                "The pooler before Postgres refuses the options= of the database URL. Leave them out, and"
                " give the role its settings by `ALTER ROLE … SET`."
            )
        else:
            raise error

    def steps(
        self, connection: OwnConnection | AsyncOwnConnection
    ) -> Generator[bytes, list[tuple[Any, ...]], None]:
        """The statements to run on a new connection; each is sent the rows of the one before.

        They correct its settings; behind a pooler they only try to, since each transaction does.  Raises
        ConfigurationError if its transactions begin otherwise than they have to.
        """
        if not self.pooled:
            (row,) = yield self.question
            if row[:2] == (connection.info.backend_pid, "on"):
                _judge(row)
                if correcting := set_all(find_wrong(row), "SET SESSION"):
                    yield correcting.encode()
                return
            self._notice("it drops the settings of a session, or answers from another backend")
        # In a transaction, which a pooler in statement mode refuses.
        ours = {**_OF_A_TRANSACTION}
        if connection.info.server_version >= LIMITS_TRANSACTIONS:
            ours["transaction_timeout"] = None
        yield f"BEGIN; {set_all(ours, 'SET LOCAL')}".encode()
        (row,) = yield self.question
        wrong = find_wrong(row)
        yield f"{set_all(wrong, 'SET LOCAL')}; COMMIT".encode()
        values = {**ours, **json.loads(row[5]), **values_of(PINNED), **self._session, **wrong}
        if connection.info.parameter_status("is_superuser") == "on":
            values |= values_of(_TRIGGERS)  # which other clients may set as well
        begin = _BEGIN + b", READ WRITE" if "transaction_read_only" in values else _BEGIN
        lone = () if wrong.keys() & _READ_BY else (begin, _set_locally(values).encode())
        connection.stay_unprepared(set_all(values, "SET LOCAL").encode(), lone)

    def _notice(self, sign: str) -> None:
        if self.pooled:
            return
        self.pooled = True
        logger.warning(
            "pooler noticed",
            extra={
                "action": "pooler_noticed",
                "reason": f"a pooler is before Postgres: {sign}; it is used as in transaction mode, without"
                " prepared statements; set STRANDLINE_DATABASE_POOLER=transaction",
            },
        )


def begin(connection: OwnConnection, beginnings: Beginnings) -> None:
    """Begin a new connection; raises as ``Beginnings.steps``, or where the role may not correct a setting."""
    steps = beginnings.steps(connection)
    with suppress(StopIteration):
        statement = next(steps)
        while True:
            with _as_refusal(statement):
                rows = run_by_cursor(connection, statement, (), tuple)
            statement = steps.send(rows)


async def begin_async(connection: AsyncOwnConnection, beginnings: Beginnings) -> None:
    steps = beginnings.steps(connection)
    with suppress(StopIteration):
        statement = next(steps)
        while True:
            with _as_refusal(statement):
                rows = await run_by_cursor_async(connection, statement, (), tuple)
            statement = steps.send(rows)


@contextmanager
def _as_refusal(correcting: bytes) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        names = ", ".join(_SET.findall(correcting.decode()))
        raise ConfigurationError(
            f"Connections begin with values of {names} that Strandline cannot work with, and their role may"
            " not set them. Run `ALTER DATABASE … RESET` for each, and `ALTER ROLE … RESET` for the role."
        ) from error
    except psycopg.Error as error:
        if "statement pooling mode" not in str(error):
            raise
        raise ConfigurationError(
            "The pooler before Postgres is in statement mode, which has no transactions, and Strandline needs"
            " them. Set its pool_mode to transaction."
        ) from error


class SeenConnections:
    """The connections of a caller's pool whose sessions are as they have to be."""

    def __init__(self) -> None:
        self._known: WeakSet[psycopg.Connection[Any] | psycopg.AsyncConnection[Any]] = WeakSet()

    def look(self, connection: psycopg.Connection[Any]) -> None:
        """Look at a new connection; raises ConfigurationError, which says what to set."""
        if connection not in self._known:
            _judge_callers(*run_by_cursor(connection, _CALLERS_QUESTION, (), tuple))
            connection.rollback()
            self._known.add(connection)

    async def alook(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Async twin of ``look``."""
        if connection not in self._known:
            _judge_callers(*await run_by_cursor_async(connection, _CALLERS_QUESTION, (), tuple))
            await connection.rollback()
            self._known.add(connection)


def _judge_callers(row: tuple[Any, ...]) -> None:
    _judge(row)
    if wrong := find_wrong(row):
        name, value = next(iter(wrong.items()))
        raise ConfigurationError(
            f"This connection has a value of {name} that Strandline cannot work with. Run `ALTER ROLE … SET"
            f" {name} = {value}` for the role that it connects as."
        )


def _judge(row: tuple[Any, ...]) -> None:
    isolation, read_only = row[2:4]
    if isolation != "read committed":
        raise ConfigurationError(
            f"Transactions on this connection begin as {isolation!r}, and Strandline needs 'read committed'."
            " Run `ALTER ROLE … SET default_transaction_isolation = 'read committed'` for the role that it"
            " connects as, and do not set isolation_level on a pool that you pass."
        )
    if read_only == "on":
        raise ConfigurationError(
            "Transactions on this connection are read-only by default, and Strandline writes. Run"
            " `ALTER ROLE … SET default_transaction_read_only = off` for the role that it connects as."
        )


def look_for(settings: Mapping[str, tuple[str, str]]) -> bytes:
    """The question of which settings have another value than they need, as JSON in the fifth column.

    Before it come the backend, the mark, and how transactions begin; behind it the settings, as JSON, that
    have no value of ours, and that transactions write, which a standby refuses to set.
    """
    values = ", ".join(f"('{name}', '{value}', '^({fits})$')" for name, (value, fits) in settings.items())
    return _LOOK.replace("{values}", values).encode()


# Qualified throughout, since any search_path may apply.  pgvector's types and operators are found wherever it
# is installed; built-ins come before anything of the same name.
_LOOK = """
SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('strandline.own', true),
    pg_catalog.current_setting('transaction_isolation'),
    pg_catalog.current_setting('default_transaction_read_only'),
    (SELECT pg_catalog.json_object_agg(w.name, w.value)::pg_catalog.text FROM (
        SELECT s.name, s.value FROM (VALUES {values}) AS s (name, value, fits)
        WHERE pg_catalog.current_setting(s.name, true) OPERATOR(pg_catalog.!~) s.fits
        UNION ALL
        SELECT 'search_path', pg_catalog.concat_ws(', ', 'pg_catalog',
            nullif(pg_catalog.regexp_replace(
                pg_catalog.current_setting('search_path'), '""(, *|$)|, *""$', '', 'g'), ''),
            pg_catalog.quote_ident(n.nspname))
        FROM pg_catalog.pg_extension e
            JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
            JOIN pg_catalog.pg_type t ON t.typnamespace OPERATOR(pg_catalog.=) n.oid
        WHERE e.extname OPERATOR(pg_catalog.=) 'vector' AND t.typname OPERATOR(pg_catalog.=) 'halfvec'
            AND (NOT pg_catalog.pg_type_is_visible(t.oid)
                OR pg_catalog.current_setting('search_path') OPERATOR(pg_catalog.~) '.pg_catalog')
    ) AS w),
    pg_catalog.json_strip_nulls(pg_catalog.json_build_object(
        'search_path', pg_catalog.current_setting('search_path'),
        'synchronous_commit', pg_catalog.current_setting('synchronous_commit'),
        'transaction_read_only', CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN 'off' END
    ))::pg_catalog.text
"""


# A session keeps what it set itself when the server's or the database's value is changed beside it.  Not
# behind a pooler, where the session is everybody's: there the mark is missing.
_STAY_DURABLE = b"""
, (SELECT pg_catalog.set_config('synchronous_commit', coalesce(nullif(c.value, 'off'), 'local'), false)
    FROM (SELECT pg_catalog.current_setting('synchronous_commit') AS value) AS c
    WHERE pg_catalog.current_setting('strandline.own', true) OPERATOR(pg_catalog.=) 'on')
"""


def find_wrong(row: Sequence[Any]) -> dict[str, str]:
    """The settings that are wrong, by the answer to ``look_for``, with the values that they need."""
    return json.loads(row[4] or "{}")  # type: ignore[no-any-return]


def values_of(settings: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """The values to set, by name."""
    return {name: value for name, (value, _fits) in settings.items()}


def set_all(values: Mapping[str, str | None], verb: str) -> str:
    """The statements that set ``values``: ``SET LOCAL`` lets the isolation still be chosen."""
    return "; ".join(f"{verb} {name} = {_text(name, value)}" for name, value in values.items())


def _text(name: str, value: str | None) -> str:
    # A path is a list of names; no other value has anything to escape.
    return "DEFAULT" if value is None else value if name == "search_path" else f"'{value}'"


def _set_locally(values: Mapping[str, str | None]) -> str:
    """The same as ``SET LOCAL``, as one statement."""
    texts = (
        (name, "'" + value.replace("'", "''") + "'" if value else "NULL") for name, value in values.items()
    )
    return "SELECT " + ", ".join(f"pg_catalog.set_config('{name}', {text}, true)" for name, text in texts)


_CALLERS_QUESTION = look_for({name: PINNED[name] for name in PINNED.keys() - _CALLERS_OWN} | _TRIGGERS)
