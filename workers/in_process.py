"""The in-process runner: threads of this process drain the lanes, without a broker.

For plain scripts, notebooks and tests of one process.  Hints come straight from the puts of the process,
and from its sweep for work that earlier runs left due.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable

from strandline.pipelines.engine.stage import Stages
from strandline.pipelines.upkeep.removal import OpenArchive
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import Lane
from strandline.workers.worker import Worker

THREADS = 4


class BackgroundRunner:
    """Drains lanes in daemon threads of this process until it is stopped."""

    def __init__(
        self,
        database: Database,
        stages: Stages,
        settings: Settings,
        open_archive: OpenArchive | None = None,
    ) -> None:
        self._hints: queue.SimpleQueue[Lane | None] = queue.SimpleQueue()
        self._names = frozenset(stages)
        self.worker = Worker(database, stages, settings, ring=self.ring, open_archive=open_archive)
        self._threads = [
            threading.Thread(target=self._run, name=f"strandline-lane-{number}", daemon=True)
            for number in range(THREADS)
        ]

    def start(self) -> None:
        """Begin to drain; raises as ``Worker.start`` does."""
        self.worker.start()
        for thread in self._threads:
            thread.start()

    def ring(self, lanes: Iterable[Lane]) -> None:
        """Take up lanes as soon as a thread is free; returns at once."""
        for lane in lanes:
            if lane.stage in self._names:
                self._hints.put(lane)

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Finish running work for at most ``timeout_seconds``; the rest stays due."""
        deadline = time.monotonic() + timeout_seconds
        pause = threading.Event()
        active = self.worker.engine.active
        while not (self._hints.empty() and not len(active)) and time.monotonic() < deadline:
            pause.wait(0.02)
        self.worker.begin_stopping()
        self.worker.await_idle(max(0.0, deadline - time.monotonic()))
        for _thread in self._threads:
            self._hints.put(None)
        self.worker.stop()

    def _run(self) -> None:
        while (lane := self._hints.get()) is not None:
            if not self.worker.is_stopping:
                self.worker.take_up(lane)
