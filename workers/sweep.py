"""The sweep: finds work that no worker picked up, so that no lost hint, dead worker or dead producer matters.

Every worker sweeps, unless it was started with ``--no-sweep``, so there is no central process whose death
would stop it.  Due work is claimed with SKIP LOCKED and put off with a growing wait; sessions are found
through the watch table and flushed by compare-and-set, so that two sweeps that find the same one do no harm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from uuid import UUID

from strandline.pipelines.engine.dead_letters import retry_ripe_letters
from strandline.pipelines.flush.flush import Flushed, deliver_idle, flush_over_mark, read_window
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.application.items import ForgetExpiredItems
from strandline.schemas.queries.application.service import ForgetKeptResponses
from strandline.schemas.queries.conversation.flush import EndWatch, PutOffWatch, RipeWatches, WatchAgain
from strandline.schemas.queries.work.lanes import BringRingsForward, OrphanedLanes, RingDue
from strandline.schemas.queries.work.workers import ForgetDeadWorkers
from strandline.schemas.values.identity import SessionKeys
from strandline.schemas.values.lanes import Lane, Ring

logger = logging.getLogger("strandline.sweep")

# A session whose flush the database refuses is looked at again after so long.
AFTER_FAILURE_SECONDS = 60.0

# How often a busy worker notifies.  Due work then mostly waits in the queue already, but a lost hint must not
# wait for the end of a backlog.
BUSY_RING_SECONDS = 8.0

# An idle delivery that loses the race looks again; each loss means that another caller flushed.
MAX_IDLE_ATTEMPTS = 10


class _WatchKeys(SessionKeys):
    watch_id: UUID


def _session_of(watch: _WatchKeys) -> SessionKeys:
    return {"shard_key": watch["shard_key"], "session_key": watch["session_key"]}


# Longer than any wait between two rings of a sweep for the same lane.
IN_VAIN_SECONDS = 12.0


class LostRings:
    """The lanes that were rung for a moment ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rung_at: dict[Lane, float] = {}

    def split(self, lanes: Sequence[Lane]) -> tuple[list[Lane], list[Lane]]:
        """The lanes to notify now, and the lanes notified in vain."""
        now = self._clock()
        while self._rung_at and now - next(iter(self._rung_at.values())) > IN_VAIN_SECONDS:
            del self._rung_at[next(iter(self._rung_at))]
        in_vain = [lane for lane in lanes if self._rung_at.pop(lane, None) is not None]
        new = [lane for lane in lanes if lane not in in_vain]
        self._rung_at |= dict.fromkeys(new, now)
        return new, in_vain


class Sweep:
    """One worker's sweep.

    Args:
        ring: called with the lanes that have work and no holder.
        take_over: called with the lanes with work whose holder died or kept them too long.
        stages: the stages whose work is rung for.
        batch_size: rows looked at per tick and kind; of due work, per stage.
        dead_after_seconds: seconds without a heartbeat after which a worker counts as dead.
        is_busy: says whether few threads of this worker are free; default: never busy.
    """

    def __init__(
        self,
        database: Database,
        *,
        ring: Ring,
        take_over: Callable[[Sequence[Lane]], None],
        stages: Sequence[str],
        batch_size: int,
        dead_after_seconds: float,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._database = database
        self._ring = ring
        self._take_over = take_over
        self._stages = list(stages)
        self._batch_size = batch_size
        self._dead_after_seconds = dead_after_seconds
        self._is_busy = is_busy
        self._rung_at = -BUSY_RING_SECONDS

    def tick(self) -> None:
        """Check once: due work, sessions to flush, dead workers, and expiring data."""
        self._take_over_orphaned()
        self._database.fetch(BringRingsForward(stages=self._stages, limit=self._batch_size))
        self._ring_due()
        self._ring(retry_ripe_letters(self._database, self._stages, self._batch_size))
        self._flush_watched()
        self._database.fetch(ForgetDeadWorkers())
        self._database.fetch(ForgetExpiredItems(limit=self._batch_size))
        self._database.fetch(ForgetKeptResponses(limit=self._batch_size))

    def _take_over_orphaned(self) -> None:
        orphaned = OrphanedLanes(
            stages=self._stages,
            dead_after_seconds=self._dead_after_seconds,
            limit=self._batch_size,
        )
        self._take_over([Lane(*row) for row in self._database.fetch(orphaned)])

    def _ring_due(self) -> None:
        """Ring for due work; each stage has its own share, so that no stage's backlog blocks another's.

        A busy worker rings rarely: it would only lengthen a queue that is already long, and idle workers ring
        for the same lanes.
        """
        if self._is_busy() and time.monotonic() - self._rung_at < BUSY_RING_SECONDS:
            return
        self._rung_at = time.monotonic()
        for stage in self._stages:
            rows = self._database.fetch(RingDue(stage=stage, limit=self._batch_size))
            self._ring([Lane(*row) for row in rows])

    def _flush_watched(self) -> None:
        for row in self._database.fetch(RipeWatches(limit=self._batch_size)):
            watch = _WatchKeys(shard_key=row.shard_key, session_key=row.session_key, watch_id=row.watch_id)
            look = _look_at_overdue if row.cause == "overdue" else _look_at_idle
            self._look(look(watch), watch)

    def _look(self, looking: Operation[Flushed | None], watch: _WatchKeys) -> None:
        """Flush one session if it is time; a session that cannot be flushed must not hold up the others."""
        try:
            flushed = self._database.run(looking)
        except StrandlineError as error:
            logger.error(
                "session cannot be flushed",
                extra={
                    "action": "sweep_failed",
                    "error": type(error).__name__,
                    "session_key": str(watch["session_key"]),
                },
            )
            # With Postgres away this fails as well, and ends the tick.
            self._database.fetch(PutOffWatch(**watch, wait_seconds=AFTER_FAILURE_SECONDS))
            return
        if flushed is not None:
            self._ring(flushed.lanes)


def _look_at_overdue(watch: _WatchKeys) -> Operation[Flushed | None]:
    """Flush a session whose put crossed the mark a while ago, if its producer died before it could."""
    flushed = yield from flush_over_mark(_session_of(watch))
    yield from fetch(EndWatch(**watch))
    return flushed


def _look_at_idle(watch: _WatchKeys) -> Operation[Flushed | None]:
    flushed = None
    for _attempt in range(MAX_IDLE_ATTEMPTS):
        window = yield from read_window(_session_of(watch))
        if window is None or window.marks.idle_seconds is None:
            break
        remaining = window.marks.idle_seconds - window.marks.idle_for_seconds
        if remaining > 0 and not window.marks.watched:
            yield from fetch(WatchAgain(**watch, wait_seconds=remaining))
            return None
        if remaining > 0:
            break
        flushed = yield from deliver_idle(window)
        if flushed is not None:
            break
    yield from fetch(EndWatch(**watch))
    return flushed
