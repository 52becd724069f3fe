"""Batches: which events the next model call covers, committed before the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID, uuid4

from strandline.pipelines.engine.lease import Lease, lane_params
from strandline.pipelines.engine.stage import Batch
from strandline.schemas.database import Database, Fetcher
from strandline.schemas.errors import LeaseLostError
from strandline.schemas.events import FlushEvent, decode_event
from strandline.schemas.lanes import Lane
from strandline.schemas.operations import Row

MAX_BATCH_EVENTS = 64

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


def next_batch(database: Database, lease: Lease, token_budget: int) -> Batch | None:
    """The batch an earlier holder left open, else a new one; None when the lane has nothing to do.

    A new batch covers as many events as fit into ``token_budget``, at least one; an event that failed
    in company before goes alone.

    Raises:
        LeaseLostError: the lane was taken away.
    """
    wanted = {"batch_id": uuid4(), "token_budget": token_budget, "max_events": MAX_BATCH_EVENTS}
    rows = database.fetch("begin_batch", lease.params | wanted)
    if not rows:
        return None
    batch_id = rows[0][0]
    if batch_id is None:
        raise LeaseLostError(f"The lease on lane {lease.lane} was taken away; nothing was begun.")
    return Batch(lease.lane, batch_id, tuple(_decode(row[1:]) for row in rows))


def hold_batch(fetcher: Fetcher, lease: Lease, batch: Batch) -> int:
    """Lock the lease and what is due of the batch; how many of its events still belong to their session.

    A reset that forgets does not hold the lease of a lane that was opened while it ran: on these rows the
    two meet, and what it deletes is not applied.

    Raises:
        LeaseLostError: the lane was taken away.
    """
    ((leases, events),) = fetcher.fetch("hold_batch", lease.params | {"event_ids": batch.event_ids})
    if not leases:
        raise LeaseLostError(f"The lease on lane {lease.lane} was taken away; what was prepared is dropped.")
    return int(events)


def finish(fetcher: Fetcher, batch: Batch, outcome: Literal["applied", "dead"]) -> None:
    """End a batch whose effect is written: its events are done.

    Raises:
        LeaseLostError: as for ``close``.
    """
    ended = {"event_ids": batch.event_ids, "batch_id": batch.batch_id, "outcome": outcome}
    if not fetcher.fetch("finish_batch", lane_params(batch.lane) | ended):
        raise _gone(batch)


def close(fetcher: Fetcher, batch: Batch, state: Literal["void", "split"]) -> None:
    """End an open batch whose events remain due.

    Raises:
        LeaseLostError: there is no such open batch.  A worker's commits do not wait for the disk, so a crash
            of Postgres may have taken the batch's row from under a worker that lives; it is formed anew.
    """
    params = {"shard_key": batch.lane.shard_key, "batch_id": batch.batch_id, "state": state}
    if not fetcher.fetch("close_batch", params):
        raise _gone(batch)


def _gone(batch: Batch) -> LeaseLostError:
    return LeaseLostError(f"Batch {batch.batch_id} is gone or ended; what was prepared is dropped.")


def read_batch(fetcher: Fetcher, lane: Lane, batch_id: UUID, event_ids: Sequence[UUID]) -> Batch:
    """A batch with its events."""
    wanted = {"shard_key": lane.shard_key, "event_ids": list(event_ids)}
    return Batch(lane, batch_id, tuple(_decode(row) for row in fetcher.fetch("batch_events", wanted)))


def _decode(row: Row) -> FlushEvent:
    return decode_event(dict(zip(_EVENT_FIELDS, row, strict=True)))
