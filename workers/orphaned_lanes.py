"""Taking over: lanes that no hint will bring in time are drained on separate threads.

Hints of lanes that a dead worker held would wait behind all others in the queue; under a backlog, work that
was already begun would lie too long.  This needs no broker, so a worker whose broker is away drains due work
in the same way (``without_broker``).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from strandline.pipelines.engine.failures import raised_at
from strandline.schemas.values.lanes import Lane

logger = logging.getLogger("strandline.workers")

# In addition to the worker's own threads, and only during take-overs.
MAX_THREADS = 32


class TakeOver:
    """Drains given lanes, at most ``most_threads`` at once; a lane taken elsewhere costs a statement."""

    def __init__(self, drain: Callable[[Lane], None], most_threads: int = MAX_THREADS) -> None:
        self._drain = drain
        self._most_threads = most_threads
        self._lock = threading.Lock()
        self._known: set[Lane] = set()
        self._waiting: deque[Lane] = deque()
        self._threads = 0
        self._stopped = False

    def __call__(self, lanes: Sequence[Lane]) -> None:
        """Begin with these lanes; returns at once.  Lanes that are known already are skipped."""
        with self._lock:
            if self._stopped:
                return
            new = [lane for lane in lanes if lane not in self._known]
            self._known.update(new)
            self._waiting.extend(new)
            more = min(len(self._waiting), self._most_threads - self._threads)
            self._threads += more
        for count in range(more, 0, -1):
            try:
                threading.Thread(target=self._run, name="strandline-take-over", daemon=True).start()
            except RuntimeError as error:  # the system gives no more; the next call tries again
                with self._lock:
                    self._threads -= count
                _log_broke(error)
                return

    def stop(self) -> None:
        """Begin no more lanes; the engine ends those being drained."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()

    def _run(self) -> None:
        while (lane := self._next()) is not None:
            try:
                self._drain(lane)
            except BaseException as error:  # noqa: BLE001  # the edge of this thread, which goes on
                _log_broke(error)
            finally:
                with self._lock:
                    self._known.discard(lane)

    def _next(self) -> Lane | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None


def _log_broke(error: BaseException) -> None:
    logger.error(
        "take-over broke",
        extra={"action": "take_over_broke", "error": type(error).__name__, "at": raised_at(error)},
    )
