"""Connecting again after Postgres was away.

Left to itself, psycopg's pool waits twice as long after each try to connect that failed, up to minutes, and
tries with one connection at a time: puts would fail for as long again as the outage lasted.  So a pool gives
up soon, and tries again while a caller waits for a connection.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from psycopg_pool import AsyncConnectionPool, ConnectionPool

# Seconds after which a pool gives up connecting, which is also the time between its tries.
RECONNECT_SECONDS = 1.0


class Awaited(Protocol):
    """Counts callers that the pool does not know of, since they do not wait in its queue."""

    callers: int


def reconnect(pool: ConnectionPool[Any], reach: Awaited) -> None:
    """Try again if a caller waits; a pool calls this when it has given up."""
    if reach.callers or pool.get_stats().get("requests_waiting"):
        pool.check()  # which lets an empty pool grow


async def reconnect_async(pool: AsyncConnectionPool[Any], reach: Awaited) -> None:
    """Twin of ``reconnect`` for the pool of an event loop."""
    if reach.callers or pool.get_stats().get("requests_waiting"):
        await pool.check()


class LoopPool(AsyncConnectionPool[Any]):
    """psycopg's pool of one event loop; a cancelled task of it does nothing more.

    psycopg_pool 3.3 takes a cancellation that comes while a connection is made for a failed attempt to make
    one.  Its task then waits for the next thing to do, and ``asyncio.run``, which has cancelled it and waits
    for its end, never returns.
    """

    @classmethod
    async def worker(cls, q: Any) -> None:
        await super().worker(_UntilCancelled(q))  # type: ignore[arg-type]


class _UntilCancelled:
    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    async def get(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._queue.get()
