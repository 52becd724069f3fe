"""Connections of Strandline's own pools, and how a statement runs on any connection: by psycopg's cursors.

``deadlines`` derives from these connections that wait for a bounded time, ``prepared`` faster ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import psycopg

# Makes a row of its columns.
MakeRow = Callable[[Sequence[Any]], Any]


class OwnConnection(psycopg.Connection[Any]):
    """A connection of our own pools.

    Attributes:
        statement_seconds: how long a statement may take, by default without limit; may be changed between
            statements.  ``BoundedConnection`` keeps to it.
        opened_at: by the clock ``time.monotonic``.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.statement_seconds = math.inf
        self.opened_at = monotonic()

    def run(self, statement: bytes, values: Sequence[object], make_row: MakeRow) -> list[Any]:
        """Run a statement and return its rows."""
        return run_by_cursor(self, statement, values, make_row)


class AsyncOwnConnection(psycopg.AsyncConnection[Any]):
    """The same for an event loop."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.statement_seconds = math.inf
        self.opened_at = monotonic()

    async def run(self, statement: bytes, values: Sequence[object], make_row: MakeRow) -> list[Any]:
        """Async twin of ``OwnConnection.run``."""
        return await run_by_cursor_async(self, statement, values, make_row)


def run_by_cursor(
    connection: psycopg.Connection[Any], statement: bytes, values: Sequence[object], make_row: MakeRow
) -> list[Any]:
    """Run a statement on a connection whatever its row factory, and return its rows."""
    cursor = psycopg.RawCursor(connection, row_factory=lambda _cursor: make_row)
    cursor.execute(statement, values)
    # The description would say whether there are rows as well, and is costly to make.
    return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []


async def run_by_cursor_async(
    connection: psycopg.AsyncConnection[Any], statement: bytes, values: Sequence[object], make_row: MakeRow
) -> list[Any]:
    """Async twin of ``run_by_cursor``."""
    cursor = psycopg.AsyncRawCursor(connection, row_factory=lambda _cursor: make_row)
    await cursor.execute(statement, values)
    return await cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []
