"""Troubles: why the work of a stage waits or fails, as far as this process knows; ``status`` shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from strandline.schemas.values.lanes import Lane

# A reason is noted again each time that a lane is put off.  When that has not happened for so long after its
# wait, it is forgotten: another process may have done the work.
KEPT_SECONDS = 60.0


class Troubles:
    """The last reason for which the work of a stage was put off; safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._noted: dict[str, tuple[str, float]] = {}

    def note(self, lane: Lane, reason: str, wait_seconds: float) -> None:
        """The lane waits; ``reason`` is a sentence without content."""
        with self._lock:
            self._noted[_key(lane)] = reason, self._clock() + wait_seconds + KEPT_SECONDS

    def settle(self, lane: Lane) -> None:
        """The provider of the lane's stage has answered."""
        with self._lock:
            self._noted.pop(_key(lane), None)

    def current(self) -> dict[str, str]:
        """The reasons by ``generation/stage``."""
        with self._lock:
            now = self._clock()
            self._noted = {key: noted for key, noted in self._noted.items() if noted[1] > now}
            return {key: reason for key, (reason, _until) in self._noted.items()}


def _key(lane: Lane) -> str:
    return f"{lane.generation_id}/{lane.stage}"
