"""Named statements on connections of our own, by a shorter way than psycopg's cursors.

A cursor runs any statement with parameters of any type, and looks at both anew each time.  After the wait
for a commit, when nothing of that is in the processor's caches any more, this takes a tenth of what accepting
a message takes; and a worker runs eleven statements for each call of a model.  The statements here are fixed
and their parameters of few types: each connection prepares a statement once, and sends parameters as text.
What is rarer goes the cursor's way, which must not prepare it: with what it has prepared itself, psycopg at
times takes back all that a connection has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
from psycopg import pq
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute

from strandline.schemas.identity import key_text
from strandline.schemas.operations import Row
from strandline.schemas.statements import Statement

Values = list[bytes | None]
_Names = dict[bytes, bytes]

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


def plain_values(statement: Statement, params: Mapping[str, Any]) -> Values | None:
    """The parameters in order, as text; None where one of them is left to psycopg."""
    try:
        return [None if value is None else _encoded(value) for value in statement.values(params)]
    except (KeyError, UnicodeError):
        return None


def _encoded(value: Any) -> bytes:
    text = _array(value) if type(value) is list else _WRITTEN[type(value)](value)
    if "\0" in text:
        raise UnicodeError  # libpq would end the text there; psycopg refuses it
    return text.encode()


def _array(items: list[Any]) -> str:
    return f"{{{','.join(map(_item, items))}}}"


def _item(item: Any) -> str:
    if item is None:
        return "NULL"
    written = _WRITTEN[type(item)](item)
    if type(item) in _NEVER_QUOTED:
        return written
    return '"' + written.replace("\\", "\\\\").replace('"', '\\"') + '"'


class DirectConnection(psycopg.Connection[Any]):
    """A connection, lent to one thread at a time, that runs named statements the short way."""

    def __init__(self, pgconn: pq.abc.PGconn, *arguments: Any) -> None:
        super().__init__(pgconn, *arguments)
        self._names: _Names = {}

    def run_plain(self, statement: Statement, values: Values) -> list[Row]:
        """Run a statement with what ``plain_values`` made of its parameters.

        Raises:
            psycopg.Error: as from a cursor.
        """
        return _rows(self, self.wait(_exchange(self.pgconn, self._names, statement, values)))


class AsyncDirectConnection(psycopg.AsyncConnection[Any]):
    """The same for an event loop."""

    def __init__(self, pgconn: pq.abc.PGconn, *arguments: Any) -> None:
        super().__init__(pgconn, *arguments)
        self._names: _Names = {}

    async def run_plain(self, statement: Statement, values: Values) -> list[Row]:
        """Async twin of ``DirectConnection.run_plain``."""
        return _rows(self, await self.wait(_exchange(self.pgconn, self._names, statement, values)))


def _exchange(
    pgconn: pq.abc.PGconn, names: _Names, statement: Statement, values: Values
) -> PQGen[pq.abc.PGresult]:
    """Run a statement, prepared first where it is new to this connection; its result, or the error's."""
    name = names.get(statement.sql)
    if name is None:
        name = b"strandline_%d" % len(names)
        pgconn.send_prepare(name, statement.sql)
        prepared = yield from _result(pgconn)
        if prepared.status not in _SUCCEEDED:
            return prepared
        names[statement.sql] = name
    pgconn.send_query_prepared(name, values)
    return (yield from _result(pgconn))


def _result(pgconn: pq.abc.PGconn) -> PQGen[pq.abc.PGresult]:
    results: list[pq.abc.PGresult] = yield from execute(pgconn)
    return results[-1]


def _rows(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], result: pq.abc.PGresult
) -> list[Row]:
    if result.status not in _SUCCEEDED:
        raise error_from_result(result, connection.info.encoding)
    if not result.nfields:
        return []
    transformer = Transformer(connection)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)
