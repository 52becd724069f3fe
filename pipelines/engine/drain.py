"""Draining a lane: claim, then batch after batch until nothing is due; the last one releases the lane.

Read top-down, this is a batch's whole life, by the stage's methods: ``load``, ``calls`` (each made, and its
answer stored, by ``answering``), ``effect``, ``share`` if it has one, ``write``.  No database connection is
held while a model is called or the effect computed; the answer is stored before it is applied, and the
stored one is applied; the effect, the receipts, the end of the batch and, with the last batch, of the lease
are one transaction under the lease's epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from strandline.pipelines.engine.answering import Answering
from strandline.pipelines.engine.batches import (
    ClaimedLane,
    claim,
    close,
    finish,
    lock_batch,
    may_split,
    renew,
    take_turn,
)
from strandline.pipelines.engine.dead_letters import make_dead_letter
from strandline.pipelines.engine.engine import Engine, Outcome
from strandline.pipelines.engine.failures import REFUSALS, level_of, raised_at
from strandline.pipelines.engine.leases import (
    KeptLease,
    Lease,
    check_lease,
    describe_failures,
    lock_lease,
    release,
    release_untouched,
)
from strandline.pipelines.engine.stage import Batch, Sharing, Stage, Stepping
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import (
    BlockCodeError,
    BudgetError,
    DatabaseRightsError,
    DatabaseUnavailableError,
    ErasedError,
    KeyUnavailableError,
    LeaseLostError,
    PermanentModelError,
    ProviderDownError,
    ReplayBudgetError,
    ServerLimitError,
    StrandlineError,
    TransientModelError,
    UndecodableEventError,
)
from strandline.schemas.queries.work.lanes import LaneHasWork
from strandline.schemas.tracing import process_span
from strandline.schemas.values.lanes import Lane

logger = logging.getLogger("strandline.engine")

# A lane that an older release gave back is soon tried by another worker, which may be of a newer one.
NEWER_RELEASE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A lane's turn (None: no work could be taken), and the lanes to drain or notify that have work now."""

    lane: Lane | None
    outcome: Outcome
    next_lanes: tuple[Lane, ...] = ()


@dataclass(frozen=True, slots=True)
class _LaneEnd:
    outcome: Outcome
    next_lanes: Sequence[Lane]


@dataclass(frozen=True, slots=True)
class _BatchEnd:
    has_more: bool
    next_lanes: Sequence[Lane] = ()


def drain(engine: Engine, lane: Lane, *, gives_way: bool = False) -> Turn:
    """Drain one lane to its end, or with ``gives_way`` until another owner waits for a turn.

    The work of a generation that cannot be served here (``unserved``) is left to other workers.
    Errors of the work are handled here, by the error tree, and never raised.  A lane that is released while
    it has work (new work, or a stopping worker's) is among the next lanes; a lane that gave way is notified
    later.  So no wake-up is lost.

    Raises:
        StrandlineError: not even the claim could be made; nothing has changed.
    """
    stage = engine.stages.of(lane.generation_id, lane.stage)
    if stage is None:
        return Turn(lane, "unserved")
    if stage.wait_seconds() > 0:
        # Its provider is down: the work stays due, untouched, and is rung for again.
        return Turn(lane, "postponed")
    with engine.active.enter(lane) as entered:
        if not entered:
            return Turn(lane, "in_hand")
        with engine.active.permit_claim() as admitted:
            if not admitted:
                return Turn(lane, "stopped")
            claimed = claim(engine.database, lane, engine.worker_id, engine.terms, engine.batch_token_budget)
        if claimed is None:
            return Turn(lane, "nothing_to_claim")
        end = _drain_claimed(engine, claimed, stage, gives_way=gives_way)
    return _turn(engine, claimed.lease, end)


def drain_next(engine: Engine, hint: Lane) -> Turn:
    """Drain the lane whose turn it is in the hint's stage, until another owner waits for one.

    If no lane waits, that is the lane that the hint names.  Everything else is as for ``drain``.

    Raises:
        StrandlineError: not even the claim could be made; nothing has changed.
    """
    stage = engine.stages.of(hint.generation_id, hint.stage)
    if stage is None:
        return Turn(None, "unserved")
    if stage.wait_seconds() > 0:
        return Turn(None, "postponed")
    engine.turns.meet(hint.stage, hint.generation_id)
    with ExitStack() as at_work:
        with engine.active.permit_claim() as admitted:
            if not admitted:
                return Turn(None, "stopped")
            claimed = take_turn(
                engine.database,
                hint,
                engine.turns,
                _skipped_generations(engine, hint.stage),
                engine.worker_id,
                engine.terms,
                engine.batch_token_budget,
            )
            if claimed is None:
                return Turn(None, "nothing_to_claim")
            lane = claimed.lease.lane
            at_work.enter_context(engine.active.enter(lane, anyway=True))
        engine.turns.meet(lane.stage, lane.generation_id)
        its_stage = engine.stages.of(lane.generation_id, lane.stage)
        if its_stage is None:
            return Turn(lane, "unserved" if _release_untouched(engine, claimed.lease) else "lost")
        end = _drain_claimed(engine, claimed, its_stage, gives_way=True)
    return _turn(engine, claimed.lease, end)


def _skipped_generations(engine: Engine, stage: str) -> list[int]:
    """Generations that get no turn here: they cannot be served, or their provider is down."""
    met = engine.turns.generations_met(stage)
    stages_here = {generation_id: engine.stages.of(generation_id, stage) for generation_id in met}
    return [number for number, here in stages_here.items() if here is None or here.wait_seconds() > 0]


def _release_untouched(engine: Engine, lease: Lease, wait_seconds: float = 0.0) -> bool:
    """Release a lane whose work was not tried; False: the database is away, and upkeep releases it."""
    try:
        release_untouched(engine.database, lease, wait_seconds)
    except DatabaseUnavailableError:
        return False
    return True


def _turn(engine: Engine, lease: Lease, end: _LaneEnd) -> Turn:
    """The result of a lane's turn; the lane is among the next ones if it was left with work.

    If a namespace may have only so many lanes at work, hints for its other lanes came in vain: so a worker
    that frees a place rings, if only with the finished lane.
    """
    next_lanes = dict.fromkeys(end.next_lanes)
    if end.outcome == "gave_way" or lease.has_lane_limit:
        engine.ring_later([lease.lane])
    elif end.outcome in ("drained", "stopped"):
        try:
            if engine.database.fetch(LaneHasWork(**lease.lane.keys)):
                next_lanes[lease.lane] = None
        except StrandlineError:
            engine.ring(list(next_lanes))
            raise
    return Turn(lease.lane, end.outcome, tuple(next_lanes))


def _drain_claimed(
    engine: Engine, claimed: ClaimedLane, stage: Stage[Any, Any], *, gives_way: bool
) -> _LaneEnd:
    lease = claimed.lease
    next_lanes: dict[Lane, None] = {}
    try:
        while (batch := claimed.batch()) is not None:
            end = _BatchRun(engine, lease, batch, stage).process()
            REFUSALS.settle(engine, lease.lane.stage)
            next_lanes.update(dict.fromkeys(engine.pass_on(end.next_lanes)))
            if not end.has_more:
                # The statement that ended the batch has released the lane.
                return _LaneEnd(_drained_or_stopped(engine), tuple(next_lanes))
            lease = lease.after_a_batch()
            if engine.stopping():
                break
            renewed = renew(
                engine.database,
                lease,
                engine.terms,
                engine.batch_token_budget,
                gives_way=gives_way,
                skipped_generations=_skipped_generations(engine, lease.lane.stage) if gives_way else (),
            )
            if renewed is None:
                return _LaneEnd("gave_way", tuple(next_lanes))
            claimed, lease = renewed, renewed.lease
        outcome = _drained_or_stopped(engine) if release(engine.database, lease) else "lost"
    except Exception as error:  # noqa: BLE001
        # The outermost edge: no error may stop the worker.  Work from finished batches stays.
        outcome = _FailedLane(engine, lease).outcome_of(error)
    return _LaneEnd(outcome, tuple(next_lanes))


def _drained_or_stopped(engine: Engine) -> Outcome:
    return "stopped" if engine.stopping() else "drained"


@dataclass(frozen=True, slots=True)
class _BatchRun:
    """One batch of a held lane."""

    engine: Engine
    lease: Lease
    batch: Batch
    stage: Stage[Any, Any]

    def process(self) -> _BatchEnd:
        if self.lease.failures >= self.engine.retry.max_failures:
            return self.give_up(describe_failures(self.engine.database, self.lease))
        if self.lease.crashes >= self.engine.retry.max_crashes:
            return self.give_up(f"its worker died {quantity(self.lease.crashes, 'time')} in a row")
        lane, causes = self.batch.lane, [event.traceparent for event in self.batch.events]
        with process_span(lane.stage, lane.shard_key, lane.generation_id, causes) as span:
            try:
                return self.derive()
            except (PermanentModelError, BlockCodeError) as error:
                span.fail(error)
                return self.give_up(error)

    def derive(self) -> _BatchEnd:
        work = self.load()
        self.engine.reach("loaded")
        answers = Answering(self.engine, self.lease, self.batch).answer_all(
            self.stage.calls(self.batch, work)
        )
        effect = self.stage.effect(self.batch, work, answers)
        if isinstance(self.stage, Sharing):
            self.stage.share(self.engine.database, self.batch, effect, partial(check_lease, self.lease))
        end = self.apply(work, effect)
        self.engine.reach("applied")
        return end

    def load(self) -> Any:
        if isinstance(self.stage, Stepping):
            kept = KeptLease(self.engine.database, self.lease, self.engine.terms)
            return self.stage.load_stepping(self.engine.database, self.batch, kept.keep)
        return self.stage.load(self.engine.database, self.batch)

    def apply(self, work: Any, effect: Any) -> _BatchEnd:
        """Commit effect, receipts and the batch's end together; a batch that a reset touched is void."""
        with self.engine.database.transaction() as tx:
            if lock_batch(tx, self.lease, self.batch) < len(self.batch.events):
                # The answer refers to deleted messages; the remaining events are due and batched again.
                close(tx, self.batch, "void")
                return _BatchEnd(has_more=True)
            next_lanes = self.stage.write(tx, self.batch, work, effect)
            has_more = finish(tx, self.lease, self.batch, "applied")
            self.engine.reach("applying")
        self.engine.watch.note_batch(self.batch)
        return _BatchEnd(has_more, next_lanes)

    def give_up(self, reason: str | Exception) -> _BatchEnd:
        """Split a batch, so that each event is tried alone; a lone event becomes a dead letter.

        Alone means without context as well: a provider may refuse a line before the event.
        """
        with self.engine.database.transaction() as tx:
            lock_lease(tx, self.lease)
            if may_split(tx, self.batch):
                close(tx, self.batch, "split")
                return _BatchEnd(has_more=True)
            make_dead_letter(tx, self.batch, str(reason), self.engine.retry.letter_seconds(reason))
            has_more = finish(tx, self.lease, self.batch, "dead")
        self.engine.watch.note_dead_letter(self.batch)
        logger.error("event is a dead letter", extra={"action": "dead_letter", **_where(self.batch.lane)})
        return _BatchEnd(has_more)


@dataclass(frozen=True, slots=True)
class _FailedLane:
    """A held lane whose work failed."""

    engine: Engine
    lease: Lease

    def outcome_of(self, error: Exception) -> Outcome:
        """The outcome that an error leads to; the lane is released here, if the database can be reached.

        The order of the cases counts: a ``ServerLimitError`` is a ``DatabaseUnavailableError`` as well.
        """
        match error:
            case LeaseLostError() | ErasedError():
                logger.info("lease lost", extra={"action": "lease_lost", **_where(self.lease.lane)})
                return "lost"
            case ServerLimitError():
                # The server is there: a statement that takes too long once does so again, and must not be
                # retried for good.
                return self.postpone(error)
            case DatabaseUnavailableError():
                # Not even the release can be written now; the upkeep writes it when Postgres is there.
                logger.log(
                    level_of(error, ending=self.engine.stopping()),
                    "database unavailable",
                    extra={"action": "database_unavailable", **_where(self.lease.lane)},
                )
                return "lost"
            case BudgetError():
                # No worker takes up this namespace's work until its time has come; so this does not count.
                return "postponed" if _release_untouched(self.engine, self.lease) else "lost"
            case ReplayBudgetError():
                wait_seconds = error.retry_after_seconds or 0.0
                return "postponed" if _release_untouched(self.engine, self.lease, wait_seconds) else "lost"
            case UndecodableEventError():
                return self.leave_to_newer(error)
            case TransientModelError() | KeyUnavailableError() | DatabaseRightsError():
                return self.postpone(error)
            case _:
                # A defect in a stage must not be retried without end.
                # Its message, and the driver's message behind it, may quote users' text: neither is logged.
                logger.error(
                    "stage failed",
                    extra={"action": "stage_failed", "error": type(error).__name__, "at": raised_at(error)}
                    | _where(self.lease.lane),
                )
                return self.postpone(error)

    def leave_to_newer(self, error: UndecodableEventError) -> Outcome:
        """Give back a lane whose next event only a newer release reads; say so once per stage."""
        self.engine.troubles.note(self.lease.lane, str(error), NEWER_RELEASE_SECONDS)
        if self.engine.troubles.is_first_newer(self.lease.lane):
            logger.warning(
                "events of a newer release are left to its workers",
                extra={"action": "newer_event", "reason": str(error), **_where(self.lease.lane)},
            )
        return self.release(self.lease.postponements, self.lease.failures, NEWER_RELEASE_SECONDS, str(error))

    def postpone(self, error: Exception) -> Outcome:
        """Give the lane back for a while.

        An outage of the provider, a missing key or right is not the lane's fault: only a call that fails
        while others succeed, or for another reason, counts towards the limit.
        """
        if isinstance(error, TransientModelError):
            counts = error.counts
        else:
            counts = not isinstance(error, (KeyUnavailableError, DatabaseRightsError))
        postponements = self.lease.postponements + (0 if isinstance(error, ProviderDownError) else 1)
        wait = self.engine.retry.wait_seconds(
            max(1, postponements),
            retry_after_seconds=error.retry_after_seconds if isinstance(error, TransientModelError) else None,
        )
        reason, failures = _reason(error), self.lease.failures + counts
        tries = f"Failed {failures} of {self.engine.retry.max_failures} times. " if counts else ""
        self.engine.troubles.note(self.lease.lane, tries + reason, wait)
        self.engine.watch.note_failure(self.lease.lane.stage, error)
        REFUSALS.note(self.engine, self.lease.lane.stage, error)
        logger.log(
            level_of(error, ending=self.engine.stopping()),
            "lane postponed",
            extra={"action": "lane_postponed", "reason": reason, "wait_seconds": round(wait, 2)}
            | {"failures": failures, **_where(self.lease.lane)},
        )
        return self.release(postponements, failures, wait, reason)

    def release(self, postponements: int, failures: int, wait: float, reason: str) -> Outcome:
        try:
            release(
                self.engine.database,
                self.lease,
                postponements=postponements,
                failures=failures,
                wait_seconds=wait,
                error=reason,
            )
        except (DatabaseUnavailableError, DatabaseRightsError):
            return "lost"
        return "postponed"


_TELLS_NO_TEXT = (
    TransientModelError,
    ServerLimitError,
    DatabaseRightsError,
    KeyUnavailableError,
)


def _reason(error: Exception) -> str:
    """A sentence for people. Only errors that never quote users' text keep their own words."""
    if isinstance(error, _TELLS_NO_TEXT):
        return str(error)[:500]
    return f"Unexpected {type(error).__name__}: the worker's log says where."


def _where(lane: Lane) -> dict[str, str]:
    return {"lane": f"{lane.stage}/{lane.generation_id}/{lane.scope_key}"}
