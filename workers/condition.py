"""The condition of a worker: status that it writes together with its heartbeat."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping

logger = logging.getLogger("strandline.workers")

# Between two lines of the log about hints that were dropped: whoever sends them could send any number.
LOG_SECONDS = 60.0


class Condition:
    """The condition of a worker as a whole; safe to share between its threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._dropped_hints = 0
        self._no_broker: str | None = None
        self._logged_at = -LOG_SECONDS

    def drop_hint(self, reason: str) -> None:
        """Count a message from the broker that is not a hint; logged at most once a minute."""
        with self._lock:
            self._dropped_hints += 1
            count, now = self._dropped_hints, self._clock()
            if now - self._logged_at < LOG_SECONDS:
                return
            self._logged_at = now
        logger.warning(
            "a message from the broker was dropped, because it is not a readable hint",
            extra={"action": "hint_dropped", "reason": reason, "dropped_in_all": count},
        )

    def lose_broker(self, error: str) -> None:
        """Note that the broker cannot be reached; ``error`` names the symptom."""
        with self._lock:
            self._no_broker = error

    def find_broker(self) -> None:
        """Note that the broker is reached again."""
        with self._lock:
            self._no_broker = None

    @property
    def has_broker(self) -> bool:
        """False from the loss of the broker until its return."""
        return self._no_broker is None

    def as_json(self, reasons: Mapping[str, str], lost_threads: int) -> str:
        """The whole condition, for the worker's row.

        ``reasons``: why work waits, by ``generation/stage``; ``lost_threads``: threads whose call of a custom
        block's code has not returned.
        """
        with self._lock:
            condition = {"dropped_hints": self._dropped_hints, "reasons": dict(reasons)}
            condition |= {"lost_threads": lost_threads}
            if self._no_broker is not None:
                condition["no_broker"] = self._no_broker
            return json.dumps(condition, sort_keys=True)
