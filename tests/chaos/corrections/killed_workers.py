"""Worker processes that are killed: at a stop point, or whenever it happens to be."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

from strandline.pipelines.engine.engine import StopPoint
from tests.support.workers.worker_processes import WorkerProcess, launch_worker

LOOK_SECONDS = 0.05
# Beside the stop points, of which each worker reaches one within its first batch.
SOMETIME = ("sometime",) * 12


@dataclass(frozen=True, slots=True)
class Doomed:
    """A worker; it dies at the stop point ``fate``, or "sometime": after so many corrections in all."""

    worker: WorkerProcess
    fate: str
    dies_at: int


class KilledWorkers:
    """Keeps so many workers alive; each that dies is followed by another, with a fate of its own.

    ``progress`` tells how many corrections there were, so that kills come with them and not with a clock.
    """

    def __init__(
        self,
        url: str,
        broker_url: str,
        environment: Mapping[str, str],
        *,
        workers: int,
        chance: random.Random,
        progress: Callable[[], int],
        corrections_per_kill: int,
    ) -> None:
        self.kills: Counter[str] = Counter()
        self.deaths: list[str] = []
        self._url, self._broker_url = url, broker_url
        self._environment = environment
        self._chance = chance
        self._progress = progress
        self._every = corrections_per_kill
        self._over = threading.Event()
        self._workers: list[Doomed] = []
        self._count = workers
        self._thread = threading.Thread(target=self._keep, name="kills")

    def start(self) -> None:
        for _ in range(self._count):
            self._add(self._fate())
        self._thread.start()

    def end_kills(self) -> None:
        """From now on all live; those that were to die at a stop point are killed, and followed by others."""
        self._over.set()
        self._thread.join()
        for doomed in list(self._workers):
            if doomed.fate != "sometime" or doomed.worker.process.poll() is not None:
                self._replace(doomed, "sometime")

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        for doomed in self._workers:
            doomed.worker.end()

    def _fate(self) -> str:
        fates: list[str] = [*SOMETIME, "applying", *get_args(StopPoint)]
        return self._chance.choice(fates)

    def _add(self, fate: str) -> None:
        dies_at = self._progress() + self._chance.randint(1, 2 * self._every)
        self._workers.append(Doomed(self._start(fate), fate, dies_at))

    def _start(self, fate: str) -> WorkerProcess:
        environment = dict(self._environment)
        if fate != "sometime":
            environment["STRANDLINE_STOP_AT"] = f"{fate}:SIGKILL"
        return launch_worker(self._url, self._broker_url, **environment)

    def _replace(self, doomed: Doomed, fate: str) -> None:
        self._workers.remove(doomed)
        doomed.worker.end()
        if doomed.worker.process.returncode == -signal.SIGKILL:
            self.kills[doomed.fate] += 1
        else:
            returncode, output = doomed.worker.process.returncode, doomed.worker.output[-5:]
            self.deaths.append(f"a worker ended with {returncode}: {output}")
        self._add(fate)

    def _keep(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            for doomed in list(self._workers):
                is_over = doomed.fate == "sometime" and self._progress() >= doomed.dies_at
                if is_over or doomed.worker.process.poll() is not None:
                    self._replace(doomed, self._fate())
