"""The driver for asyncio: the same operations on an async pool, blocking calls moved to threads."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self, TypeVar, assert_never

import psycopg

from strandline.schemas.errors import DatabaseBusyError, StrandlineError
from strandline.schemas.postgres.deadlines import Attempts, within
from strandline.schemas.postgres.operations import (
    ASIDE,
    Atomic,
    Await,
    Compute,
    Content,
    Operation,
    Pause,
    Run,
    Step,
    StepsAside,
)
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.own_connection import AsyncOwnConnection, MakeRow, run_by_cursor_async
from strandline.schemas.postgres.pools.engine_pool import AsyncPool
from strandline.schemas.postgres.pools.pool_log import PoolName
from strandline.schemas.postgres.pools.reaching import Reach, async_connection_class
from strandline.schemas.postgres.pools.reconnecting import RECONNECT_SECONDS, LoopPool, reconnect_async
from strandline.schemas.postgres.pools.thin_pool import AsyncThinPool
from strandline.schemas.postgres.prepared import AsyncDirectConnection
from strandline.schemas.postgres.query import Query
from strandline.schemas.postgres.statements import compile_statements
from strandline.schemas.postgres.translation import (
    NOTHING_TO_LEND,
    ended_by_limit,
    is_lost,
    is_refused_by_standby,
    is_rolled_back,
    may_pass,
    outcome_unknown,
    pauses,
    translate_errors,
)
from strandline.schemas.sealing.codec import WITHOUT_KEYS, ContentCodec, holds_tokens

T = TypeVar("T")
R = TypeVar("R")

# Work that takes time.
_Awaited = Query[Any] | Await | Run | Pause | Atomic


class AsyncFetcher(Protocol):
    """Runs a named statement: an ``AsyncDatabase`` (alone, committed) or an ``AsyncTransaction``."""

    async def fetch(self, query: Query[R]) -> list[R]: ...


class AsyncRunner(AsyncFetcher, Protocol):
    """Carries out operations: an ``AsyncFetcher`` that can run parts of them in one transaction."""

    @property
    def content(self) -> ContentCodec: ...

    async def run_atomically(self, make: Callable[[], Operation[T]]) -> T: ...


class AsyncTransaction:
    """Statements on one connection inside one transaction, which its owner begins and ends."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], schema: str, content: ContentCodec = WITHOUT_KEYS
    ) -> None:
        self._connection = connection
        self._statements = compile_statements(schema)
        self.content = content

    @property
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The connection, for operations that join a caller's transaction."""
        return self._connection

    async def fetch(self, query: Query[R]) -> list[R]:
        if query.marks is None:
            return await self._fetch(query)
        return await fetch_content(query, self._fetch, self)

    async def _fetch(self, query: Query[R]) -> list[R]:
        with translate_errors():
            return await execute(self._connection, self._statements[query.name], query)

    async def run(self, operation: Operation[T]) -> T:
        """Carry an operation out inside the caller's transaction."""
        return await drive(operation, self)

    async def run_atomically(self, make: Callable[[], Operation[T]]) -> T:
        """Async twin of ``Transaction.run_atomically``."""
        return await drive(make(), self)


class AsyncDatabase:
    """A pool and the statements of one schema, for one event loop."""

    def __init__(
        self,
        pool: AsyncPool,
        schema: str,
        *,
        owns_pool: bool = True,
        statement_seconds: float = math.inf,
        content: ContentCodec = WITHOUT_KEYS,
    ) -> None:
        self._pool = pool
        self._owns_pool = owns_pool
        self._statement_seconds = statement_seconds
        self._opened = not owns_pool
        self._schema = schema
        self._statements = compile_statements(schema)
        self._opening = asyncio.Lock()
        self.content = content

    @classmethod
    def connect(cls, options: ConnectionOptions, content: ContentCodec = WITHOUT_KEYS) -> Self:
        """A database with its own pool; see ``Database.connect``."""
        reach = Reach(options.url, options.pool_timeout)
        options = replace(options, find_url=reach.note_failures_of(options.find_url))
        beginnings = options.beginnings()
        kind = AsyncOwnConnection if options.public_apis_only else AsyncDirectConnection
        connections: weakref.WeakSet[psycopg.AsyncConnection[Any]] = weakref.WeakSet()
        noted = async_connection_class(kind, reach, connections, options.statement_seconds, beginnings)
        pool = LoopPool(
            options.async_conninfo,
            connection_class=noted,
            kwargs=options.connect_arguments(),
            min_size=0,
            max_size=options.pool_size,
            timeout=options.pool_timeout,
            max_idle=60.0,
            open=False,
            name=PoolName("strandline-async"),
            reconnect_timeout=RECONNECT_SECONDS,
            reconnect_failed=lambda failed: reconnect_async(failed, reach),
        )
        thin = AsyncThinPool(pool, reach, connections)
        return cls(thin, options.schema, statement_seconds=options.statement_seconds, content=content)

    async def fetch(self, query: Query[R]) -> list[R]:
        """Run one statement in a separate transaction; see ``Database.fetch``."""
        if query.marks is None:
            return await self._fetch(query)
        return await fetch_content(query, self._fetch, self)

    async def _fetch(self, query: Query[R]) -> list[R]:
        with translate_errors():
            await self._open()
            async with self._pool.connection() as connection:
                attempts = Attempts(self._statement_seconds)
                try:
                    return await execute(connection, self._statements[query.name], query)
                except psycopg.Error as error:
                    await self._look_at(error, connection, final=not query.repeatable)
                    failed = error
            return await self._repeat(query, attempts, failed)

    async def _repeat(self, query: Query[R], attempts: Attempts, failed: psycopg.Error) -> list[R]:
        is_unknown = not may_pass(failed)
        for pause in pauses():
            await asyncio.sleep(pause)
            try:
                async with self._pool.connection() as connection:
                    attempts.begin()
                    if attempts.is_too_late:
                        break
                    try:
                        with within(attempts.seconds_left, connection):
                            return await execute(connection, self._statements[query.name], query)
                    except psycopg.Error as error:
                        await self._look_at(error, connection, final=True)
                        failed = error
            except NOTHING_TO_LEND:
                break
        if is_unknown:
            raise outcome_unknown(failed) from failed
        raise failed

    async def _look_at(
        self, error: psycopg.Error, connection: psycopg.AsyncConnection[Any], *, final: bool
    ) -> None:
        if may_pass(error):
            if is_refused_by_standby(error):
                await self._pool.renew(connection)
            return
        if not is_lost(error, connection):
            raise error
        await self._pool.renew(connection)
        if final:
            raise outcome_unknown(error) from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransaction]:
        """One transaction: commits when the block ends, rolls back when it raises."""
        with translate_errors():
            await self._open()
            async with self._pool.connection() as connection:
                done = False
                try:
                    async with connection.transaction():
                        yield AsyncTransaction(connection, self._schema, self.content)
                        done = True
                except Exception as error:
                    if connection.closed and not ended_by_limit(error):
                        await self._pool.renew(connection)
                    if done and isinstance(error, psycopg.Error) and is_lost(error, connection):
                        raise outcome_unknown(error) from error
                    raise

    def run(self, operation: Operation[T]) -> Awaitable[T]:
        """Run an operation, each of its statements in its own transaction."""
        return drive(operation, self)

    async def run_atomically(self, make: Callable[[], Operation[T]]) -> T:
        """Async twin of ``Database.run_atomically``."""
        again = pauses()
        while True:
            try:
                async with self.transaction() as transaction:
                    return await transaction.run(make())
            except DatabaseBusyError as error:
                pause = next(again, None)
                if pause is None or not is_rolled_back(error):
                    raise
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Close the pool, unless the caller of the library owns it."""
        if self._owns_pool and not self._pool.closed:
            await self._pool.close(timeout=2.0)

    def abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the connections without their loop, which has ended; from any thread; not a caller's pool."""
        if isinstance(self._pool, AsyncThinPool):
            self._pool.abandon(loop)

    async def _open(self) -> None:
        # A closed pool cannot be opened again: after close() the next statement says so.
        if not self._opened:
            async with self._opening:
                await self._pool.open()
                self._opened = True


async def execute(connection: psycopg.AsyncConnection[Any], statement: bytes, query: Query[R]) -> list[R]:
    """Run ``statement`` on a connection whatever its row factory, and return its rows."""
    make_row: MakeRow = partial(tuple.__new__, query.row)  # as ``_make`` does, without a step in Python
    if isinstance(connection, AsyncOwnConnection) and not query.lone:
        return await connection.run(statement, query.values, make_row)
    return await run_by_cursor_async(connection, statement, query.values, make_row)


async def fetch_content(
    query: Query[R], send: Callable[[Query[R]], Awaitable[list[R]]], runner: AsyncRunner
) -> list[R]:
    """Async twin of ``schemas.postgres.database.fetch_content``."""
    marks = query.marks
    if marks is not None and marks.seals:
        query = await drive(runner.content.seal_query(query), runner)
    rows = await send(query)
    if marks is not None and marks.opens and holds_tokens(marks, rows):
        return await drive(runner.content.open_rows(query, rows), runner)
    return rows


async def drive(operation: Operation[T], runner: AsyncRunner) -> T:
    """Carry out an operation's steps on this event loop and return its result."""
    aside = ASIDE.get()
    if aside is not None:
        return await _drive_beside(operation, runner, aside)
    cancels = _cancels()
    try:
        step = next(operation)
        while True:
            try:
                if isinstance(step, Content):
                    result = runner.content
                else:
                    result = await _carry_out(step, runner, cancels)
            except StrandlineError as error:
                step = operation.throw(error)
            else:
                step = operation.send(result)
    except StopIteration as done:
        value: T = done.value
        return value


async def _drive_beside(operation: Operation[T], runner: AsyncRunner, aside: StepsAside) -> T:
    """``_drive``, with the large computing steps off the loop."""
    advance: Callable[[Any], Step] = operation.send
    result: Any = None
    cancels = _cancels()
    while True:
        take = partial(_take_step, advance, result)
        step = await aside.run(take) if aside.takes(result) else take()
        if isinstance(step, _Done):
            value: T = step.value
            return value
        advance = operation.send
        try:
            if isinstance(step, Content):
                result = runner.content
            elif isinstance(step, Compute):
                result = await aside.compute(step.call)
            else:
                result = await _carry_out(step, runner, cancels)
        except StrandlineError as error:
            advance, result = operation.throw, error


@dataclass(frozen=True, slots=True)
class _Done:
    """The end of an operation: StopIteration cannot leave a thread by a future."""

    value: Any


def _take_step(advance: Callable[[Any], Step], result: object) -> Step | _Done:
    try:
        return advance(result)
    except StopIteration as done:
        return _Done(done.value)


def _carry_out(step: _Awaited, runner: AsyncRunner, cancels: int) -> Awaitable[Any]:
    if isinstance(step, Query):
        return runner.fetch(step)
    if isinstance(step, Await):
        return step.make()
    if isinstance(step, Atomic):
        return runner.run_atomically(step.make)
    if isinstance(step, Run):
        return asyncio.to_thread(step.call)
    if isinstance(step, Pause):
        return _pause(step.seconds, cancels)
    assert_never(step)


def _cancels() -> int:
    """How often the present task was cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def _pause(seconds: float, cancels: int) -> None:
    """Sleep; raises CancelledError if the task was cancelled since it had been ``cancels`` times.

    ``asyncio.wait_for`` of Python 3.11, which pools use, can lose a cancellation, and a read would wait on.
    """
    await asyncio.sleep(seconds)
    if _cancels() > cancels:
        raise asyncio.CancelledError
