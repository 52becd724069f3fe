"""A psycopg pool of the caller's, used as it is: nothing of it is configured, bounded or closed here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from strandline.schemas.postgres.pools.beginnings import SeenConnections
from strandline.schemas.postgres.pools.engine_pool import AsyncLentPool, LentPool


class CallersPool(LentPool):
    """A ``ConnectionPool`` that its owner opens and closes."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool
        self._seen = SeenConnections()

    @property
    def closed(self) -> bool:
        return self._pool.closed

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[psycopg.Connection[Any]]:
        """One connection; commits when the block ends, rolls back when it raises.

        It is waited for as long as the pool says, or for ``timeout`` seconds.

        Raises:
            ConfigurationError: its transactions begin otherwise than they have to.
        """
        with self._pool.connection(timeout) as connection:
            self._seen.look(connection)
            yield connection

    def renew(self, lost: psycopg.Connection[Any]) -> None:
        """A connection broke, so the others are likely to be dead as well: the pool looks at each."""
        self._pool.check()


class AsyncCallersPool(AsyncLentPool):
    """The same for an event loop."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool
        self._seen = SeenConnections()

    @property
    def closed(self) -> bool:
        return self._pool.closed

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Async twin of ``CallersPool.connection``."""
        async with self._pool.connection() as connection:
            await self._seen.alook(connection)
            yield connection

    async def renew(self, lost: psycopg.AsyncConnection[Any]) -> None:
        """Async twin of ``CallersPool.renew``."""
        await self._pool.check()
