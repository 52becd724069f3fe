"""Erasures that requests began, carried on by this process behind their fences.

A request answers once the fence stands: from then on nothing is written for the user.  Postgres records how
far the rest is; an erasure whose process ended goes on when a client asks for it again.
"""

from __future__ import annotations

import asyncio

from strandline.pipelines.upkeep.erasure.steps import ErasureOrder
from strandline.producers.erasing.erase import BegunErasure, begin_erasing, finish_erasing
from strandline.producers.execution import OperationRunner
from strandline.producers.service.operators import Operators
from strandline.producers.service.upkeep.carried_work import CarriedWork

# Each deletes a page at a time on a connection of the pool.
AT_ONCE = 2


class CarriedErasures(CarriedWork):
    """The erasures that this process carries on; for one event loop."""

    def __init__(self, runner: OperationRunner, operators: Operators) -> None:
        super().__init__("an erasure failed", "erasure_failed")
        self._runner = runner
        self._operators = operators
        self._places = asyncio.Semaphore(AT_ONCE)

    async def begin(self, order: ErasureOrder) -> int:
        """Set the fence, and begin to carry the rest on; returns the number of the erasure.

        Raises:
            NotFoundError: there is no such session.
        """
        begun = await self._runner.arun(begin_erasing(order))
        number = begun.fenced.number
        # One that runs here has no need of a second; but it may have been given fewer items.
        if not begun.fenced.is_done and (order.items or not self.is_running(number)):
            self.begin_work(number, self._finish(begun))
        return number

    async def close(self) -> None:
        """End all, each between two of its transactions or within one, which is rolled back."""
        for tasks in list(self._running.values()):
            for task in tasks:
                task.cancel()
        await self.end_all()

    async def _finish(self, begun: BegunErasure) -> None:
        async with self._places:
            finishing = finish_erasing(begun, self._operators.signer(), self._operators.beside())
            await self._runner.arun(finishing)
