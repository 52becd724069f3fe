"""A worker: the engine with its heartbeat, upkeep and sweep, started and stopped together.

Celery workers and the in-process runner are thin drivers around it: they bring hints to ``take_up``.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from uuid import UUID, uuid4

from strandline.pipelines.engine.budgets import Budgets
from strandline.pipelines.engine.drain import Turn, drain, drain_next
from strandline.pipelines.engine.engine import Engine, Outcome, StopPoint, Watch
from strandline.pipelines.engine.failures import REFUSALS, RetryPolicy, level_of
from strandline.pipelines.engine.leases import LeaseTerms
from strandline.pipelines.engine.stage import Stages
from strandline.pipelines.own_code.bounded_calls import worker_calls
from strandline.pipelines.text.lexemes import forget_texts
from strandline.pipelines.upkeep.passes import tick
from strandline.pipelines.upkeep.removal import OpenArchive, Remover, StepPoint
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.work.lanes import FindLane, ReleaseUndrainedLanes, ShortenLeases
from strandline.schemas.queries.work.workers import Beat, Leave, TellCondition, TellUnbuildable
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import Lane, Ring
from strandline.schemas.version import VERSION
from strandline.workers.condition import Condition
from strandline.workers.orphaned_lanes import TakeOver
from strandline.workers.periodic import Periodic
from strandline.workers.replay_slots import ReplaySlots
from strandline.workers.sweep import Sweep
from strandline.workers.upkeep.resealing import INTERVAL_SECONDS as RESEAL_SECONDS
from strandline.workers.upkeep.resealing import Resealing
from strandline.workers.upkeep.sealing import Sealing

# Hints that wait for a provider; the sweep finds the others, less and less often.
MAX_PUT_OFF = 64
# Between two looks whether a hint that led to no work names a lane of this database.
LOOK_SECONDS = 1.0

FOREIGN = "it names a lane that this database does not have: another installation may use this broker"
logger = logging.getLogger("strandline.workers")
# A worker is busy when this share of its threads is at work: some are always free between tasks.
BUSY_SHARE = 0.75
# A worker that has lost more than this share of its threads to code of custom blocks is to be restarted.
LOST_SHARE = 0.25
# How often the audit trail is sealed, in seconds.
SEALING_SECONDS = 1.0
# Seconds that a leaving worker waits for its claims, its heartbeat and its replay look-ups, each some
# statements.
CLAIM_SECONDS = 1.0


class ForeignHints:
    """Counts hints of other installations, as a sample, among a worker's dropped ones."""

    def __init__(self, database: Database, condition: Condition) -> None:
        self._database = database
        self._condition = condition
        self._looked_at = -LOOK_SECONDS

    def look(self, hint: Lane) -> None:
        """Look whether this database has the lane, at most once a second; never for doctor's own."""
        now = time.monotonic()
        if not hint.shard_key.int or now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        if not self._database.fetch(FindLane(**hint.keys)):
            self._condition.drop_hint(FOREIGN)


def follow(first: Turn, drain: Callable[[Lane], Turn], ring: Ring, stopping: Callable[[], bool]) -> None:
    """Drain the lanes that a turn gave work to, and so on.

    Args:
        first: the turn that was taken.
        ring: called with the lanes that are left to others: all waiting lanes once ``stopping``, lanes whose
            generation is not served here, and the rest if ``drain`` raises.
    """
    waiting = dict.fromkeys(first.next_lanes)
    unserved: list[Lane] = []
    try:
        while waiting and not stopping():
            lane = next(iter(waiting))
            turn = drain(lane)
            del waiting[lane]
            if turn.outcome == "unserved":
                unserved.append(lane)
            waiting |= dict.fromkeys(turn.next_lanes)
    finally:
        if left := [*unserved, *waiting]:
            ring(left)


class Worker:
    """Drains lanes for this process.

    Args:
        stages: the stages that this process serves.
        ring: passes hints on to the workers that serve their stages.
        ring_found: the same for lanes that the sweep found; default: ``ring``.
        with_sweep: False leaves sweeping, and retention, to other workers.
        open_archive: opens the archives that retention names; None leaves retention to other workers.
        watch: counts the work for metrics.
    """

    def __init__(
        self,
        database: Database,
        stages: Stages,
        settings: Settings,
        *,
        ring: Ring,
        ring_found: Ring | None = None,
        with_sweep: bool = True,
        reach: Callable[[StopPoint], None] = lambda _point: None,
        open_archive: OpenArchive | None = None,
        reach_step: Callable[[StepPoint], None] = lambda _point: None,
        watch: Watch | None = None,
    ) -> None:
        self.worker_id: UUID = uuid4()
        self._database = database
        self._stages = stages
        self._unbuildable: list[int] = []
        self.condition = Condition()
        self._concurrency = settings.worker_concurrency
        # Called about once a second while it is so; a process that can be restarted sets it.
        self.on_threads_lost: Callable[[int], None] = lambda _count: None
        self._reported = self.condition.as_json({}, 0)
        self._dead_after_seconds = settings.worker_dead_after_seconds
        self._ring = ring
        self._stopping = threading.Event()
        self._budgets = Budgets(database, self.worker_id)
        self.engine = Engine(
            database=database,
            stages=stages,
            worker_id=self.worker_id,
            terms=LeaseTerms(settings.worker_dead_after_seconds, settings.lease_deadline_seconds),
            retry=RetryPolicy(
                base_seconds=settings.retry_base_seconds,
                max_seconds=settings.retry_max_seconds,
                max_failures=settings.max_failures,
                max_crashes=settings.max_crashes,
                letter_retries=settings.dead_letter_retries,
            ),
            batch_token_budget=settings.batch_token_budget,
            ring=ring,
            ring_later=ring,
            stopping=self._stopping.is_set,
            reach=reach,
            watch=watch or Watch(),
            prices=settings.model_prices,
            budgets=self._budgets,
        )
        self._replaying = ReplaySlots(self.engine, settings)
        self._heartbeat = Periodic("heartbeat", settings.heartbeat_interval_seconds, self._beat)
        self._upkeep = Periodic("upkeep", settings.heartbeat_interval_seconds, self._keep_up)
        self._take_over = TakeOver(self.take_over)
        self._put_off: dict[Lane, None] = {}
        self._foreign_hints = ForeignHints(database, self.condition)
        self._sweep = Sweep(
            database,
            ring=ring_found or ring,
            take_over=self._take_over,
            stages=list(stages),
            batch_size=settings.sweep_batch_size,
            dead_after_seconds=settings.worker_dead_after_seconds,
            is_busy=self.is_busy,
        )
        self._sealing = Sealing(database, settings)
        self._with_sweep = with_sweep
        # Tasks that any worker does for all of them, with the seconds to wait for their end.
        self._shared_work: list[tuple[Periodic, float]] = []
        if not with_sweep:
            return
        ending = self._stopping.is_set
        self._shared_work.append((Periodic("sweep", settings.sweep_interval_seconds, self._sweep.tick), 5.0))
        if settings.has_keyring:
            resealing = Resealing(database, cache_seconds=settings.key_cache_seconds, is_stopping=ending)
            self._shared_work.append((Periodic("resealing", RESEAL_SECONDS, resealing.tick), 5.0))
        if open_archive is not None:
            retaining = make_retaining(
                database, settings, open_archive, ring=ring, is_ending=ending, reach=reach_step
            )
            self._shared_work.append((retaining, CLAIM_SECONDS))
        self._shared_work.append((Periodic("sealing", SEALING_SECONDS, self._sealing.tick), 5.0))

    def start(self) -> None:
        """Register this worker, then start its heartbeat and its sweep.

        Raises:
            StrandlineError: Postgres cannot be reached, or its tables are missing.
        """
        self._beat()
        self._heartbeat.start()
        self._upkeep.start()
        for periodic, _seconds in self._shared_work:
            periodic.start()
        self._replaying.start()

    def drain(self, lane: Lane) -> Outcome:
        """Drain one lane, and the lanes that it gave work to: for callers who choose the lane."""
        return self._drain(partial(drain, self.engine, lane), gives_way=False).outcome

    def take_up(self, hint: Lane) -> None:
        """Drain the lane whose turn it is, after a hint.

        If that was not the lane that the hint names, drain one more: the drained lane may never have been
        rung for, and then the hint's own lane would wait for the sweep.  A busy worker has other hints for
        that.
        """
        with self._log_failures():
            turn = self._drain_next(hint)
            if turn.lane is None and turn.outcome == "postponed" and len(self._put_off) < MAX_PUT_OFF:
                self._put_off[hint] = None
            if turn.lane == hint:
                return
            self._foreign_hints.look(hint)
            if turn.lane is not None and not self.is_stopping and not self.is_busy():
                self._drain_next(hint)

    def is_busy(self, share: float = BUSY_SHARE) -> bool:
        """Whether this share of the threads is at work."""
        return len(self.engine.active) >= share * self._concurrency

    def take_over(self, lane: Lane) -> None:
        """Drain a lane that its holder did not release."""
        with self._log_failures():
            self._drain(partial(drain, self.engine, lane, gives_way=True), gives_way=True)

    def _drain_next(self, hint: Lane) -> Turn:
        return self._drain(partial(drain_next, self.engine, hint), gives_way=True)

    def _drain(self, begin: Callable[[], Turn], *, gives_way: bool) -> Turn:
        turn = begin()
        follow(turn, partial(drain, self.engine, gives_way=gives_way), self._ring, self._stopping.is_set)
        forget_texts()
        return turn

    @contextmanager
    def _log_failures(self) -> Iterator[None]:
        """Log a failure: the work is still due, and is notified again."""
        try:
            yield
            REFUSALS.settle(self, "drain")
        except StrandlineError as error:
            REFUSALS.note(self, "drain", error)
            level = level_of(error, ending=self.is_stopping)
            logger.log(level, "drain failed", extra={"action": "drain_failed", "reason": str(error)})

    def begin_stopping(self) -> None:
        """Release lanes after the current batch, and take up no more hints."""
        self._stopping.set()
        self._replaying.stop()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def await_idle(self, timeout_seconds: float = math.inf) -> bool:
        """Wait until no lane is being drained here; False if the time ran out."""
        deadline = time.monotonic() + timeout_seconds
        pause = threading.Event()
        while len(self.engine.active) and time.monotonic() < deadline:
            pause.wait(0.02)
        return not len(self.engine.active)

    def stop(self) -> None:
        """End sweep and heartbeat, and leave."""
        self.begin_stopping()
        for periodic, seconds in self._shared_work:
            periodic.stop(seconds)
        if self._with_sweep:
            self._sealing.close()
        self._take_over.stop()
        self._replaying.await_end(CLAIM_SECONDS)
        self.leave()

    def leave(self) -> list[Lane]:
        """End heartbeat and upkeep, delete the worker's row, and release the lanes that it still holds.

        Other workers take these up at once, since they are rung for; threads that still drain here can no
        longer write.  Returns the lanes; none if Postgres is away: then the heartbeat expires by itself.
        """
        self._upkeep.stop(timeout_seconds=0.0)
        self._heartbeat.stop(CLAIM_SECONDS)
        self.engine.active.close(CLAIM_SECONDS)
        lanes: list[Lane] = []
        with suppress(StrandlineError):
            lanes = [Lane(*row) for row in self._database.fetch(Leave(worker_id=self.worker_id))]
            self._ring(lanes)
        # After the lanes, which others wait for.
        with suppress(StrandlineError):
            self._budgets.return_slices(everything=True)
        return lanes

    def _beat(self) -> None:
        """Write the heartbeat and nothing else; other writes may wait for locks (``_keep_up``)."""
        # One connection that was cut without a word must not make the whole worker seem dead.
        self._database.fetch_within(
            self._dead_after_seconds / 3,
            Beat(
                worker_id=self.worker_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                version=VERSION,
                stages=list(self._stages),
            ),
        )

    def _keep_up(self) -> None:
        """Write changes of this worker's condition, and release lanes that it holds only in the table.

        This is separate from the heartbeat: any of it may wait, for a lock or an answer, longer than a worker
        may be silent.
        """
        failures: list[StrandlineError] = []
        for work in (
            self._ring_again,
            self._release_undrained_lanes,
            self._shorten_leases,
            self._tell_unbuildable,
            self._tell_condition,
            self._budgets.return_slices,
        ):
            try:
                work()
            except StrandlineError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _ring_again(self) -> None:
        """Ring for hints put off, once their provider may be asked again."""
        stages = {hint: self._stages.of(hint.generation_id, hint.stage) for hint in list(self._put_off)}
        hints = [hint for hint, stage in stages.items() if stage is None or stage.wait_seconds() <= 0]
        for hint in hints:
            del self._put_off[hint]
        self._ring(hints)

    def _release_undrained_lanes(self) -> None:
        """Release lanes whose release was lost: no other worker would take them over while this one lives."""
        self._database.fetch(ReleaseUndrainedLanes(worker_id=self.worker_id, **self.engine.active.params()))

    def _shorten_leases(self) -> None:
        deadline = self.engine.terms.deadline_seconds
        self._database.fetch(ShortenLeases(worker_id=self.worker_id, deadline_seconds=deadline))

    def _tell_unbuildable(self) -> None:
        unbuildable = self.engine.stages.unbuildable()
        if unbuildable != self._unbuildable:
            self._database.fetch(TellUnbuildable(worker_id=self.worker_id, generation_ids=unbuildable))
            self._unbuildable = unbuildable

    def _tell_condition(self) -> None:
        lost = worker_calls.late
        if lost > LOST_SHARE * self._concurrency:
            self.on_threads_lost(lost)
        condition = self.condition.as_json(self.engine.troubles.current(), lost)
        if condition != self._reported:
            self._database.fetch(TellCondition(worker_id=self.worker_id, condition=condition))
            self._reported = condition


def make_retaining(
    database: Database,
    settings: Settings,
    open_archive: OpenArchive,
    *,
    ring: Ring,
    is_ending: Callable[[], bool],
    reach: Callable[[StepPoint], None] = lambda _point: None,
) -> Periodic:
    """The thread that takes turns at retention, not yet started; without any act a turn is one question."""
    remover = Remover(database, open_archive, ring=ring, reach=reach)

    def take_turn() -> None:
        done = tick(database, remover, interval_seconds=settings.retention_pass_seconds, is_ending=is_ending)
        if done.removed or done.failed:
            extra = {"action": "retained", **asdict(done)}
            logging.getLogger("strandline.retention").info("retention took a turn", extra=extra)

    return Periodic("retention", settings.retention_interval_seconds, take_turn)
