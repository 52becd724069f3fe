"""Batches: which events the next model call covers, committed before the call."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

from strandline.pipelines.engine.lease import Lease, hold, lane_params
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
    with database.transaction() as tx:
        hold(tx, lease)
        tx.fetch("clear_void", lane_params(lease.lane))
        batch = _reopen(tx, lease)
        return batch if batch is not None else _form(tx, lease, token_budget)


def hold_events(fetcher: Fetcher, batch: Batch) -> int:
    """Lock what is due of the batch; how many of its events still belong to their session as it is.

    A reset that forgets does not hold the lease of a lane that was opened while it ran: on these rows the
    two meet, and what it deletes is not applied.
    """
    return len(fetcher.fetch("hold_events", lane_params(batch.lane) | {"event_ids": batch.event_ids}))


def close(fetcher: Fetcher, batch: Batch, state: str) -> None:
    """End an open batch as ``applied``, ``void``, ``split`` or ``dead``.

    Raises:
        LeaseLostError: there is no such open batch.  A worker's commits do not wait for the disk, so a crash
            of Postgres may have taken the batch's row from under a worker that lives; it is formed anew.
    """
    params = {"shard_key": batch.lane.shard_key, "batch_id": batch.batch_id, "state": state}
    if not fetcher.fetch("close_batch", params):
        raise LeaseLostError(f"Batch {batch.batch_id} is gone or ended; what was prepared is dropped.")


def _reopen(fetcher: Fetcher, lease: Lease) -> Batch | None:
    """The open batch, if all of it is still to be done; one that a reset has touched is closed as void."""
    for batch_id, event_ids, still_due in fetcher.fetch("open_batch", lane_params(lease.lane)):
        if still_due == len(event_ids):
            return read_batch(fetcher, lease.lane, batch_id, event_ids)
        fetcher.fetch(
            "close_batch", {"shard_key": lease.lane.shard_key, "batch_id": batch_id, "state": "void"}
        )
    return None


def _form(fetcher: Fetcher, lease: Lease, token_budget: int) -> Batch | None:
    due = fetcher.fetch("due_in_lane", lane_params(lease.lane) | {"limit": MAX_BATCH_EVENTS})
    event_ids = _choose(due, token_budget)
    if not event_ids:
        return None
    batch_id = uuid4()
    fetcher.fetch("insert_batch", lease.params | {"batch_id": batch_id, "event_ids": event_ids})
    return read_batch(fetcher, lease.lane, batch_id, event_ids)


def _choose(due: Sequence[Row], token_budget: int) -> list[UUID]:
    chosen: list[UUID] = []
    spent = 0
    for event_id, tokens, was_split in due:
        if chosen and (was_split or spent + tokens > token_budget):
            break
        chosen.append(event_id)
        spent += tokens
        if was_split:
            break
    return chosen


def read_batch(fetcher: Fetcher, lane: Lane, batch_id: UUID, event_ids: Sequence[UUID]) -> Batch:
    """A batch with its events."""
    wanted = {"shard_key": lane.shard_key, "event_ids": list(event_ids)}
    return Batch(lane, batch_id, tuple(_decode(row) for row in fetcher.fetch("batch_events", wanted)))


def _decode(row: Row) -> FlushEvent:
    return decode_event(dict(zip(_EVENT_FIELDS, row, strict=True)))
