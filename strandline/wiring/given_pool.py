"""The caller's own pool, instead of Strandline's."""

from __future__ import annotations

from typing import Any

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.pools.engine_pool import (
    AsyncCallersPool,
    AsyncEnginePool,
    AsyncPool,
    CallersPool,
    EnginePool,
    Pool,
    SyncPool,
    is_async_engine,
    is_engine,
)


class GivenPool:
    """A pool given as ``pool=``, as this process may use it.

    Args:
        pool: the caller's.
        inherited: whether it was passed to a process that this one was forked from.  Connections that it has
            now belong to that process; a pool without connections can be used in both.
    """

    def __init__(self, pool: Pool, *, inherited: bool) -> None:
        self._pool = pool
        self._of_parent = _in_use(pool) if inherited else None

    def check(self) -> None:
        """Refuse connections that belong to a parent process.

        Raises:
            ConfigurationError: the sentence says what to do.
        """
        if self._of_parent is None or self._of_parent is not _in_use(self._pool):
            return
        if is_engine(self._pool) or is_async_engine(self._pool):
            way_out = "Call engine.dispose(close=False) in each child, before the first use"
        else:
            way_out = "Make the pool, and the Memory that takes it, in each child"
        raise ConfigurationError(
            "The pool given as pool= was in use before this process was forked, so its connections belong to"
            f" the parent process. {way_out} (gunicorn: post_fork; Celery: worker_process_init); or give"
            " database_url= in place of pool=, which may be used before and after a fork."
        )

    def for_threads(self) -> SyncPool | None:
        """The pool, if threads can use it."""
        if is_engine(self._pool):
            return EnginePool(self._pool)
        return CallersPool(self._pool) if isinstance(self._pool, ConnectionPool) else None

    def for_tasks(self) -> AsyncPool | None:
        """The pool, if an event loop can use it."""
        if is_async_engine(self._pool):
            return AsyncEnginePool(self._pool)
        return AsyncCallersPool(self._pool) if isinstance(self._pool, AsyncConnectionPool) else None


def _in_use(pool: Pool) -> object | None:
    """The part of a pool that has connections, or threads that make them; None if it has neither."""
    if is_engine(pool) or is_async_engine(pool):
        return pool.pool if _has_connections(pool.pool) else None
    return None if getattr(pool, "closed", True) else pool


def _has_connections(pool: Any) -> bool:
    """Whether SQLAlchemy's pool has connections; True also if it does not count them, or has no size.

    This runs in a child while it is being forked, where the lock of the pool's queue may stay locked for good
    by a thread of the parent: ``checkedin`` and ``checkedout`` take it, ``size`` and ``overflow`` do not.
    """
    if not hasattr(pool, "overflow"):
        return type(pool).__name__ != "NullPool"  # which keeps none
    return not pool.size() or bool(pool.size() + pool.overflow() > 0)
