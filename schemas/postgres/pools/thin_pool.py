"""psycopg's pools with a shorter way to a connection, for connections that are all autocommit.

The pools' own context managers commit when they end, which here has nothing to commit and takes as long as
all the rest of lending a connection.
"""

from __future__ import annotations

import asyncio
import math
import time
import weakref
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from strandline.schemas.forking import this_process
from strandline.schemas.postgres.own_connection import AsyncOwnConnection, OwnConnection
from strandline.schemas.postgres.pools.reaching import FIRST_STEP_SECONDS, MAX_STEP_SECONDS, Reach
from strandline.schemas.postgres.pools.reconnecting import RECONNECT_SECONDS
from strandline.schemas.postgres.translation import Unreachable

CT = TypeVar("CT", bound="psycopg.Connection[Any]")

# Whether this task is just now within a pool of its event loop, which one task at a time goes through: what
# makes it wait there, makes all wait that come after it.
IS_IN_POOL: ContextVar[bool] = ContextVar("IS_IN_POOL", default=False)


class ProcessPool(ConnectionPool[CT]):
    """A pool that nothing of a forked child ends: neither its threads nor its locks work there."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._process = this_process()
        super().__init__(*arguments, **options)

    def __del__(self) -> None:
        if self._process == this_process():
            super().__del__()


class Lent:
    """A connection for the length of a block."""

    __slots__ = ("_connection", "_pool", "_timeout")

    def __init__(self, pool: ThinPool, timeout: float | None) -> None:
        self._pool = pool
        self._timeout = timeout

    def __enter__(self) -> psycopg.Connection[Any]:
        self._connection = self._pool.lend(self._timeout)
        return self._connection

    def __exit__(self, *_error: object) -> None:
        # The pool ends an error's open remains as it takes the connection back.
        self._pool.take_back(self._connection)


class AsyncLent:
    """The same for an event loop."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: AsyncThinPool) -> None:
        self._pool = pool

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        self._connection = await self._pool.lend()
        return self._connection

    async def __aexit__(self, *_error: object) -> None:
        await self._pool.take_back(self._connection)


class ThinPool:
    """The pool that ``Database`` needs, over a ``ConnectionPool`` whose connections are autocommit."""

    def __init__(self, pool: ConnectionPool[Any], reach: Reach) -> None:
        self._pool = pool
        self._reach = reach
        self._renewed_at = -math.inf
        self.open = pool.open
        self.close = pool.close
        self.take_back = pool.putconn

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def connection(self, timeout: float | None = None) -> Lent:
        return Lent(self, timeout)

    def lend(self, timeout: float | None = None) -> psycopg.Connection[Any]:
        """A connection, as soon as there is one; waited for by the pool's time-out, or ``timeout`` seconds.

        Raises:
            Unreachable: there is nothing to wait for.
            PoolTimeout: all are in use for too long.
        """
        if not self._reach.is_fine:
            timeout = self._await_server(timeout)
        try:
            lent: psycopg.Connection[Any] = self._pool.getconn(timeout)
        except PoolTimeout:
            raise_problem(self._reach)
            raise
        return lent

    def _await_server(self, timeout: float | None) -> float | None:
        if not self._pool.closed and not has_idle(self._pool):
            self._pool.check()  # which lets an empty pool grow
        caller, pause = self._reach.note_came(), FIRST_STEP_SECONDS
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        try:
            while not (self._reach.may_go_on(caller) or self._pool.closed or has_idle(self._pool)):
                if time.monotonic() >= deadline:
                    break
                time.sleep(pause)
                pause = min(2 * pause, MAX_STEP_SECONDS)
        finally:
            self._reach.note_left()
        return None if timeout is None else max(0.0, deadline - time.monotonic())

    def renew(self, lost: psycopg.Connection[Any]) -> None:
        """Replace connections as old as a broken one, which are likely dead as well.

        They are not probed: a silently cut one would not answer before its deadline.
        """
        if isinstance(lost, OwnConnection) and is_news(lost, self._renewed_at):
            self._renewed_at = time.monotonic()
            if lost.closed:
                self._reach.note_lost(lost)
            self._pool.drain()


class AsyncThinPool:
    """The same for an event loop."""

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        reach: Reach,
        connections: weakref.WeakSet[psycopg.AsyncConnection[Any]],
    ) -> None:
        self._pool = pool
        self._reach = reach
        self._connections = connections
        self._renewed_at = -math.inf
        self.open = pool.open
        self.close = pool.close

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def connection(self) -> AsyncLent:
        return AsyncLent(self)

    async def lend(self) -> psycopg.AsyncConnection[Any]:
        """Async twin of ``ThinPool.lend``."""
        if not self._reach.is_fine:
            await self._await_server()
        IS_IN_POOL.set(True)
        try:
            lent: psycopg.AsyncConnection[Any] = await self._pool.getconn()
        except PoolTimeout:
            raise_problem(self._reach)
            raise
        finally:
            IS_IN_POOL.set(False)
        return lent

    async def take_back(self, lent: psycopg.AsyncConnection[Any]) -> None:
        IS_IN_POOL.set(True)
        try:
            await self._pool.putconn(lent)
        finally:
            IS_IN_POOL.set(False)

    async def _await_server(self) -> None:
        if not self._pool.closed and not has_idle(self._pool):
            await self._pool.check()
        caller, pause = self._reach.note_came(), FIRST_STEP_SECONDS
        try:
            while not (self._reach.may_go_on(caller) or self._pool.closed or has_idle(self._pool)):
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_STEP_SECONDS)
        finally:
            self._reach.note_left()

    async def renew(self, lost: psycopg.AsyncConnection[Any]) -> None:
        """Async twin of ``ThinPool.renew``."""
        if isinstance(lost, AsyncOwnConnection) and is_news(lost, self._renewed_at):
            self._renewed_at = time.monotonic()
            if lost.closed:
                self._reach.note_lost(lost)
            await self._pool.drain()

    def abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the pool's tasks on a loop that has ended, where its ``close`` cannot run any more."""
        for connection in list(self._connections):
            connection.pgconn.finish()
        # ``asyncio.run`` has ended them; a loop that was just closed has not.
        for task in asyncio.all_tasks(loop):
            coroutine = task.get_coro()
            if coroutine is not None and task.get_name().startswith(self._pool.name):
                with suppress(RuntimeError):  # they tell the loop, which says that it is closed
                    coroutine.close()


def is_news(lost: OwnConnection | AsyncOwnConnection, renewed_at: float) -> bool:
    """Whether connections of its age have not been replaced yet.

    A connection that is still open was only refused, as by a standby; new ones may be as well, so renew
    rarely.
    """
    return lost.opened_at > renewed_at and (lost.closed or time.monotonic() - renewed_at > RECONNECT_SECONDS)


def has_idle(pool: ConnectionPool[Any] | AsyncConnectionPool[Any]) -> bool:
    """Whether an idle connection is available, so that it does not matter whether others can be made."""
    return pool.get_stats().get("pool_available", 0) > 0


def raise_problem(reach: Reach) -> None:
    """Raise Unreachable with the reason of the latest attempt, if it is known."""
    if reach.refusal is not None:
        raise reach.refusal
    if reach.problem is not None:
        raise Unreachable(reach.problem) from None
