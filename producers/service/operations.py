"""Long work that a request began: replays, carried on by threads of this process.

How a replay stands is recorded in Postgres, so any process shows it; one whose process ended is stopped, and
can be resumed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass, field

from strandline.producers.service.gate.deadlines import in_own_thread
from strandline.producers.service.operators import Operators
from strandline.schemas.postgres.database import Database

logger = logging.getLogger("strandline.service")

# Of replays that failed here, the reason of so many is kept.
MAX_REASONS = 100


@dataclass(slots=True)
class _Running:
    task: asyncio.Task[None]
    stop: threading.Event = field(default_factory=threading.Event)


class Operations:
    """The replays that this process carries on; for one event loop."""

    def __init__(self, operators: Operators) -> None:
        self._operators = operators
        self._running: dict[int, _Running] = {}
        self._reasons: dict[int, str] = {}

    def is_running(self, replay_id: int) -> bool:
        return replay_id in self._running

    def reason(self, replay_id: int) -> str | None:
        """The kind of error that ended a replay here."""
        return self._reasons.get(replay_id)

    def carry_on(self, database: Database, replay_id: int) -> None:
        """Begin to carry a replay on; returns at once."""
        stop = threading.Event()
        self._reasons.pop(replay_id, None)
        task = asyncio.create_task(self._carry_on(database, replay_id, stop))
        self._running[replay_id] = _Running(task, stop)
        task.add_done_callback(lambda _done: self._running.pop(replay_id, None))

    def stop(self, replay_id: int) -> bool:
        """Have a replay stop after its present step; False if this process does not carry it on."""
        running = self._running.get(replay_id)
        if running is None:
            return False
        running.stop.set()
        return True

    async def close(self) -> None:
        """Stop all, and wait until each has recorded how far it is."""
        running = list(self._running.values())
        for one in running:
            one.stop.set()
        await asyncio.gather(*(one.task for one in running), return_exceptions=True)

    async def _carry_on(self, database: Database, replay_id: int, stop: threading.Event) -> None:
        try:
            await in_own_thread(lambda: self._operators.carry_on(database, replay_id, stop))
        except Exception as error:  # noqa: BLE001  # the outermost edge of a thread's work
            self._note(replay_id, error)

    def _note(self, replay_id: int, error: Exception) -> None:
        logger.error(
            "a replay failed",
            extra={"action": "replay_failed", "replay_id": replay_id, "reason": type(error).__name__},
        )
        self._reasons[replay_id] = type(error).__name__
        while len(self._reasons) > MAX_REASONS:
            del self._reasons[next(iter(self._reasons))]
