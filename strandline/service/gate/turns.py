"""The reads' share of a process: the steps of one at a time, and a few connections.

A read is milliseconds of work between its statements, a put some microseconds.  A loop runs all that is ready
before it looks at its sockets again: on a process with many reads in work, each step of a put would wait for
a step of every read, and for the pool's connections that they hold.

A put waits for the database a few times, and for less than a millisecond.  So while there are any, the next
step of a read waits for their end, and the loop sleeps: the processor is the database's.  It waits the less
the more there are: one put is soon over, and where there are many there are always some.

A read that waits in the pool continues without a turn: it blocks all that come after it, also puts.

Large work runs off the loop, in a few threads: the loop then waits for the interpreter only for their turns
(``SWITCH_SECONDS``), or for one step in C.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from strandline.schemas.postgres.pools.thin_pool import IS_IN_POOL
from strandline.service.gate.limits import Admission, Asker, ClassLimits

T = TypeVar("T")

# How long a thread that computes keeps the interpreter from the event loop; 5 ms are Python's default.
SWITCH_SECONDS = 0.001
# Tenants whose large work is done at the same time.
MAX_ASIDE = 4
# Rows of a statement are large with more bytes of messages, or of more messages.
LARGE_ROWS_BYTES = 262_144
LARGE_ROWS = 1_000
# Of rows of messages, and of facts to list.
LARGE_COLUMNS = (("envelope", "metadata"), ("revisions", "text"))

# A millisecond is the shortest that epoll waits.
PAUSE_SECONDS = 0.001
# How many pauses the next step of a read waits for one write; for two half as many, for many writes one.
PAUSES = 4


def endless_queue(at_once: int, *, per_namespace: int) -> Admission:
    """Permits for permit holders, which may wait for as long as their request lasts."""
    limits = ClassLimits(
        at_once=at_once,
        waiting=sys.maxsize,
        wait_seconds=float(sys.maxsize),
        at_once_per_key=max(1, at_once // 2),
        at_once_per_namespace=per_namespace,
    )
    return Admission(limits)


class Turns:
    """The turns of one event loop.

    Args:
        at_once: how many run at the same time; the others have not asked the database for anything yet.
        count_writes: the present number of writes to let pass between two steps.
        pauses: how many the next step waits for one of them.
    """

    def __init__(
        self, at_once: int, count_writes: Callable[[], int] = lambda: 0, pauses: int = PAUSES
    ) -> None:
        self._count_writes = count_writes
        self._pauses = pauses
        self._places = endless_queue(at_once, per_namespace=max(1, at_once - 1))
        self._in_hand = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_giving = False

    async def take(self, asker: Asker, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, each step of which is taken when it is its turn.

        It has a place until it ends; a key has half of the places at most, so another's read finds one.
        What waits for memory that is being made, or for a client, does that without a place: it takes one for
        each look at the database.
        """
        try:
            await self._places.take(asker)
            self._in_hand += 1
            try:
                return await _StepByStep(self, work)
            finally:
                self._in_hand -= 1
                self._places.give_back(asker)
        finally:
            work.close()

    def wait(self) -> Generator[Any, Any, None]:
        """Wait for a turn, if other reads take turns as well."""
        if self._in_hand < 2:
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._is_giving:
            self._is_giving = True
            loop.call_soon(self._give)
        yield from turn

    def _give(self, waited: int = 0) -> None:
        """Give the next turn, some pauses later if there are writes, and then the one after it."""
        writes = self._count_writes()
        if writes and waited * writes < self._pauses:
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._give, waited + 1)
            return
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._give)
                return
        self._is_giving = False


class Aside:
    """Threads for large work: one for each namespace at a time, in the turns of its keys.

    A tenant's work then takes turns of ``SWITCH_SECONDS`` with another's, and does not wait for its end; more
    threads would take as many turns with the loop.  Waiting requests have a permit already.
    """

    def __init__(self) -> None:
        self._turns = endless_queue(MAX_ASIDE, per_namespace=1)
        self._threads = ThreadPoolExecutor(MAX_ASIDE, thread_name_prefix="strandline-large")

    async def run(self, asker: Asker, work: Callable[[], T]) -> T:
        """The result of work that computes; it waits for its turn."""
        async with self._turns.turn(asker):
            return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work)

    def close(self) -> None:
        self._threads.shutdown(wait=False)


@dataclass(slots=True)
class RequestAside:
    """One request's work off the loop: nothing, unless its body or its result is large."""

    aside: Aside
    asker: Asker
    is_large: bool

    def takes(self, result: object) -> bool:
        """Whether the step of an operation that gets this result is taken off the loop."""
        if not self.is_large and isinstance(result, list) and result:
            columns = next((one for one in LARGE_COLUMNS if hasattr(result[0], one[0])), ())
            # None of a message's columns in a hit that is a fact.
            size = sum(len(getattr(row, column) or "") for row in result for column in columns)
            self.is_large = size > LARGE_ROWS_BYTES or len(result) > LARGE_ROWS
        return self.is_large

    async def run(self, work: Callable[[], T]) -> T:
        """The result of a computation, off the loop if its input is large."""
        return await self.compute(work) if self.is_large else work()

    async def compute(self, work: Callable[[], T]) -> T:
        """The result of a long computation, always off the event loop."""
        return await self.aside.run(self.asker, work)


class _StepByStep(Generic[T]):
    """Awaits a coroutine, and waits for a turn before each step of it."""

    __slots__ = ("_turns", "_work")

    def __init__(self, turns: Turns, work: Coroutine[Any, Any, T]) -> None:
        self._turns = turns
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        try:
            yield from self._turns.wait()
            waits_for = next(steps)
            while True:
                try:
                    value = yield waits_for
                    if not IS_IN_POOL.get():
                        yield from self._turns.wait()
                except BaseException as error:  # noqa: BLE001  # handed on to where it belongs
                    waits_for = steps.throw(error)
                else:
                    waits_for = steps.send(value)
        except StopIteration as ended:
            result: T = ended.value
            return result
