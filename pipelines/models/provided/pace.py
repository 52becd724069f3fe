"""The pace at which a provider takes calls: learned from its refusals, where it does not say it.

Each process learns by itself until a provider refuses a call.  From then on all refused workers keep one
pace, in a row of Postgres, until the limit is forgotten.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from strandline.pipelines.engine.stage import database_of_call
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.work.limits import KeepPace, LockPace

# Fewer calls than these before a refusal tell no pace.
_MIN_CALLS = 3
# So many windows without a refusal, and the limit is forgotten.
_WINDOWS_KEPT = 10
# So long a worker may have waited for the pace; what lies further ahead is of a clock that has stepped back.
_MAX_LOCK_SECONDS = 10.0
# A provider may count from when a call arrived, which takes a while.
_LATENESS = 1.02

# After a rest so many calls begin at once; each answer lets two more begin, and each tenth of a second one.
_FIRST_CALLS = 3
_MAX_ROOM = 64
_REST_SECONDS = 10.0
_STEP_SECONDS = 0.1
_MAX_DELAY_SECONDS = 2.0


@dataclass(slots=True)
class Pace:
    """How many calls a provider takes within a window of time; not safe to share without a lock.

    A refusal tells that there were too many; those before it that were not refused are as many as it takes.
    After each window without a refusal one more is tried, or a tenth more.  Times are on one clock, in order.
    """

    window_seconds: float
    calls: list[float] = field(default_factory=list)
    refusals: list[float] = field(default_factory=list)
    limit: int | None = None
    raised_at: float = 0.0
    refused_at: float = 0.0

    def wait_seconds(self, now: float) -> float:
        """Seconds until a call may be made; 0 if it may be now."""
        self._forget(now)
        if self.limit is None or self.limit < _MIN_CALLS or len(self.calls) < self.limit:
            return 0.0
        return self.calls[len(self.calls) - self.limit] + self.window_seconds * _LATENESS - now

    def take(self, now: float) -> float:
        """Count a call; or the seconds until one may be made, and nothing is counted."""
        wait = self.wait_seconds(now)
        if wait <= 0:
            self.calls.append(now)
        return wait

    def note_refusal(self, now: float) -> None:
        """The provider refused a call because there were too many."""
        self._forget(now)
        self.refusals.append(now)
        self.limit = max(1, len(self.calls) - len(self.refusals))
        self.raised_at = self.refused_at = now

    def _forget(self, now: float) -> None:
        """Forget past entries, and future ones: the clock has stepped back."""
        window = self.window_seconds * _LATENESS
        for times in (self.calls, self.refusals):
            del times[bisect_right(times, now) :], times[: bisect_right(times, now - window)]
        if self.limit is not None and abs(now - self.raised_at) > window:
            self.limit += max(1, self.limit // 10)
            self.raised_at = now
            if abs(now - self.refused_at) > _WINDOWS_KEPT * window:
                self.limit = None


class ProviderPace:
    """The pace of one server and key in this process, and among all workers that it has refused.

    Args:
        server: a digest of the server's address and key, by which workers know it; empty: each for itself.
        clock: of the calls of this process alone; those of all workers are on the clock of Postgres.
    """

    def __init__(
        self, window_seconds: float, server: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.admitting = threading.Lock()
        self._window = window_seconds
        self._server = server
        self._clock = clock
        self._lock = threading.Lock()
        self._own = Pace(window_seconds)
        self._is_shared = False
        self._room = float(_FIRST_CALLS)
        self._begun_at = float("-inf")

    def begin(self) -> float:
        """Seconds until a call may begin: so a limit is met by a few calls, and not by all."""
        with self._lock:
            now = self._clock()
            if now - self._begun_at > _REST_SECONDS:
                self._room = min(self._room, _FIRST_CALLS)
            self._begun_at = now
            self._room -= 1
            return min(_MAX_DELAY_SECONDS, max(0.0, -self._room) * _STEP_SECONDS)

    def end(self, *, is_answered: bool) -> None:
        """A call that had begun has ended."""
        with self._lock:
            self._room = min(_MAX_ROOM, self._room + 1 + is_answered)

    def take(self) -> float:
        """Count a call; or the seconds until one may be made, and nothing is counted.

        Raises:
            StrandlineError: the pace is kept in Postgres, which failed.
        """
        database = self._shared_by()
        if database is None or not self._is_shared:
            with self._lock:
                return self._own.take(self._clock())
        return self._change(database, lambda pace, now: pace.take(now))

    def note_refusal(self) -> float:
        """The server wants fewer calls; the seconds to wait, 0 if they are not known yet.

        Raises:
            StrandlineError: as for ``take``.
        """
        database = self._shared_by()
        with self._lock:
            now = self._clock()
            if database is None:
                self._own.note_refusal(now)
                return self._own.wait_seconds(now)
            ages = [now - at for at in self._own.calls]
            self._own = Pace(self._window)
            self._is_shared = True

        def refuse(pace: Pace, now: float) -> float:
            pace.calls = sorted([*pace.calls, *(now - age for age in ages)])
            pace.note_refusal(now)
            return pace.wait_seconds(now)

        return self._change(database, refuse)

    def _shared_by(self) -> Database | None:
        return database_of_call.get() if self._server else None

    def _change(self, database: Database, change: Callable[[Pace, float], float]) -> float:
        with database.transaction() as tx:
            (row,) = tx.fetch(LockPace(server=self._server))
            pace = Pace(self._window) if row.pace is None else Pace(**json.loads(row.pace))
            # Another worker's statement began later than this one's, which waited for the lock.
            late = max(pace.calls[-1:], default=row.now) - row.now
            wait = change(pace, row.now + late if 0 < late < _MAX_LOCK_SECONDS else row.now)
            tx.fetch(KeepPace(server=self._server, pace=json.dumps(asdict(pace))))
        self._is_shared = pace.limit is not None
        return wait
