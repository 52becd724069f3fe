"""Batches: which events the next model call covers, committed before the call.

A lane is claimed together with its first batch, and a lease renewed together with the next one, in one round
trip each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import UUID, uuid4

from strandline.pipelines.engine.leases import Lease, LeaseTerms, lane_params
from strandline.pipelines.engine.stage import Batch
from strandline.pipelines.engine.turns import Turns
from strandline.schemas.errors import LeaseLostError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.postgres.operations import Row
from strandline.schemas.values.flush_event import FlushEvent, decode_event
from strandline.schemas.values.lanes import Lane

MAX_BATCH_EVENTS = 64

# A round that was broken off goes on in another statement; what waits behind so many is taken up later.
MAX_TURN_ATTEMPTS = 2

_EVENT_FIELDS = (
    "event_id",
    "shard_key",
    "session_key",
    "incarnation",
    "cause",
    "from_seq",
    "through_seq",
    "message_count",
    "tokens",
    "version",
    "created_at",
)


@dataclass(frozen=True, slots=True)
class _NewBatch:
    """The events of a new batch, for a lane without an open one."""

    token_budget: int
    batch_id: UUID = field(default_factory=uuid4)
    asked_at: float = field(default_factory=time.monotonic)

    @property
    def params(self) -> dict[str, Any]:
        return {
            "batch_id": self.batch_id,
            "token_budget": self.token_budget,
            "max_events": MAX_BATCH_EVENTS,
        }


@dataclass(frozen=True, slots=True)
class Held:
    """A lane that is held, and the rows of the batch that it has to do next."""

    lease: Lease
    _rows: Sequence[Row]
    _new_batch: _NewBatch

    def batch(self) -> Batch | None:
        """The batch; None where the lane has nothing to do.

        Raises:
            UndecodableEventError: an event in it is of a newer release.
        """
        batch_id = self._rows[0][7]
        if batch_id is None:
            return None
        made_at = self._new_batch.asked_at if batch_id == self._new_batch.batch_id else -math.inf
        shard_key = self.lease.lane.shard_key
        events = tuple(_decode((row[8], shard_key, *row[9:])) for row in self._rows)
        return Batch(self.lease.lane, batch_id, events, made_at)


def claim(
    database: Database, lane: Lane, worker_id: UUID, terms: LeaseTerms, token_budget: int
) -> Held | None:
    """Claim the lane with its first batch, if it has work and no live worker holds it; else return None.

    The batch is the one that an earlier holder left open, or a new one, of as many events as fit into
    ``token_budget``, at least one; an event that failed in a larger batch goes alone.

    Raises:
        StrandlineError: the database failed; nothing has changed.
    """
    new_batch = _NewBatch(token_budget)
    rows = database.fetch("claim_lane", lane_params(lane) | _holder(worker_id, terms) | new_batch.params)
    return Held(Lease(lane, worker_id, *rows[0][:7]), rows, new_batch) if rows else None


def take_turn(
    database: Database,
    hint: Lane,
    turns: Turns,
    left_out: Sequence[int],
    worker_id: UUID,
    terms: LeaseTerms,
    token_budget: int,
) -> Held | None:
    """Claim the lane of the hint's stage whose turn it is, with its first batch, as ``claim`` does.

    Returns None if the stage has no work that could be claimed. ``left_out``: generations whose lanes are
    skipped.

    Raises:
        StrandlineError: the database failed; nothing has changed.
    """
    new_batch = _NewBatch(token_budget)
    wanted = lane_params(hint) | _holder(worker_id, terms) | new_batch.params | {"left_out": list(left_out)}
    for _attempt in range(MAX_TURN_ATTEMPTS):
        rows = database.fetch("take_turn", wanted | turns.params(hint.stage))
        turns.note(hint.stage, [(row[7], row[0]) for row in rows])
        if not rows or rows[-1][3] is not None:
            break
    taken = [row for row in rows if row[3] is not None]
    if not taken:
        return None
    shard_key, scope_key, generation_id = taken[0][:3]
    lane = Lane(shard_key, scope_key, generation_id, hint.stage)
    return Held(Lease(lane, worker_id, *taken[0][3:10]), [row[3:] for row in taken], new_batch)


def _holder(worker_id: UUID, terms: LeaseTerms) -> dict[str, Any]:
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
    left_out: Sequence[int] = (),
) -> Held | None:
    """The same lease, which has its whole deadline again, with the next batch.

    With ``gives_way`` None where another owner waits for a turn: the lane is given back then.  ``left_out``:
    generations whose lanes do not count as waiting.

    Raises:
        LeaseLostError: another worker has the lane by now, or a reset took it away.
    """
    new_batch = _NewBatch(token_budget)
    way = {
        "gives_way": gives_way,
        "left_out": list(left_out),
        "namespace": lease.namespace,
    }
    rows = database.fetch(
        "renew_lane", lease.params | _holder(lease.worker_id, terms) | way | new_batch.params
    )
    if not rows:
        raise LeaseLostError(f"The lease on lane {lease.lane} was lost between two batches.")
    if rows[0][4] is None:
        return None
    # Limits that were set or cleared since.
    return Held(replace(lease, has_lane_limit=rows[0][5], has_budget=rows[0][6]), rows, new_batch)


def hold_batch(fetcher: Fetcher, lease: Lease, batch: Batch) -> int:
    """Lock the lease and what is due of the batch; how many of its events still belong to their session.

    A reset that forgets does not hold the lease of a lane that was opened while it ran: on these rows the
    two meet, and what it deletes is not applied.

    Raises:
        LeaseLostError: the lane was taken away.
    """
    ((leases, events),) = fetcher.fetch("hold_batch", lease.params | {"event_ids": batch.event_ids})
    if not leases:
        raise LeaseLostError(f"The lease on lane {lease.lane} was lost; the prepared result is discarded.")
    return int(events)


def finish(fetcher: Fetcher, lease: Lease, batch: Batch, outcome: Literal["applied", "dead"]) -> bool:
    """End a batch whose effect is written: its events are done.

    Whether the lane has more to do; one that has not is given back with that.

    Raises:
        LeaseLostError: as for ``close``.
    """
    ended = {"event_ids": batch.event_ids, "batch_id": batch.batch_id, "outcome": outcome}
    rows = fetcher.fetch("finish_batch", lease.params | ended)
    if not rows:
        raise _gone(batch)
    return bool(rows[0][0])


def close(fetcher: Fetcher, batch: Batch, state: Literal["void", "split"]) -> None:
    """End an open batch whose events remain due.

    Raises:
        LeaseLostError: there is no such open batch.  A worker's commits do not wait for the disk, so a crash
            of Postgres may have lost the batch's row of a worker that lives; the batch is formed again.
    """
    params = {"shard_key": batch.lane.shard_key, "batch_id": batch.batch_id, "state": state}
    if not fetcher.fetch("close_batch", params):
        raise _gone(batch)


def _gone(batch: Batch) -> LeaseLostError:
    return LeaseLostError(f"Batch {batch.batch_id} is gone or ended; the prepared result is discarded.")


def read_batch(fetcher: Fetcher, lane: Lane, batch_id: UUID, event_ids: Sequence[UUID]) -> Batch:
    """A batch with its events."""
    wanted = {"shard_key": lane.shard_key, "event_ids": list(event_ids)}
    return Batch(lane, batch_id, tuple(_decode(row) for row in fetcher.fetch("batch_events", wanted)))


def _decode(row: Row) -> FlushEvent:
    return decode_event(dict(zip(_EVENT_FIELDS, row, strict=True)))
