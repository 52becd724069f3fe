"""The statements of ``schemas/sql/lanes.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import (
    BatchIdRow,
    BroughtRow,
    DueRow,
    HasContextRow,
    HeldRow,
    IsDueRow,
    IsFirstRow,
    LaneRow,
    LastErrorRow,
    LeaseEpochRow,
    MessageRow,
    StageRow,
)
from strandline.schemas.sealing.marks import Mark, Marks


class RingDue(Query[LaneRow], name="ring_due"):
    """Lanes of a stage with work that no worker picked up: postpone the next look, and return them
    (ring_due_v1).
    """

    stage: str
    limit: int


class BringRingsForward(Query[BroughtRow], name="bring_rings_forward"):
    """Ring now for what is to be rung for later than any wait is long, and for what has waited long enough
    for its budget.
    """

    stages: list[str]
    limit: int


class FindLane(Query[StageRow], name="find_lane", repeatable=True):
    """The lane, if this database has it or work to open it for; a hint may come from another one's producer."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class OrphanedLanes(Query[LaneRow], name="orphaned_lanes", repeatable=True):
    """Lanes whose holder died or kept them past their deadline: taken over at once, whatever ring_at says and
    whatever waits in the queue.
    """

    stages: list[str]
    dead_after_seconds: Decimal | float
    limit: int


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
    traceparent: str | None


class ClaimLane(Query[ClaimLaneRow], name="claim_lane"):
    """Claim this lane, if it has work and can be claimed (claim_lane_v1), and begin its first batch."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    worker_id: UUID
    dead_after_seconds: float
    deadline_seconds: float
    batch_id: UUID
    token_budget: int
    max_events: int


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
    traceparent: str | None


class TakeTurn(Query[TakeTurnRow], name="take_turn"):
    """Claim the lane of a stage whose turn it is (take_turn_v1), and begin its first batch."""

    stage: str
    precedences: list[int]
    after: str
    namespaces: list[str]
    owners: list[UUID]
    skipped_generations: list[int]
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    worker_id: UUID
    dead_after_seconds: float
    deadline_seconds: float
    batch_id: UUID
    token_budget: int
    max_events: int


class ReleaseLane(Query[LeaseEpochRow], name="release_lane"):
    """Release the lane, with its next attempt postponed where something failed."""

    postponements: int
    failures: int
    last_error: str | None
    wait_seconds: float
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    lease_epoch: int
    worker_id: UUID


class ReleaseUntouchedLane(Query[Never], name="release_untouched_lane"):
    """Release the lane as it was found, since nothing was tried; it is not to be claimed again before its
    time.
    """

    wait_seconds: float
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    lease_epoch: int
    worker_id: UUID


class LastError(Query[LastErrorRow], name="last_error", repeatable=True):
    """Why the lane's last attempt failed: a sentence that quotes nothing of users."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class LockLane(Query[HeldRow], name="lock_lane"):
    """Lock the lease inside a transaction; no row means that it was lost."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    lease_epoch: int
    worker_id: UUID


class SeeLane(Query[HeldRow], name="see_lane", repeatable=True):
    """Whether the lease is held, without waiting for a lock on the lane; no row means that it was lost."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    lease_epoch: int
    worker_id: UUID


class KeepLane(Query[LeaseEpochRow], name="keep_lane"):
    """The holder makes progress within its batch: renew the lease's deadline; no row if the lease was lost."""

    deadline_seconds: float
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    lease_epoch: int
    worker_id: UUID


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
    traceparent: str | None


class RenewLane(Query[RenewLaneRow], name="renew_lane"):
    """A batch is done: begin the next one, or give way (renew_lane_v1)."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    lease_epoch: int
    worker_id: UUID
    namespace: str
    gives_way: bool
    skipped_generations: list[int]
    dead_after_seconds: float
    deadline_seconds: float
    batch_id: UUID
    token_budget: int
    max_events: int


class ReleaseUndrainedLanes(Query[StageRow], name="release_undrained_lanes"):
    """Release the lanes that this worker holds in the table but no longer drains: their release did not get
    through. A lane that is being written (by a reset, say) is left for the next time, not waited for.
    """

    worker_id: UUID
    older_than_seconds: float
    shard_keys: list[UUID]
    scope_keys: list[UUID]
    generation_ids: list[int]
    stages: list[str]


class ShortenLeases(Query[Never], name="shorten_leases"):
    """No lease of this worker ends later than one that begins now: the clock may have stepped back."""

    deadline_seconds: float
    worker_id: UUID


class LaneHasWork(Query[DueRow], name="lane_has_work", repeatable=True):
    """Whether anything is due in the lane, and ready."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class CloseBatch(Query[BatchIdRow], name="close_batch"):
    """The batch is over: applied, void, split or dead. The answers of a void one refer to deleted messages,
    perhaps to some that a person wanted forgotten.
    """

    shard_key: UUID
    batch_id: UUID
    state: str


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
    traceparent: str | None


class BatchEvents(Query[BatchEventsRow], name="batch_events", repeatable=True):
    """The events of a batch in its order."""

    event_ids: list[UUID]
    shard_key: UUID


class RangeMessages(Query[MessageRow], name="range_messages", repeatable=True):
    """The messages of one event."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    shard_key: UUID
    session_key: UUID
    from_seq: int
    through_seq: int


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


class BatchMessages(Query[BatchMessagesRow], name="batch_messages", repeatable=True):
    """The messages of several events, with each event's place among them (1, 2, …); those that retention
    removed, as far as they were taken from the archive for the derivation.
    """

    marks = Marks(
        owner=0,
        opens=(
            Mark(7, "json", "message", 3),
            Mark(8, "json", "metadata", 3),
        ),
    )
    shard_key: UUID
    session_keys: list[UUID]
    from_seqs: list[int]
    through_seqs: list[int]
    generation_id: int


class ContextMessagesRow(NamedTuple):
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    time_zone: str | None


class ContextMessages(Query[ContextMessagesRow], name="context_messages", repeatable=True):
    """The messages before a batch's first event that it shows as context."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    shard_key: UUID
    batch_id: UUID


class HasContext(Query[HasContextRow], name="has_context", repeatable=True):
    """Whether a batch shows lines before its first event; it is tried once more without, before it counts as
    failed.
    """

    shard_key: UUID
    batch_id: UUID


class StoredAnswerRow(NamedTuple):
    model: str
    prompt_hash: str
    body: bytes


class StoredAnswer(Query[StoredAnswerRow], name="stored_answer", repeatable=True):
    """A raw answer that an earlier attempt stored."""

    marks = Marks(owner=0, opens=(Mark(2, "bytes", "answer"),))
    shard_key: UUID
    batch_id: UUID
    step: str


class StoreAnswer(Query[IsFirstRow], name="store_answer"):
    """Store a raw answer and its cost, if the lease still holds (store_answer_v1)."""

    marks = Marks(owner=0, seals=(Mark(10, "bytes", "answer"),))
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    lease_epoch: int
    worker_id: UUID
    batch_id: UUID
    step: str
    model: str
    prompt_hash: str
    body: bytes
    input_tokens: int
    output_tokens: int
    seconds: float
    cost_usd: Decimal | float | None


class LockBatchRow(NamedTuple):
    leases: int
    events: int


class LockBatch(Query[LockBatchRow], name="lock_batch"):
    """Lock the lease, and then what is due of a batch whose events still belong to their session's
    incarnation, or were derived before: how many leases (1, or 0 when it was taken away), and how many
    events.  In the order in which all others lock what is due.
    """

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    lease_epoch: int
    worker_id: UUID
    event_ids: list[UUID]


class FinishBatch(Query[IsDueRow], name="finish_batch"):
    """The effect is written: the batch is over, its work is no longer due, and receipts say how it ended.  A
    lane that has no more to do now is released with that.  No row: there is no such open batch, and
    nothing was done. Says whether the lane has more to do, and so is still held.
    """

    outcome: str
    shard_key: UUID
    batch_id: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    event_ids: list[UUID]
    lease_epoch: int
    worker_id: UUID


class MakeDeadLetter(Query[Never], name="make_dead_letter"):
    """Go past an event that cannot be applied: a dead letter, whose messages stay in the tail.  It is tried
    again by itself after the wait at the place of the retries that it has had; without one, a person has
    to.
    """

    batch_id: UUID
    reason: str
    retry_seconds: list[float]
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    event_id: UUID


class PassOn(Query[Never], name="pass_on"):
    """Make the events due in the pipeline's next stage, on the owner's lane. Only live work is rung for;
    other work has ring_at infinity: that of a derivation which does not serve, which is merged in the
    order of the flushes, and the work that a replay in place made due.
    """

    next_stage: str
    scope_key: UUID
    tokens: int
    generation_id: int
    shard_key: UUID
    event_ids: list[UUID]


class InsertReceipts(Query[Never], name="insert_receipts"):
    """A later stage has nothing to do for these events."""

    shard_key: UUID
    generation_id: int
    stage: str
    batch_id: UUID
    event_ids: list[UUID]
