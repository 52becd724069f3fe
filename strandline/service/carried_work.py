"""Long work that requests began and this process continues, by its number in Postgres."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any

from strandline.administration.replays import run_replay
from strandline.pipelines.upkeep.erasure.receipt import Signer
from strandline.pipelines.upkeep.erasure.steps import ErasureOrder
from strandline.producers.erasing.beside import Beside
from strandline.producers.erasing.erase import BegunErasure, begin_erasing, finish_erasing
from strandline.producers.execution import OperationRunner
from strandline.retention import provide_input
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.service.gate.deadlines import in_own_thread
from strandline.service.gate.limits import Asker
from strandline.service.gate.turns import endless_queue
from strandline.wiring.archives import open_archive

logger = logging.getLogger("strandline.service")

# Of work that failed here, the reason of so many is kept.
MAX_REASONS = 100

Task = asyncio.Task[None]


class CarriedWork:
    """This process's long work of one kind, for one event loop."""

    def __init__(self, message: str, action: str) -> None:
        """``message`` and ``action`` stand in the log where some of it fails."""
        self._message = message
        self._action = action
        self._running: dict[int, set[Task]] = {}
        self._reasons: dict[int, str] = {}

    def is_running(self, number: int) -> bool:
        """Whether this process carries it on."""
        return number in self._running

    def reason(self, number: int) -> str | None:
        """The kind of error that ended it here."""
        return self._reasons.get(number)

    async def wait(self, number: int, seconds: float) -> None:
        """Wait until nothing of it runs here, for so many seconds at most."""
        if self.is_running(number):
            await asyncio.wait(self._running[number], timeout=seconds)

    def begin_work(self, number: int, work: Coroutine[Any, Any, None]) -> Task:
        """Begin work in the background; returns at once.  Several tasks may share the work."""
        self._reasons.pop(number, None)
        task = asyncio.create_task(self._carry_on(number, work))
        self._running.setdefault(number, set()).add(task)
        task.add_done_callback(lambda done: self._forget(number, done))
        return task

    async def end_all(self) -> None:
        """Wait until all work here has ended."""
        running = [task for tasks in self._running.values() for task in tasks]
        await asyncio.gather(*running, return_exceptions=True)

    def _forget(self, number: int, task: Task) -> None:
        tasks = self._running[number]
        tasks.discard(task)
        if not tasks:
            del self._running[number]

    async def _carry_on(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  # the outermost edge of a task's work
            self._note(number, error)

    def _note(self, number: int, error: Exception) -> None:
        reason = type(error).__name__
        logger.error(self._message, extra={"action": self._action, "number": number, "reason": reason})
        self._reasons[number] = reason
        while len(self._reasons) > MAX_REASONS:
            del self._reasons[next(iter(self._reasons))]


# Each deletes a page at a time on a connection of the pool.  Tenants, and there owners, take turns:
# a thousand of one delay another's by one.
AT_ONCE = 2


class CarriedErasures(CarriedWork):
    """The erasures of this process, for one event loop."""

    def __init__(self, runner: OperationRunner, signer: Signer | None) -> None:
        super().__init__("an erasure failed", "erasure_failed")
        self._runner = runner
        self._signer = signer
        self._places = endless_queue(AT_ONCE, per_namespace=AT_ONCE)

    async def begin(self, order: ErasureOrder) -> int:
        """Set the fence, and begin to carry the rest on; returns the number of the erasure.

        Raises:
            NotFoundError: there is no such session.
        """
        begun = await self._runner.arun(begin_erasing(order), None, f"erase_{order.target.kind}")
        number = begun.fenced.number
        # One that runs here needs no second; but it may have been given fewer items.
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
        target = begun.order.target
        async with self._places.turn(Asker(target.namespace, str(target.owner_key))):
            finishing = finish_erasing(begun, self._signer, Beside(open_archive=open_archive))
            await self._runner.arun(finishing)


class CarriedReplays(CarriedWork):
    """The replays of this process, for one event loop."""

    def __init__(self, settings: Settings) -> None:
        super().__init__("a replay failed", "replay_failed")
        self._settings = settings
        self._stops: dict[int, threading.Event] = {}

    def carry_on(self, database: Database, replay_id: int) -> None:
        """Begin to carry a replay on; returns at once."""
        stop = self._stops[replay_id] = threading.Event()
        work = in_own_thread(
            lambda: run_replay(database, self._settings, replay_id, stop, provide_input=provide_input)
        )
        task = self.begin_work(replay_id, work)
        task.add_done_callback(lambda _done: self._drop(replay_id, stop))

    def stop(self, replay_id: int) -> None:
        """Have a replay stop after its present step, if it runs here."""
        if stop := self._stops.get(replay_id):
            stop.set()

    async def close(self) -> None:
        """Stop all, and wait until each has recorded how far it is."""
        for stop in self._stops.values():
            stop.set()
        await self.end_all()

    def _drop(self, replay_id: int, stop: threading.Event) -> None:
        """Forget how to stop a task; a newer one has its own."""
        if self._stops.get(replay_id) is stop:
            del self._stops[replay_id]
