"""Named statements on our own connections, by a shorter path than psycopg's cursors.

A cursor runs any statement with parameters of any type, and examines both each time. After the wait for a
commit, when the processor's caches are cold, this takes a tenth of the time of accepting a message; and a
worker runs ten statements for each call of a model.  The statements here are fixed and their parameters of
few types: a connection prepares a statement at its second use, and sends parameters as text. Rarer statements
go through a cursor, which must not prepare them: together with its own prepared statements, psycopg at times
deallocates all that a connection has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
from psycopg import pq
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute

from strandline.schemas.postgres.deadlines import AsyncBoundedConnection, BoundedConnection
from strandline.schemas.postgres.own_connection import MakeRow
from strandline.schemas.values.identity import key_text

Values = list[bytes | None]

_SUCCEEDED = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


# How a parameter, or an item of an array, is written: as text, which Postgres reads as whatever type the
# statement has in that place.
_WRITTEN: Mapping[type, Callable[[Any], str]] = {
    str: str,
    UUID: key_text,
    int: str,
    float: repr,
    Decimal: str,
    bool: lambda truth: "t" if truth else "f",
    datetime: datetime.isoformat,
    date: date.isoformat,
    bytes: lambda octets: f"\\x{octets.hex()}",
}
# In an array they need no quotes.
_NEVER_QUOTED = (UUID, int, float, bool)


def plain_values(values: Iterable[object]) -> Values | None:
    """The parameters in order, as text; None where one of them is left to psycopg."""
    try:
        return list(map(_encode, values))
    except (KeyError, UnicodeError):
        return None


def _encode(value: Any) -> bytes | None:
    if value is None:
        return None
    text = _array(value) if type(value) is list else _WRITTEN[type(value)](value)
    if "\0" in text:
        raise UnicodeError  # libpq would end the text there; psycopg refuses it
    return text.encode()


def _array(items: list[Any]) -> str:
    kinds = set(map(type, items))
    if len(kinds) == 1 and (kind := kinds.pop()) in _NEVER_QUOTED:
        return f"{{{','.join(map(_WRITTEN[kind], items))}}}"  # as with most
    return f"{{{','.join(map(_item, items))}}}"


def _item(item: Any) -> str:
    if item is None:
        return "NULL"
    written = _WRITTEN[type(item)](item)
    if type(item) in _NEVER_QUOTED:
        return written
    return '"' + written.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Prepared:
    """The names under which a connection has prepared statements; None for a statement run only once."""

    def __init__(self) -> None:
        self.names: dict[bytes, bytes | None] = {}
        self._numbers = count(1)

    def new_name(self) -> bytes:
        """Never a name tried before: an interrupt may have come between Postgres's yes and our note."""
        return b"strandline_%d" % next(self._numbers)


class DirectConnection(BoundedConnection):
    """A connection, lent to one thread at a time, that runs named statements the short way."""

    def __init__(self, pgconn: pq.abc.PGconn, *arguments: Any) -> None:
        super().__init__(pgconn, *arguments)
        self._statements = _Prepared()

    def run(self, statement: bytes, values: Sequence[object], make_row: MakeRow) -> list[Any]:
        """Run a statement, the short way if its parameters allow that."""
        plain = None if self.pooled else plain_values(values)
        if plain is None:
            return super().run(statement, values, make_row)
        return self.run_plain(statement, plain, make_row)

    def run_plain(self, statement: bytes, values: Values, make_row: MakeRow = tuple) -> list[Any]:
        """Run a statement with what ``plain_values`` made of its parameters; raises psycopg.Error."""
        result = self.wait(_exchange(self.pgconn, self._statements, statement, values))
        return _rows(self, result, make_row)


class AsyncDirectConnection(AsyncBoundedConnection):
    """The same for an event loop."""

    def __init__(self, pgconn: pq.abc.PGconn, *arguments: Any) -> None:
        super().__init__(pgconn, *arguments)
        self._statements = _Prepared()

    async def run(self, statement: bytes, values: Sequence[object], make_row: MakeRow) -> list[Any]:
        """Async twin of ``DirectConnection.run``."""
        plain = None if self.pooled else plain_values(values)
        if plain is None:
            return await super().run(statement, values, make_row)
        return await self.run_plain(statement, plain, make_row)

    async def run_plain(self, statement: bytes, values: Values, make_row: MakeRow = tuple) -> list[Any]:
        """Async twin of ``DirectConnection.run_plain``."""
        result = await self.wait(_exchange(self.pgconn, self._statements, statement, values))
        return _rows(self, result, make_row)


def _exchange(
    pgconn: pq.abc.PGconn, prepared: _Prepared, statement: bytes, values: Values
) -> PQGen[pq.abc.PGresult]:
    results: list[pq.abc.PGresult]
    if statement not in prepared.names:
        pgconn.send_query_params(statement, values)
        prepared.names[statement] = None
        results = yield from execute(pgconn)
        return results[-1]
    name = prepared.names[statement]
    if name is None:
        name = prepared.new_name()
        pgconn.send_prepare(name, statement)
        results = yield from execute(pgconn)
        if results[-1].status not in _SUCCEEDED:
            return results[-1]
        prepared.names[statement] = name
    pgconn.send_query_prepared(name, values)
    results = yield from execute(pgconn)
    return results[-1]


def _rows(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    result: pq.abc.PGresult,
    make_row: MakeRow,
) -> list[Any]:
    if result.status not in _SUCCEEDED:
        raise error_from_result(result, connection.info.encoding)
    if not result.nfields:
        return []
    transformer = Transformer(connection)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, make_row)
