"""The deadline of a request, and threads that keep it.

When the time of a request is over, its awaited work is cancelled, with its statement.  That does not end
a thread: Postgres is asked to cancel its statement, and it gets no other, so it ends with an error.  A thread
that continues outside a statement keeps the permit of its request, and the answer says so.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from strandline.schemas.errors import DatabaseUnavailableError, OutcomeUnknownError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.pools.ending_pool import EndingPool
from strandline.service.gate.limits import held_permit
from strandline.service.gate.problems import STILL_AT_WORK, TIMED_OUT, ProblemError

T = TypeVar("T")

# The part of a request's time left for its answer when all waiting is over; half of it at most.
ANSWERING_SECONDS = 5.0
# How long an answer waits for cancelled work.
GRACE_SECONDS = 2.0
# How long the process waits for that when it stops.
CLOSING_SECONDS = 10.0
# Until it is told again: it was between two statements.
AGAIN_SECONDS = 0.2


def longest_wait(request_seconds: float) -> float:
    """How much of the time of a request may be spent on waiting, so that an answer comes in the rest."""
    return request_seconds - min(ANSWERING_SECONDS, request_seconds / 2)


class Deadline:
    """Ends the work within it, its statement included, after so many seconds with such a problem."""

    __slots__ = ("_detail", "_timeout")

    def __init__(self, seconds: float, detail: str | None) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._detail = detail

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as raised:
            if raised is not error and self._timeout.expired():
                raise ProblemError(TIMED_OUT, detail=self._detail) from None
            raise


class Threads:
    """The threads of one event loop for what blocks; as many as there are permits, so that none waits."""

    def __init__(self, at_once: int) -> None:
        self._at_work: dict[asyncio.Future[Any], EndingPool] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._executor = ThreadPoolExecutor(at_once, thread_name_prefix="strandline-blocking")
        # The task that ends others must not wait for one of their threads.
        self._enders = ThreadPoolExecutor(4, thread_name_prefix="strandline-ending")

    async def run(self, database: Database, work: Callable[[Database], T]) -> T:
        """The result of ``work`` on a database, each of whose statements ends when this is cancelled.

        Raises:
            ProblemError: it was cancelled, and the work has not come to an end yet.
            OutcomeUnknownError: it was cancelled, and whether a statement took effect is unknown.
        """
        own, pool = database.endable()
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        doing: asyncio.Future[T] = loop.run_in_executor(self._executor, lambda: context.run(work, own))
        self._at_work[doing] = pool
        doing.add_done_callback(self._note_end)
        permit = held_permit()
        if permit is not None:
            permit.lasts_until(doing)
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            self._end(doing, pool)
            return await self._last_word(doing)

    async def close(self) -> None:
        """End all, and wait for it; not for long, since one may wait for nothing of Postgres's."""
        for doing, pool in list(self._at_work.items()):
            self._end(doing, pool)
        if self._ending:
            await asyncio.wait(self._ending, timeout=CLOSING_SECONDS)
        self._executor.shutdown(wait=False)
        self._enders.shutdown(wait=False)

    def _note_end(self, done: asyncio.Future[Any]) -> None:
        del self._at_work[done]
        if not done.cancelled():
            done.exception()  # whoever waited has it

    def _end(self, doing: asyncio.Future[Any], pool: EndingPool) -> None:
        task = asyncio.create_task(self._end_all(doing, pool))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_all(self, doing: asyncio.Future[Any], pool: EndingPool) -> None:
        loop = asyncio.get_running_loop()
        while not doing.done():
            await loop.run_in_executor(self._enders, pool.end)
            await asyncio.wait([doing], timeout=AGAIN_SECONDS)

    async def _last_word(self, doing: asyncio.Future[T]) -> T:
        """The result if there was one after all; else how it ended, for a client whose time is over."""
        await asyncio.wait([doing], timeout=GRACE_SECONDS)
        if not doing.done():
            raise ProblemError(TIMED_OUT, detail=STILL_AT_WORK)
        try:
            return doing.result()
        except OutcomeUnknownError:
            raise
        except DatabaseUnavailableError:
            raise asyncio.CancelledError from None  # its statement was ended


async def in_own_thread(call: Callable[[], T]) -> T:
    """Call what may take hours in a separate thread: those of the loop are for what ends soon."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="strandline-long")
    context = contextvars.copy_context()
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, lambda: context.run(call))
    finally:
        executor.shutdown(wait=False)
