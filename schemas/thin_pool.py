"""psycopg's pools with a shorter way to a connection, for connections that are all autocommit.

The pools' own context managers commit when they end, which here has nothing to commit and takes as long as
all the rest of lending a connection.
"""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from strandline.schemas.forking import this_process

CT = TypeVar("CT", bound="psycopg.Connection[Any]")


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

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool

    def __enter__(self) -> psycopg.Connection[Any]:
        lent: psycopg.Connection[Any] = self._pool.getconn()
        self._connection = lent
        return lent

    def __exit__(self, *_error: object) -> None:
        # What an error left open is ended by the pool as it takes the connection back.
        self._pool.putconn(self._connection)


class AsyncLent:
    """The same for an event loop."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        lent: psycopg.AsyncConnection[Any] = await self._pool.getconn()
        self._connection = lent
        return lent

    async def __aexit__(self, *_error: object) -> None:
        await self._pool.putconn(self._connection)


class ThinPool:
    """What ``Database`` needs of a pool, over a ``ConnectionPool`` whose connections are autocommit."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool
        self.open = pool.open
        self.check = pool.check
        self.close = pool.close

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def connection(self) -> Lent:
        return Lent(self._pool)


class AsyncThinPool:
    """The same for an event loop."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool
        self.open = pool.open
        self.check = pool.check
        self.close = pool.close

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def connection(self) -> AsyncLent:
        return AsyncLent(self._pool)
