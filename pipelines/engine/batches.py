"""Batches: the events that the next model call covers, committed before the call.

A lane is claimed together with its first batch, and a lease renewed together with the next one, in one round
trip each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict
from uuid import UUID, uuid4

from strandline.pipelines.engine.leases import Lease, LeaseTerms
from strandline.pipelines.engine.stage import Batch, RawAnswer
from strandline.pipelines.engine.turns import Turns
from strandline.schemas.errors import LeaseLostError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.queries.derived.replay import StoredAnswers
from strandline.schemas.queries.work.lanes import (
    BatchEvents,
    BatchEventsRow,
    ClaimLane,
    ClaimLaneRow,
    CloseBatch,
    FinishBatch,
    HasContext,
    LockBatch,
    RenewLane,
    RenewLaneRow,
    TakeTurn,
    TakeTurnRow,
)
from strandline.schemas.values.flush_event import FlushEvent, decode_event
from strandline.schemas.values.lanes import Lane
from strandline.schemas.values.same_named import make_from

MAX_BATCH_EVENTS = 64

# An interrupted round resumes in another statement; later lanes are taken up afterwards.
MAX_TURN_ATTEMPTS = 2

_HeldRow = ClaimLaneRow | TakeTurnRow | RenewLaneRow


class _NewBatchParams(TypedDict):
    batch_id: UUID
    token_budget: int
    max_events: int


class _HolderParams(TypedDict):
    worker_id: UUID
    dead_after_seconds: float
    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class _NewBatch:
    token_budget: int
    batch_id: UUID = field(default_factory=uuid4)
    asked_at: float = field(default_factory=time.monotonic)

    @property
    def params(self) -> _NewBatchParams:
        return {
            "batch_id": self.batch_id,
            "token_budget": self.token_budget,
            "max_events": MAX_BATCH_EVENTS,
        }


@dataclass(frozen=True, slots=True)
class ClaimedLane:
    """A lane that is held, and the rows of its next batch."""

    lease: Lease
    _rows: Sequence[_HeldRow]
    _new_batch: _NewBatch

    def batch(self) -> Batch | None:
        """The batch; None if the lane has nothing to do.

        Raises:
            UndecodableEventError: an event in it is from a newer release.
        """
        batch_id = self._rows[0].batch_id
        if batch_id is None:
            return None
        made_at = self._new_batch.asked_at if batch_id == self._new_batch.batch_id else -math.inf
        lane = self.lease.lane
        return Batch(lane, batch_id, tuple(_decode(lane.shard_key, row) for row in self._rows), made_at)


def claim(
    database: Database, lane: Lane, worker_id: UUID, terms: LeaseTerms, token_budget: int
) -> ClaimedLane | None:
    """Claim the lane with its first batch, if it has work and no live worker holds it; else return None.

    The batch is an earlier holder's open one, or a new one, of as many events as fit into
    ``token_budget``, at least one; an event that failed in a larger batch goes alone.

    Raises:
        StrandlineError: the database failed; nothing has changed.
    """
    new_batch = _NewBatch(token_budget)
    rows = database.fetch(ClaimLane(**lane.keys, **_holder(worker_id, terms), **new_batch.params))
    return ClaimedLane(_lease(lane, worker_id, rows[0]), rows, new_batch) if rows else None


def take_turn(
    database: Database,
    hint: Lane,
    turns: Turns,
    skipped_generations: Sequence[int],
    worker_id: UUID,
    terms: LeaseTerms,
    token_budget: int,
) -> ClaimedLane | None:
    """Claim the lane of the hint's stage whose turn it is, with its first batch, as ``claim`` does.

    Returns None if the stage has no work that could be claimed. ``skipped_generations``: generations whose
    lanes are skipped.

    Raises:
        StrandlineError: the database failed; nothing has changed.
    """
    new_batch = _NewBatch(token_budget)
    for _attempt in range(MAX_TURN_ATTEMPTS):
        rows = database.fetch(
            TakeTurn(
                **hint.keys,
                **_holder(worker_id, terms),
                **new_batch.params,
                **turns.params(hint.stage),
                skipped_generations=list(skipped_generations),
            )
        )
        turns.note(hint.stage, [(row.namespace, row.shard_key) for row in rows])
        if not rows or rows[-1].scope_key is not None:
            break
    taken = [row for row in rows if row.scope_key is not None]
    for first in taken:
        if first.scope_key is not None:
            lane = Lane(first.shard_key, first.scope_key, first.generation_id, hint.stage)
            return ClaimedLane(_lease(lane, worker_id, first), taken, new_batch)
    return None


def _lease(lane: Lane, worker_id: UUID, row: ClaimLaneRow | TakeTurnRow) -> Lease:
    return make_from(Lease, row, lane=lane, worker_id=worker_id, epoch=row.lease_epoch)


def _holder(worker_id: UUID, terms: LeaseTerms) -> _HolderParams:
    return {
        "worker_id": worker_id,
        "dead_after_seconds": terms.dead_after_seconds,
        "deadline_seconds": terms.deadline_seconds,
    }


def renew(
    database: Database,
    lease: Lease,
    terms: LeaseTerms,
    token_budget: int,
    *,
    gives_way: bool = False,
    skipped_generations: Sequence[int] = (),
) -> ClaimedLane | None:
    """Renew the lease's whole deadline, and claim the next batch.

    With ``gives_way``, None if another owner waits for a turn: the lane is then released.
    ``skipped_generations``: generations whose lanes do not count as waiting.

    Raises:
        LeaseLostError: another worker has the lane, or a reset took it away.
    """
    new_batch = _NewBatch(token_budget)
    rows = database.fetch(
        RenewLane(
            **lease.keys,
            dead_after_seconds=terms.dead_after_seconds,
            deadline_seconds=terms.deadline_seconds,
            gives_way=gives_way,
            skipped_generations=list(skipped_generations),
            namespace=lease.namespace,
            **new_batch.params,
        )
    )
    if not rows:
        raise LeaseLostError(f"The lease on lane {lease.lane} was lost between two batches.")
    first = rows[0]
    if first.namespace is None:
        return None
    # Limits that were set or cleared since.
    lease = replace(lease, has_lane_limit=first.has_lane_limit, has_budget=first.has_budget)
    return ClaimedLane(lease, rows, new_batch)


def lock_batch(fetcher: Fetcher, lease: Lease, batch: Batch) -> int:
    """Lock the lease and the batch's due rows; return how many of its events still belong to their session.

    A reset that forgets does not hold the lease of a lane that was opened while it ran: both lock these rows.
    Raises LeaseLostError if the lane was taken away.
    """
    (locked,) = fetcher.fetch(LockBatch(**lease.keys, event_ids=batch.event_ids))
    if not locked.leases:
        raise LeaseLostError(f"The lease on lane {lease.lane} was lost; the prepared result is discarded.")
    return locked.events


def finish(fetcher: Fetcher, lease: Lease, batch: Batch, outcome: Literal["applied", "dead"]) -> bool:
    """End a batch whose effect is written; return whether the lane has more to do, or else release it."""
    rows = fetcher.fetch(
        FinishBatch(**lease.keys, event_ids=batch.event_ids, batch_id=batch.batch_id, outcome=outcome)
    )
    if not rows:
        raise _lost_lease(batch)
    return rows[0].is_due


def close(fetcher: Fetcher, batch: Batch, state: Literal["void", "split"]) -> None:
    """End an open batch whose events remain due; raises LeaseLostError if there is none.

    A worker's commits do not wait for the disk, so a crash of Postgres may have lost the batch's row.
    """
    closed = CloseBatch(shard_key=batch.lane.shard_key, batch_id=batch.batch_id, state=state)
    if not fetcher.fetch(closed):
        raise _lost_lease(batch)


def may_split(fetcher: Fetcher, batch: Batch) -> bool:
    """Whether a batch that failed can be tried with less: event by event, or without the lines before it."""
    if len(batch.events) > 1:
        return True
    rows = fetcher.fetch(HasContext(shard_key=batch.lane.shard_key, batch_id=batch.batch_id))
    return bool(rows) and rows[0].has_context


def _lost_lease(batch: Batch) -> LeaseLostError:
    return LeaseLostError(f"Batch {batch.batch_id} is gone or ended; the prepared result is discarded.")


def read_batch(fetcher: Fetcher, lane: Lane, batch_id: UUID, event_ids: Sequence[UUID]) -> Batch:
    rows = fetcher.fetch(BatchEvents(shard_key=lane.shard_key, event_ids=list(event_ids)))
    return Batch(lane, batch_id, tuple(_decode(row.shard_key, row) for row in rows))


def stored_answers(fetcher: Fetcher, batch: Batch) -> dict[str, RawAnswer]:
    rows = fetcher.fetch(StoredAnswers(shard_key=batch.lane.shard_key, batch_id=batch.batch_id))
    return {row.step: RawAnswer(row.model, row.prompt_hash, row.body) for row in rows}


def _decode(shard_key: UUID, row: _HeldRow | BatchEventsRow) -> FlushEvent:
    columns = row._asdict()
    fields = {name: columns[name] for name in FlushEvent.model_fields if name in columns}
    return decode_event(fields | {"shard_key": shard_key})
