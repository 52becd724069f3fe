"""The pool of one event loop: psycopg's, whose tasks end when the loop ends them.

psycopg_pool 3.3 takes a cancellation that comes while a connection is made for a failed attempt to make one.
Its task then waits for the next thing to do, and ``asyncio.run``, which has cancelled it and waits for its
end, never returns.
"""

from __future__ import annotations

import asyncio
from typing import Any

from psycopg_pool import AsyncConnectionPool


class LoopPool(AsyncConnectionPool[Any]):
    """psycopg's asynchronous pool; a cancelled task of it does nothing more."""

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
