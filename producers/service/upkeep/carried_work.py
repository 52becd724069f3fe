"""Long work that requests began, and this process carries on after them, by its number in Postgres."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger("strandline.service")

# Of work that failed here, the reason of so many is kept.
MAX_REASONS = 100

Task = asyncio.Task[None]


class CarriedWork:
    """What this process carries on, of one kind; for one event loop."""

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
        """Begin to carry something on; returns at once.  Several tasks may carry on the same."""
        self._reasons.pop(number, None)
        task = asyncio.create_task(self._carry_on(number, work))
        self._running.setdefault(number, set()).add(task)
        task.add_done_callback(lambda done: self._forget(number, done))
        return task

    async def end_all(self) -> None:
        """Wait until nothing runs here any more."""
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
