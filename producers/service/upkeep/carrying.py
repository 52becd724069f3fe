"""Erasures that requests began, carried on by this process behind their fences.

A request answers once the fence stands: from then on nothing is written for the user.  Postgres records how
far the rest is; an erasure whose process ended goes on when a client asks for it again.
"""

from __future__ import annotations

import asyncio
import logging

from strandline.pipelines.upkeep.erasure.steps import ErasureOrder
from strandline.producers.erasing.erase import BegunErasure, begin_erasing, finish_erasing
from strandline.producers.execution import OperationRunner
from strandline.producers.service.operators import Operators

logger = logging.getLogger("strandline.service")

# Each deletes a page at a time on a connection of the pool.
AT_ONCE = 2
# Of erasures that failed here, the reason of so many is kept.
MAX_REASONS = 100

Task = asyncio.Task[None]


class CarriedErasures:
    """The erasures that this process carries on; for one event loop."""

    def __init__(self, runner: OperationRunner, operators: Operators) -> None:
        self._runner = runner
        self._operators = operators
        self._running: dict[int, set[Task]] = {}
        self._reasons: dict[int, str] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    def is_running(self, number: int) -> bool:
        return number in self._running

    def reason(self, number: int) -> str | None:
        """The kind of error that ended an erasure here."""
        return self._reasons.get(number)

    async def begin(self, order: ErasureOrder) -> int:
        """Set the fence, and begin to carry the rest on; returns the number of the erasure.

        Raises:
            NotFoundError: there is no such session.
        """
        begun = await self._runner.arun(begin_erasing(order))
        number = begun.fenced.number
        # One that runs here has no need of a second; but it may have been given fewer items.
        if not begun.fenced.is_done and (order.items or not self.is_running(number)):
            self._carry_on(number, begun)
        return number

    async def wait(self, number: int, seconds: float) -> None:
        """Wait until nothing of an erasure runs here, for so many seconds at most."""
        if self.is_running(number):
            await asyncio.wait(self._running[number], timeout=seconds)

    async def close(self) -> None:
        """End all, each between two of its transactions or within one, which is rolled back."""
        running = [task for tasks in self._running.values() for task in tasks]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _carry_on(self, number: int, begun: BegunErasure) -> None:
        self._reasons.pop(number, None)
        task = asyncio.create_task(self._finish(number, begun))
        self._running.setdefault(number, set()).add(task)
        task.add_done_callback(lambda done: self._forget(number, done))

    def _forget(self, number: int, task: Task) -> None:
        tasks = self._running[number]
        tasks.discard(task)
        if not tasks:
            del self._running[number]

    async def _finish(self, number: int, begun: BegunErasure) -> None:
        try:
            async with self._places:
                finishing = finish_erasing(begun, self._operators.signer(), self._operators.beside())
                await self._runner.arun(finishing)
        except Exception as error:  # noqa: BLE001  # the outermost edge of a task's work
            self._note(number, error)

    def _note(self, number: int, error: Exception) -> None:
        reason = type(error).__name__
        logger.error(
            "an erasure failed", extra={"action": "erasure_failed", "number": number, "reason": reason}
        )
        self._reasons[number] = reason
        while len(self._reasons) > MAX_REASONS:
            del self._reasons[next(iter(self._reasons))]
