"""Replays that requests began, carried on by threads of this process.

How a replay stands is recorded in Postgres, so any process shows it, and any may ask for it to stop; one
whose process ended can be resumed.
"""

from __future__ import annotations

import threading

from strandline.producers.service.gate.deadlines import in_own_thread
from strandline.producers.service.operators import Operators
from strandline.producers.service.upkeep.carried_work import CarriedWork
from strandline.schemas.postgres.database import Database


class CarriedReplays(CarriedWork):
    """The replays that this process carries on; for one event loop."""

    def __init__(self, operators: Operators) -> None:
        super().__init__("a replay failed", "replay_failed")
        self._operators = operators
        self._stops: dict[int, threading.Event] = {}

    def carry_on(self, database: Database, replay_id: int) -> None:
        """Begin to carry a replay on; returns at once."""
        stop = self._stops[replay_id] = threading.Event()
        work = in_own_thread(lambda: self._operators.carry_on(database, replay_id, stop))
        task = self.begin_work(replay_id, work)
        task.add_done_callback(lambda _done: self._drop(replay_id, stop))

    def stop(self, replay_id: int) -> None:
        """Have a replay stop after its present step, if it is carried on here."""
        if stop := self._stops.get(replay_id):
            stop.set()

    async def close(self) -> None:
        """Stop all, and wait until each has recorded how far it is."""
        for stop in self._stops.values():
            stop.set()
        await self.end_all()

    def _drop(self, replay_id: int, stop: threading.Event) -> None:
        """Forget how to stop a task; one that was begun since has its own."""
        if self._stops.get(replay_id) is stop:
            del self._stops[replay_id]
