"""The caller's own psycopg pool, or a SQLAlchemy engine, so that an application keeps a single pool.

The two drivers only need a connection for the length of a block.  SQLAlchemy is not imported here: an engine
is recognised by its methods.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, Union

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.caller_connection import driver_connection
from strandline.schemas.postgres.pools.beginnings import SeenConnections

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


# SQLAlchemy's names for psycopg 3, sync and async.
DRIVER = "psycopg"

# The types that callers may give as ``pool=``.
Pool = Union[ConnectionPool[Any], AsyncConnectionPool[Any], "Engine", "AsyncEngine"]


class SyncPool(Protocol):
    """The part of a pool that ``Database`` needs."""

    @property
    def closed(self) -> bool: ...

    def open(self) -> None: ...

    def connection(self, timeout: float | None = None) -> AbstractContextManager[psycopg.Connection[Any]]: ...

    def renew(self, lost: psycopg.Connection[Any]) -> None: ...

    def close(self, timeout: float) -> None: ...


class AsyncPool(Protocol):
    """The part of a pool that ``AsyncDatabase`` needs."""

    @property
    def closed(self) -> bool: ...

    async def open(self) -> None: ...

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]: ...

    async def renew(self, lost: psycopg.AsyncConnection[Any]) -> None: ...

    async def close(self, timeout: float) -> None: ...


class LentPool:
    """A pool that its owner opens and closes."""

    def open(self) -> None:
        """Nothing."""

    def close(self, timeout: float) -> None:
        """Nothing."""


class AsyncLentPool:
    """The same for an event loop."""

    async def open(self) -> None:
        """Nothing."""

    async def close(self, timeout: float) -> None:
        """Nothing."""


class EnginePool(LentPool):
    """A caller's SQLAlchemy ``Engine`` on psycopg 3 as a pool; ``renew`` drops its idle connections."""

    closed = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen = SeenConnections()

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[psycopg.Connection[Any]]:
        """One connection; commits when the block ends.

        When the block raises, the engine rolls back as it takes the connection back.  The engine decides how
        long to wait for a connection; ``timeout`` is ignored.

        Raises:
            ConfigurationError: the engine's driver is not psycopg 3, or its transactions do not begin at
                ``read committed``, or are read-only.
        """
        _check_driver(self._engine)
        with self._engine.connect() as lent:
            driver = driver_connection(lent.connection.driver_connection, psycopg.Connection)
            try:
                self._seen.look(driver)
                yield driver
                if not driver.closed:
                    driver.commit()
            finally:
                # Broken in the block, which may know how to continue.
                if driver.closed:
                    lent.invalidate()

    def renew(self, lost: psycopg.Connection[Any]) -> None:
        """Dispose of the idle connections: one broke, so the others are likely to be dead as well."""
        self._engine.dispose()


class AsyncEnginePool(AsyncLentPool):
    """Async twin of ``EnginePool``, on an ``AsyncEngine``."""

    closed = False

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._seen = SeenConnections()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Async twin of ``EnginePool.connection``."""
        _check_driver(self._engine)
        async with self._engine.connect() as lent:
            proxy = await lent.get_raw_connection()
            driver = driver_connection(proxy.driver_connection, psycopg.AsyncConnection)
            try:
                await self._seen.alook(driver)
                yield driver
                if not driver.closed:
                    await driver.commit()
            finally:
                # Broken in the block, which may know how to continue.
                if driver.closed:
                    await lent.invalidate()

    async def renew(self, lost: psycopg.AsyncConnection[Any]) -> None:
        """Async twin of ``EnginePool.renew``."""
        await self._engine.dispose()


def _check_driver(engine: Engine | AsyncEngine) -> None:
    """Refuse another driver before it connects; raises ConfigurationError."""
    driver: object = getattr(engine.dialect, "driver", DRIVER)
    if driver != DRIVER:
        raise ConfigurationError(
            f"pool= is an engine on {quote(str(driver))}; give one on psycopg 3, as create_engine or"
            " create_async_engine makes it of a URL that begins with postgresql+psycopg://."
        )


def is_engine(pool: object) -> TypeGuard[Engine]:
    """Whether it is a SQLAlchemy ``Engine``."""
    return hasattr(pool, "raw_connection") and not is_async_engine(pool)


def is_async_engine(pool: object) -> TypeGuard[AsyncEngine]:
    """Whether it is a SQLAlchemy ``AsyncEngine``."""
    return hasattr(pool, "raw_connection") and hasattr(pool, "sync_engine")


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
        """One connection, within ``timeout`` seconds; commits at the block's end, rolls back if it raises."""
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
