"""The statements of ``schemas/sql/lanes.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class RingDueRow(NamedTuple):
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class RingDue(Query[RingDueRow]):
    """Lanes of a stage with work that no worker picked up: postpone the next look, and return them
    (ring_due_v1).
    """

    __slots__ = ()
    name = "ring_due"
    row = RingDueRow

    def __init__(self, *, stage: str, limit: int) -> None:
        self.values = (stage, limit)


class BringRingsForwardRow(NamedTuple):
    brought: int


class BringRingsForward(Query[BringRingsForwardRow]):
    """Ring now for what is to be rung for later than any wait is long, and for what has waited long enough
    for its budget.
    """

    __slots__ = ()
    name = "bring_rings_forward"
    row = BringRingsForwardRow

    def __init__(self, *, stages: list[str], limit: int) -> None:
        self.values = (stages, limit)


class FindLaneRow(NamedTuple):
    stage: str


class FindLane(Query[FindLaneRow]):
    """The lane, if this database has it; a hint may come from another one's producer."""

    __slots__ = ()
    name = "find_lane"
    row = FindLaneRow

    def __init__(self, *, shard_key: UUID, scope_key: UUID, generation_id: int, stage: str) -> None:
        self.values = (shard_key, scope_key, generation_id, stage)


class OrphanedLanesRow(NamedTuple):
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class OrphanedLanes(Query[OrphanedLanesRow]):
    """Lanes whose holder died or kept them past their deadline: taken over at once, whatever ring_at says and
    whatever waits in the queue.
    """

    __slots__ = ()
    name = "orphaned_lanes"
    row = OrphanedLanesRow

    def __init__(self, *, stages: list[str], dead_after_seconds: Decimal | float, limit: int) -> None:
        self.values = (stages, dead_after_seconds, limit)


class ClaimLaneRow(NamedTuple):
    lease_epoch: int
    postponements: int
    failures: int
    crashes: int
    namespace: str
    has_lane_limit: bool
    has_budget: bool
    batch_id: UUID | None
    event_id: UUID
    session_key: UUID
    incarnation: UUID
    cause: str
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    version: int
    created_at: datetime


class ClaimLane(Query[ClaimLaneRow]):
    """Claim this lane, if it has work and can be claimed (claim_lane_v1), and begin its first batch."""

    __slots__ = ()
    name = "claim_lane"
    row = ClaimLaneRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        worker_id: UUID,
        dead_after_seconds: float,
        deadline_seconds: float,
        batch_id: UUID,
        token_budget: int,
        max_events: int,
    ) -> None:
        self.values = (
            shard_key,
            scope_key,
            generation_id,
            stage,
            worker_id,
            dead_after_seconds,
            deadline_seconds,
            batch_id,
            token_budget,
            max_events,
        )


class TakeTurnRow(NamedTuple):
    shard_key: UUID
    scope_key: UUID | None
    generation_id: int
    lease_epoch: int
    postponements: int
    failures: int
    crashes: int
    namespace: str
    has_lane_limit: bool
    has_budget: bool
    batch_id: UUID | None
    event_id: UUID
    session_key: UUID
    incarnation: UUID
    cause: str
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    version: int
    created_at: datetime


class TakeTurn(Query[TakeTurnRow]):
    """Claim the lane of a stage whose turn it is (take_turn_v1), and begin its first batch."""

    __slots__ = ()
    name = "take_turn"
    row = TakeTurnRow

    def __init__(
        self,
        *,
        stage: str,
        precedences: list[int],
        after: str,
        namespaces: list[str],
        owners: list[UUID],
        skipped_generations: list[int],
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        worker_id: UUID,
        dead_after_seconds: float,
        deadline_seconds: float,
        batch_id: UUID,
        token_budget: int,
        max_events: int,
    ) -> None:
        self.values = (
            stage,
            precedences,
            after,
            namespaces,
            owners,
            skipped_generations,
            shard_key,
            scope_key,
            generation_id,
            worker_id,
            dead_after_seconds,
            deadline_seconds,
            batch_id,
            token_budget,
            max_events,
        )


class ReleaseLaneRow(NamedTuple):
    lease_epoch: int


class ReleaseLane(Query[ReleaseLaneRow]):
    """Release the lane, with its next attempt postponed where something failed."""

    __slots__ = ()
    name = "release_lane"
    row = ReleaseLaneRow

    def __init__(
        self,
        *,
        postponements: int,
        failures: int,
        last_error: str | None,
        wait_seconds: float,
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        lease_epoch: int,
        worker_id: UUID,
    ) -> None:
        self.values = (
            postponements,
            failures,
            last_error,
            wait_seconds,
            shard_key,
            scope_key,
            generation_id,
            stage,
            lease_epoch,
            worker_id,
        )


class ReleaseUntouchedLane(Query[Never]):
    """Release the lane as it was found, since nothing was tried; it is not to be claimed again before its
    time.
    """

    __slots__ = ()
    name = "release_untouched_lane"

    def __init__(
        self,
        *,
        wait_seconds: float,
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        lease_epoch: int,
        worker_id: UUID,
    ) -> None:
        self.values = (wait_seconds, shard_key, scope_key, generation_id, stage, lease_epoch, worker_id)


class LastErrorRow(NamedTuple):
    last_error: str | None


class LastError(Query[LastErrorRow]):
    """Why the lane's last attempt failed: a sentence that quotes nothing of users."""

    __slots__ = ()
    name = "last_error"
    repeatable = True
    row = LastErrorRow

    def __init__(self, *, shard_key: UUID, scope_key: UUID, generation_id: int, stage: str) -> None:
        self.values = (shard_key, scope_key, generation_id, stage)


class LockLaneRow(NamedTuple):
    held: int


class LockLane(Query[LockLaneRow]):
    """Lock the lease inside a transaction; no row means that it was lost."""

    __slots__ = ()
    name = "lock_lane"
    row = LockLaneRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        lease_epoch: int,
        worker_id: UUID,
    ) -> None:
        self.values = (shard_key, scope_key, generation_id, stage, lease_epoch, worker_id)


class SeeLaneRow(NamedTuple):
    held: int


class SeeLane(Query[SeeLaneRow]):
    """Whether the lease is held, without waiting for who has the lane locked; no row means that it was lost."""

    __slots__ = ()
    name = "see_lane"
    row = SeeLaneRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        lease_epoch: int,
        worker_id: UUID,
    ) -> None:
        self.values = (shard_key, scope_key, generation_id, stage, lease_epoch, worker_id)


class KeepLaneRow(NamedTuple):
    lease_epoch: int


class KeepLane(Query[KeepLaneRow]):
    """The holder makes progress within its batch: renew the lease's deadline; no row if the lease was lost."""

    __slots__ = ()
    name = "keep_lane"
    row = KeepLaneRow

    def __init__(
        self,
        *,
        deadline_seconds: float,
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        lease_epoch: int,
        worker_id: UUID,
    ) -> None:
        self.values = (deadline_seconds, shard_key, scope_key, generation_id, stage, lease_epoch, worker_id)


class RenewLaneRow(NamedTuple):
    lease_epoch: int
    postponements: int
    failures: int
    crashes: int
    namespace: str | None
    has_lane_limit: bool
    has_budget: bool
    batch_id: UUID | None
    event_id: UUID
    session_key: UUID
    incarnation: UUID
    cause: str
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    version: int
    created_at: datetime


class RenewLane(Query[RenewLaneRow]):
    """A batch is done: begin the next one, or give way (renew_lane_v1)."""

    __slots__ = ()
    name = "renew_lane"
    row = RenewLaneRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        lease_epoch: int,
        worker_id: UUID,
        namespace: str,
        gives_way: bool,
        skipped_generations: list[int],
        dead_after_seconds: float,
        deadline_seconds: float,
        batch_id: UUID,
        token_budget: int,
        max_events: int,
    ) -> None:
        self.values = (
            shard_key,
            scope_key,
            generation_id,
            stage,
            lease_epoch,
            worker_id,
            namespace,
            gives_way,
            skipped_generations,
            dead_after_seconds,
            deadline_seconds,
            batch_id,
            token_budget,
            max_events,
        )


class ReleaseUndrainedLanesRow(NamedTuple):
    stage: str


class ReleaseUndrainedLanes(Query[ReleaseUndrainedLanesRow]):
    """Release the lanes that this worker holds in the table but no longer drains: their release did not get
    through. A lane that is being written (by a reset, say) is left for the next time, not waited for.
    """

    __slots__ = ()
    name = "release_undrained_lanes"
    row = ReleaseUndrainedLanesRow

    def __init__(
        self,
        *,
        worker_id: UUID,
        older_than_seconds: float,
        shard_keys: list[UUID],
        scope_keys: list[UUID],
        generation_ids: list[int],
        stages: list[str],
    ) -> None:
        self.values = (worker_id, older_than_seconds, shard_keys, scope_keys, generation_ids, stages)


class ShortenLeases(Query[Never]):
    """No lease of this worker ends later than one that begins now: the clock may have stepped back."""

    __slots__ = ()
    name = "shorten_leases"

    def __init__(self, *, deadline_seconds: float, worker_id: UUID) -> None:
        self.values = (deadline_seconds, worker_id)


class LaneHasWorkRow(NamedTuple):
    due: int


class LaneHasWork(Query[LaneHasWorkRow]):
    """Whether anything is due in the lane, and ready."""

    __slots__ = ()
    name = "lane_has_work"
    row = LaneHasWorkRow

    def __init__(self, *, shard_key: UUID, scope_key: UUID, generation_id: int, stage: str) -> None:
        self.values = (shard_key, scope_key, generation_id, stage)


class CloseBatchRow(NamedTuple):
    batch_id: UUID


class CloseBatch(Query[CloseBatchRow]):
    """The batch is over: applied, void, split or dead. The answers of a void one refer to deleted messages,
    perhaps to some that a person wanted forgotten.
    """

    __slots__ = ()
    name = "close_batch"
    row = CloseBatchRow

    def __init__(self, *, shard_key: UUID, batch_id: UUID, state: str) -> None:
        self.values = (shard_key, batch_id, state)


class BatchEventsRow(NamedTuple):
    event_id: UUID
    shard_key: UUID
    session_key: UUID
    incarnation: UUID
    cause: str
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    version: int
    created_at: datetime


class BatchEvents(Query[BatchEventsRow]):
    """The events of a batch in its order."""

    __slots__ = ()
    name = "batch_events"
    row = BatchEventsRow

    def __init__(self, *, event_ids: list[UUID], shard_key: UUID) -> None:
        self.values = (event_ids, shard_key)


class RangeMessagesRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class RangeMessages(Query[RangeMessagesRow]):
    """The messages of one event."""

    __slots__ = ()
    name = "range_messages"
    row = RangeMessagesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, session_key: UUID, from_seq: int, through_seq: int) -> None:
        self.values = (shard_key, session_key, from_seq, through_seq)


class BatchMessagesRow(NamedTuple):
    place: int
    time_zone: str | None
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class BatchMessages(Query[BatchMessagesRow]):
    """The messages of several events, with each event's place among them (1, 2, …); those that retention
    removed, as far as they were taken from the archive for the derivation.
    """

    __slots__ = ()
    name = "batch_messages"
    row = BatchMessagesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(7, "json", "message", 3),
            Mark(8, "json", "metadata", 3),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_keys: list[UUID],
        from_seqs: list[int],
        through_seqs: list[int],
        generation_id: int,
    ) -> None:
        self.values = (shard_key, session_keys, from_seqs, through_seqs, generation_id)


class ContextMessagesRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    time_zone: str | None


class ContextMessages(Query[ContextMessagesRow]):
    """The messages before a batch's first event that it shows as context."""

    __slots__ = ()
    name = "context_messages"
    row = ContextMessagesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, batch_id: UUID) -> None:
        self.values = (shard_key, batch_id)


class HasContextRow(NamedTuple):
    has_context: bool


class HasContext(Query[HasContextRow]):
    """Whether a batch shows lines before its first event; it is tried once more without, before it counts as
    failed.
    """

    __slots__ = ()
    name = "has_context"
    row = HasContextRow

    def __init__(self, *, shard_key: UUID, batch_id: UUID) -> None:
        self.values = (shard_key, batch_id)


class StoredAnswerRow(NamedTuple):
    model: str
    prompt_hash: str
    body: bytes


class StoredAnswer(Query[StoredAnswerRow]):
    """A raw answer that an earlier attempt stored."""

    __slots__ = ()
    name = "stored_answer"
    row = StoredAnswerRow
    marks = Marks(owner=0, opens=(Mark(2, "bytes", "answer"),))

    def __init__(self, *, shard_key: UUID, batch_id: UUID, step: str) -> None:
        self.values = (shard_key, batch_id, step)


class StoreAnswerRow(NamedTuple):
    is_first: bool


class StoreAnswer(Query[StoreAnswerRow]):
    """Store a raw answer and its cost, if the lease still holds (store_answer_v1)."""

    __slots__ = ()
    name = "store_answer"
    row = StoreAnswerRow
    marks = Marks(owner=0, seals=(Mark(10, "bytes", "answer"),))

    def __init__(
        self,
        *,
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        lease_epoch: int,
        worker_id: UUID,
        batch_id: UUID,
        step: str,
        model: str,
        prompt_hash: str,
        body: bytes,
        input_tokens: int,
        output_tokens: int,
        seconds: float,
        cost_usd: Decimal | float | None,
    ) -> None:
        self.values = (
            shard_key,
            scope_key,
            generation_id,
            stage,
            lease_epoch,
            worker_id,
            batch_id,
            step,
            model,
            prompt_hash,
            body,
            input_tokens,
            output_tokens,
            seconds,
            cost_usd,
        )


class LockBatchRow(NamedTuple):
    leases: int
    events: int


class LockBatch(Query[LockBatchRow]):
    """Lock the lease, and then what is due of a batch whose events still belong to their session's
    incarnation, or were derived before: how many leases (1, or 0 when it was taken away), and how many
    events.  In the order in which all others lock what is due.
    """

    __slots__ = ()
    name = "lock_batch"
    row = LockBatchRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        lease_epoch: int,
        worker_id: UUID,
        event_ids: list[UUID],
    ) -> None:
        self.values = (shard_key, scope_key, generation_id, stage, lease_epoch, worker_id, event_ids)


class FinishBatchRow(NamedTuple):
    is_due: bool


class FinishBatch(Query[FinishBatchRow]):
    """The effect is written: the batch is over, its work is no longer due, and receipts say how it ended.  A
    lane that has no more to do now is released with that.  No row: there is no such open batch, and
    nothing was done. Says whether the lane has more to do, and so is still held.
    """

    __slots__ = ()
    name = "finish_batch"
    row = FinishBatchRow

    def __init__(
        self,
        *,
        outcome: str,
        shard_key: UUID,
        batch_id: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        event_ids: list[UUID],
        lease_epoch: int,
        worker_id: UUID,
    ) -> None:
        self.values = (
            outcome,
            shard_key,
            batch_id,
            scope_key,
            generation_id,
            stage,
            event_ids,
            lease_epoch,
            worker_id,
        )


class MakeDeadLetter(Query[Never]):
    """Go past an event that cannot be applied: a dead letter, whose messages stay in the tail.  It is tried
    again by itself after the wait at the place of the retries that it has had; without one, a person has
    to.
    """

    __slots__ = ()
    name = "make_dead_letter"

    def __init__(
        self,
        *,
        batch_id: UUID,
        reason: str,
        retry_seconds: list[float],
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        stage: str,
        event_id: UUID,
    ) -> None:
        self.values = (batch_id, reason, retry_seconds, shard_key, scope_key, generation_id, stage, event_id)


class PassOn(Query[Never]):
    """Make the events due in the pipeline's next stage, on the owner's lane. Only live work is rung for;
    other work has ring_at infinity: that of a derivation which does not serve, which is merged in the
    order of the flushes, and the work that a replay in place made due.
    """

    __slots__ = ()
    name = "pass_on"

    def __init__(
        self,
        *,
        next_stage: str,
        scope_key: UUID,
        tokens: int,
        generation_id: int,
        shard_key: UUID,
        event_ids: list[UUID],
    ) -> None:
        self.values = (next_stage, scope_key, tokens, generation_id, shard_key, event_ids)


class InsertReceipts(Query[Never]):
    """A later stage has nothing to do for these events."""

    __slots__ = ()
    name = "insert_receipts"

    def __init__(
        self, *, shard_key: UUID, generation_id: int, stage: str, batch_id: UUID, event_ids: list[UUID]
    ) -> None:
        self.values = (shard_key, generation_id, stage, batch_id, event_ids)
