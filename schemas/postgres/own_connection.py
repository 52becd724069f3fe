"""Connections of Strandline's own pools, and how a statement runs on any connection: by psycopg's cursors.

``deadlines`` derives from these connections that wait for a bounded time, ``prepared`` faster ones.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from time import monotonic
from typing import Any

import psycopg
from psycopg import pq

# Makes a row of its columns.
MakeRow = Callable[[Sequence[Any]], Any]


class _Own:
    """A connection of our own pools.

    Attributes:
        statement_seconds: how long a statement may take, by default without limit; may be changed between
            statements.  ``BoundedConnection`` keeps to it.
        opened_at: by the clock ``time.monotonic``.
        pooled: behind a pooler in transaction mode, where nothing of a session stays.
    """

    prepare_threshold: int | None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.statement_seconds = math.inf
        self.opened_at = monotonic()
        self.pooled = False
        self._setting = b""
        self._lone: tuple[bytes, ...] = ()

    def stay_unprepared(self, setting: bytes, lone: tuple[bytes, ...]) -> None:
        """Prepare no statement, and begin each transaction with ``setting``.

        ``lone``: a BEGIN and the same as one statement, sent together with another one; empty if psycopg has
        to read that one's rows before the transaction ends.
        """
        self.pooled, self._setting, self._lone, self.prepare_threshold = True, setting, lone, None


class OwnConnection(_Own, psycopg.Connection[Any]):
    """A connection of our own pools, for threads."""

    def transaction(self, *arguments: Any, **options: Any) -> Any:
        """As psycopg's, with the settings that it needs."""
        block = super().transaction(*arguments, **options)
        return self._set_in(block) if self._setting else block

    @contextmanager
    def _set_in(self, block: AbstractContextManager[psycopg.Transaction]) -> Iterator[psycopg.Transaction]:
        with block as transaction:
            self.execute(self._setting)
            yield transaction

    def run(self, statement: bytes, values: Sequence[object], make_row: MakeRow) -> list[Any]:
        if not self._setting or self.info.transaction_status != pq.TransactionStatus.IDLE:
            return run_by_cursor(self, statement, values, make_row)
        if not self._lone:
            with self.transaction():
                return run_by_cursor(self, statement, values, make_row)
        try:
            return run_by_cursor(self, statement, values, make_row, self._lone)
        except psycopg.Error as error:
            if not self.closed:
                self.rollback()
            raise _first(error) from None


class AsyncOwnConnection(_Own, psycopg.AsyncConnection[Any]):
    """The same for an event loop."""

    def transaction(self, *arguments: Any, **options: Any) -> Any:
        """As psycopg's, with the settings that it needs."""
        block = super().transaction(*arguments, **options)
        return self._set_in(block) if self._setting else block

    @asynccontextmanager
    async def _set_in(
        self, block: AbstractAsyncContextManager[psycopg.AsyncTransaction]
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        async with block as transaction:
            await self.execute(self._setting)
            yield transaction

    async def run(self, statement: bytes, values: Sequence[object], make_row: MakeRow) -> list[Any]:
        """Async twin of ``OwnConnection.run``."""
        if not self._setting or self.info.transaction_status != pq.TransactionStatus.IDLE:
            return await run_by_cursor_async(self, statement, values, make_row)
        if not self._lone:
            async with self.transaction():
                return await run_by_cursor_async(self, statement, values, make_row)
        try:
            return await run_by_cursor_async(self, statement, values, make_row, self._lone)
        except psycopg.Error as error:
            if not self.closed:
                await self.rollback()
            raise _first(error) from None


def _first(error: BaseException) -> BaseException:
    """The error that aborted a pipeline: psycopg may raise the next one's."""
    while isinstance(error, psycopg.errors.PipelineAborted) and error.__context__:
        error = error.__context__
    return error


def run_by_cursor(
    connection: psycopg.Connection[Any],
    statement: bytes,
    values: Sequence[object],
    make_row: MakeRow,
    before: Sequence[bytes] = (),
) -> list[Any]:
    """Run a statement on a connection whatever its row factory, and return its rows.

    ``before``: statements sent together with it, which begin a transaction; an error leaves that open.
    """
    cursor = psycopg.RawCursor(connection, row_factory=lambda _cursor: make_row)
    with connection.pipeline() if before else nullcontext():
        for other in before:
            connection.execute(other)
        cursor.execute(statement, values)
        if before:
            connection.execute(b"COMMIT")
    # The description would say whether there are rows as well, and is costly to make.
    return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []


async def run_by_cursor_async(
    connection: psycopg.AsyncConnection[Any],
    statement: bytes,
    values: Sequence[object],
    make_row: MakeRow,
    before: Sequence[bytes] = (),
) -> list[Any]:
    cursor = psycopg.AsyncRawCursor(connection, row_factory=lambda _cursor: make_row)
    async with connection.pipeline() if before else nullcontext():
        for other in before:
            await connection.execute(other)
        await cursor.execute(statement, values)
        if before:
            await connection.execute(b"COMMIT")
    return await cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []
