"""The condition of a worker: status that it writes together with its heartbeat."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal

from strandline.schemas.broker.troubles import describe_trouble

logger = logging.getLogger("strandline.workers")

# Between two lines of the log about hints that were dropped: whoever sends them could send any number.
LOG_SECONDS = 60.0

# So many hints dropped within so many seconds come from elsewhere; a single one may name an erased lane.
MANY_DROPPED = 3
LATELY_SECONDS = 600.0

# A worker's uses of its broker; each can be refused while the other works.
BrokerUse = Literal["take", "ring"]


class Condition:
    """The condition of a worker as a whole; safe to share between its threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._dropped_hints = 0
        # When the last of them came, by the clock.
        self._dropped_at: deque[float] = deque(maxlen=MANY_DROPPED)
        self._no_broker: dict[BrokerUse, str] = {}
        # Seconds of the clock; None while the broker is there, or its loss was not logged.
        self._away_since: float | None = None
        self._logged_at = -LOG_SECONDS

    def drop_hint(self, reason: str) -> None:
        """Count a message that is not a hint for this installation; logged at most once a minute."""
        with self._lock:
            self._dropped_hints += 1
            count, now = self._dropped_hints, self._clock()
            self._dropped_at.append(now)
            if now - self._logged_at < LOG_SECONDS:
                return
            self._logged_at = now
        logger.warning(
            "a message from the broker was dropped, because it is not a hint for this installation",
            extra={"action": "hint_dropped", "reason": reason, "dropped_in_all": count},
        )

    def lose_broker(self, use: BrokerUse, error: BaseException, *, is_logged: bool = True) -> None:
        """Note that the broker does not serve a use; ``error`` is the symptom.  One loss is one line."""
        name = type(error).__name__
        reason = describe_trouble(error) or name
        with self._lock:
            self._no_broker[use] = reason
            if self._away_since is not None or not is_logged:
                return
            self._away_since = self._clock()
        logger.warning("broker away", extra={"action": "broker_away", "error": name, "reason": reason})

    def find_broker(self, use: BrokerUse) -> None:
        """Note that the broker serves a use again."""
        with self._lock:
            self._no_broker.pop(use, None)
            if self._no_broker or self._away_since is None:
                return
            seconds = round(self._clock() - self._away_since, 1)
            self._away_since = None
        logger.warning("broker is back", extra={"action": "broker_back", "after_seconds": seconds})

    @property
    def has_broker(self) -> bool:
        """False from the loss of any use of the broker until all are served again."""
        return not self._no_broker

    @property
    def can_ring(self) -> bool:
        """Whether the broker is known to take hints."""
        return "ring" not in self._no_broker

    def as_json(self, reasons: Mapping[str, str], lost_threads: int) -> str:
        """The whole condition, for the worker's row.

        ``reasons``: why work waits, by ``generation/stage``; ``lost_threads``: threads whose call of a custom
        block's code has not returned.
        """
        with self._lock:
            condition = {"dropped_hints": self._dropped_hints, "reasons": dict(reasons)}
            condition |= {"lost_threads": lost_threads}
            if len(self._dropped_at) == MANY_DROPPED and self._clock() - self._dropped_at[0] < LATELY_SECONDS:
                condition["drops_hints"] = True
            if self._no_broker:
                condition["no_broker"] = "; ".join(dict.fromkeys(self._no_broker.values()))
            return json.dumps(condition, sort_keys=True)
