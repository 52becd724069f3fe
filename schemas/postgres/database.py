"""The driver for threads: a pool, named statements, transactions, and operations carried out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, Self, TypeVar, assert_never

import psycopg
from psycopg_pool import ConnectionPool

from strandline.schemas.errors import DatabaseBusyError, StrandlineError
from strandline.schemas.postgres.deadlines import Attempts, within
from strandline.schemas.postgres.operations import Atomic, Await, Content, Operation, OtherStep, Pause, Run
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.own_connection import MakeRow, OwnConnection, run_by_cursor
from strandline.schemas.postgres.pools.beginnings import Beginnings
from strandline.schemas.postgres.pools.ending_pool import EndingPool
from strandline.schemas.postgres.pools.engine_pool import SyncPool
from strandline.schemas.postgres.pools.pool_log import PoolName
from strandline.schemas.postgres.pools.reaching import Reach, connection_class
from strandline.schemas.postgres.pools.reconnecting import RECONNECT_SECONDS, reconnect
from strandline.schemas.postgres.pools.thin_pool import ProcessPool, ThinPool
from strandline.schemas.postgres.prepared import DirectConnection
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


class Fetcher(Protocol):
    """Runs a named statement: a ``Database`` (alone, committed) or a ``Transaction``."""

    def fetch(self, query: Query[R]) -> list[R]:
        """Its rows, sealed and opened on the way."""
        ...

    def run(self, operation: Operation[T]) -> T: ...


class Runner(Fetcher, Protocol):
    """Carries out operations: a ``Fetcher`` that can run parts of them in one transaction."""

    @property
    def content(self) -> ContentCodec: ...

    def run_atomically(self, make: Callable[[], Operation[T]]) -> T: ...


class Transaction:
    """Statements on one connection inside one transaction; it commits or rolls back with its block."""

    def __init__(
        self, connection: psycopg.Connection[Any], schema: str, content: ContentCodec = WITHOUT_KEYS
    ) -> None:
        self._connection = connection
        self._statements = compile_statements(schema)
        self.content = content

    def fetch(self, query: Query[R]) -> list[R]:
        return self._fetch(query) if query.marks is None else fetch_content(query, self._fetch, self)

    def _fetch(self, query: Query[R]) -> list[R]:
        with translate_errors():
            return execute(self._connection, self._statements[query.name], query)

    def copy(self, query: Query[Any], rows: Iterable[tuple[object, ...]]) -> None:
        """Send rows to a ``COPY … FROM STDIN`` statement."""
        cursor = psycopg.RawCursor(self._connection)
        with cursor.copy(self._statements[query.name]) as copy:
            for row in rows:
                copy.write_row(row)

    def run(self, operation: Operation[T]) -> T:
        """Carry an operation out inside this transaction."""
        return drive(operation, self)

    def run_atomically(self, make: Callable[[], Operation[T]]) -> T:
        """As ``run``: the operation belongs to this transaction, and is not repeated."""
        return drive(make(), self)


class Database:
    """A pool and the statements of one schema; safe to share between threads.

    Connections are taken per statement or per transaction and never held across anything else.
    """

    def __init__(
        self,
        pool: SyncPool,
        schema: str,
        *,
        owns_pool: bool = True,
        statement_seconds: float = math.inf,
        content: ContentCodec = WITHOUT_KEYS,
        beginnings: Beginnings | None = None,
    ) -> None:
        self._pool = pool
        self._owns_pool = owns_pool
        self._statement_seconds = statement_seconds
        self._opened = not owns_pool
        self._statements = compile_statements(schema)
        self.beginnings = beginnings
        self.schema = schema
        self.content = content

    @classmethod
    def connect(cls, options: ConnectionOptions, content: ContentCodec = WITHOUT_KEYS) -> Self:
        """A database with its own pool; connections are opened when first needed.

        ``content`` seals and opens content; without it, sealed content is refused.
        """
        reach = Reach(options.url, options.pool_timeout)
        options = replace(options, find_url=reach.note_failures_of(options.find_url))
        beginnings = options.beginnings()
        kind = OwnConnection if options.public_apis_only else DirectConnection
        noted = connection_class(kind, reach, options.statement_seconds, beginnings)
        pool: ConnectionPool[Any] = ProcessPool(
            options.conninfo,
            connection_class=noted,
            kwargs=options.connect_arguments(),
            min_size=0,
            max_size=options.pool_size,
            timeout=options.pool_timeout,
            max_idle=60.0,
            open=False,
            name=PoolName("strandline"),
            reconnect_timeout=RECONNECT_SECONDS,
            reconnect_failed=lambda failed: reconnect(failed, reach),
        )
        seconds = options.statement_seconds
        return cls(
            ThinPool(pool, reach),
            options.schema,
            statement_seconds=seconds,
            content=content,
            beginnings=beginnings,
        )

    def fetch(self, query: Query[R]) -> list[R]:
        """Run one statement in a separate transaction.

        A repeatable one is sent once more, on a fresh connection, if its connection was lost.

        Raises:
            OutcomeUnknownError: there was no answer, and the statement may have taken effect.
            StrandlineError: as ``schemas.postgres.translation.translate_errors`` says.
        """
        return self._fetch(query) if query.marks is None else fetch_content(query, self._fetch, self)

    def _fetch(self, query: Query[R]) -> list[R]:
        with translate_errors():
            self._open()
            with self._pool.connection() as connection:
                # However long the connection was waited for, there is time for two attempts.
                attempts = Attempts(self._statement_seconds)
                try:
                    return execute(connection, self._statements[query.name], query)
                except psycopg.Error as error:
                    self._look_at(error, connection, final=not query.repeatable)
                    failed = error
            return self._repeat(query, attempts, failed)

    def fetch_within(self, seconds: float, query: Query[R]) -> list[R]:
        """Run a repeatable statement, on a connection of our own for ``seconds`` at most, or twice that.

        The wait for a connection is part of that.
        """
        with translate_errors():
            self._open()
            attempts = Attempts(seconds)
            with self._pool.connection(seconds) as connection:
                try:
                    with within(attempts.seconds_left, connection):
                        return execute(connection, self._statements[query.name], query)
                except psycopg.Error as error:
                    self._look_at(error, connection, final=False)
                    failed = error
            return self._repeat(query, attempts, failed, with_the_wait=True)

    def _repeat(
        self,
        query: Query[R],
        attempts: Attempts,
        failed: psycopg.Error,
        *,
        with_the_wait: bool = False,
    ) -> list[R]:
        """The rows of a further attempt after ``failed``; with ``with_the_wait`` it counts the wait, too."""
        is_unknown = not may_pass(failed)
        for pause in pauses():
            time.sleep(pause)
            attempts.begin()
            if attempts.is_too_late:
                break
            try:
                with self._pool.connection(attempts.seconds_left if with_the_wait else None) as connection:
                    if not with_the_wait:
                        attempts.begin()
                    if attempts.is_too_late:
                        break
                    try:
                        with within(attempts.seconds_left, connection):
                            return execute(connection, self._statements[query.name], query)
                    except psycopg.Error as error:
                        self._look_at(error, connection, final=True)
                        failed = error
            except NOTHING_TO_LEND:
                # The outcome of the attempt before counts.
                break
        if is_unknown:
            raise outcome_unknown(failed) from failed
        raise failed

    def _look_at(self, error: psycopg.Error, connection: psycopg.Connection[Any], *, final: bool) -> None:
        """Return if the connection is lost and there is another attempt; else raise the resulting error."""
        if may_pass(error):
            if is_refused_by_standby(error):
                self._pool.renew(connection)
            return
        if not is_lost(error, connection):
            raise error
        self._pool.renew(connection)
        if final:
            raise outcome_unknown(error) from error

    @contextmanager
    def transaction(self, *, within_seconds: float | None = None) -> Iterator[Transaction]:
        """One transaction: commits when the block ends, rolls back when it raises.

        Args:
            within_seconds: time limit of each statement, on our own connections; default: that of the
                options.

        Raises:
            OutcomeUnknownError: there was no answer to the commit.
        """
        with translate_errors():
            self._open()
            with (
                self._pool.connection() as connection,
                within(within_seconds or self._statement_seconds, connection),
            ):
                done = False
                try:
                    with connection.transaction():
                        yield Transaction(connection, self.schema, self.content)
                        done = True
                except Exception as error:
                    if connection.closed and not ended_by_limit(error):
                        self._pool.renew(connection)
                    if done and isinstance(error, psycopg.Error) and is_lost(error, connection):
                        raise outcome_unknown(error) from error
                    raise

    def run(self, operation: Operation[T]) -> T:
        """Run an operation, each of its statements in its own transaction."""
        return drive(operation, self)

    def run_atomically(self, make: Callable[[], Operation[T]]) -> T:
        """Carry out an operation in one transaction; repeat it if it was rolled back in favour of another."""
        again = pauses()
        while True:
            try:
                with self.transaction() as transaction:
                    return transaction.run(make())
            except DatabaseBusyError as error:
                pause = next(again, None)
                if pause is None or not is_rolled_back(error):
                    raise
            time.sleep(pause)

    def endable(self) -> tuple[Database, EndingPool]:
        """The same database for one piece of work, and what ends it, from another thread."""
        with translate_errors():
            self._open()
        pool = EndingPool(self._pool)
        seconds = self._statement_seconds
        own = Database(pool, self.schema, owns_pool=False, statement_seconds=seconds, content=self.content)
        return own, pool

    def close(self) -> None:
        """Close the pool, unless the caller of the library owns it."""
        if self._owns_pool and not self._pool.closed:
            self._pool.close(timeout=2.0)

    def _open(self) -> None:
        # A closed pool cannot be opened again: after close() the next statement says so.
        if not self._opened:
            self._pool.open()
            self._opened = True


def execute(connection: psycopg.Connection[Any], statement: bytes, query: Query[R]) -> list[R]:
    """Run ``statement`` on a connection whatever its row factory, and return its rows."""
    make_row: MakeRow = partial(tuple.__new__, query.row)  # as ``_make`` does, without a step in Python
    if isinstance(connection, OwnConnection) and not query.lone:
        return connection.run(statement, query.values, make_row)
    return run_by_cursor(connection, statement, query.values, make_row)


def fetch_content(query: Query[R], send: Callable[[Query[R]], list[R]], runner: Runner) -> list[R]:
    """Run a statement whose content may be sealed; ``send`` sends it as it is."""
    marks = query.marks
    if marks is not None and marks.seals:
        query = drive(runner.content.seal_query(query), runner)
    rows = send(query)
    if marks is not None and marks.opens and holds_tokens(marks, rows):
        return drive(runner.content.open_rows(query, rows), runner)
    return rows


def drive(operation: Operation[T], runner: Runner) -> T:
    """Carry out an operation's steps in this thread and return its result."""
    try:
        step = next(operation)
        while True:
            try:
                result = runner.fetch(step) if isinstance(step, Query) else _carry_out(step, runner)
            except StrandlineError as error:
                step = operation.throw(error)
            else:
                step = operation.send(result)
    except StopIteration as done:
        value: T = done.value
        return value


def _carry_out(step: OtherStep, runner: Runner) -> Any:
    if isinstance(step, Atomic):
        return runner.run_atomically(step.make)
    if isinstance(step, Run):
        return step.call()
    if isinstance(step, Content):
        return runner.content
    if isinstance(step, Pause):
        time.sleep(step.seconds)
        return None
    if isinstance(step, Await):
        raise TypeError("only a driver for asyncio can await")
    assert_never(step)
