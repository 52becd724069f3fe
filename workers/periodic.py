"""A thread that calls a function repeatedly, with jitter, until it is told to stop."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from strandline.pipelines.engine.failures import REFUSALS, level_of
from strandline.schemas.errors import StrandlineError
from strandline.schemas.values.acts.acting import WORKER, acting

logger = logging.getLogger("strandline.workers")


class Periodic:
    """Calls ``tick`` about every ``interval_seconds`` (±25 %) from a daemon thread; logs a failed one."""

    def __init__(self, name: str, interval_seconds: float, tick: Callable[[], None]) -> None:
        self._interval = interval_seconds
        self._tick = tick
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"strandline-{name}", daemon=True)
        self._name = name

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Ask the thread to end and wait for it, to at most ``timeout_seconds``."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        with acting(actor=WORKER):
            self._tick_until_stopped()

    def _tick_until_stopped(self) -> None:
        while not self._stop.wait(self._interval * random.uniform(0.75, 1.25)):  # noqa: S311
            try:
                self._tick()
                REFUSALS.settle(self, self._name)
            except StrandlineError as error:
                REFUSALS.note(self, self._name, error)
                logger.log(
                    level_of(error, ending=self._stop.is_set()),
                    "periodic work failed",
                    extra={"action": "periodic_failed", "work": self._name, "reason": str(error)},
                )
            except Exception:
                # The outermost edge of this thread: a defect must not end heartbeats or sweeps.
                logger.exception(
                    "periodic work broke", extra={"action": "periodic_broke", "work": self._name}
                )
