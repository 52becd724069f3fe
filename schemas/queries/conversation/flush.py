"""The statements of ``schemas/sql/flush.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import LaneRow, ToFlushRow, WatchIdRow


class PlanWindow(Query[ToFlushRow], name="plan_window", repeatable=True):
    """The input of a flush plan: marks, policy and the window's entries, in one snapshot."""

    shard_key: UUID
    session_key: UUID


class FlushRow(NamedTuple):
    generation_id: int | None
    stage: str
    scope_key: UUID


class Flush(Query[FlushRow], name="flush", repeatable=True):
    """Move the marks and record the events, if nothing changed since the plan."""

    shard_key: UUID
    session_key: UUID
    incarnation: UUID
    corrections: int
    old_window_from: int
    old_flushed_through: int
    window_from: int
    flushed_through: int
    tokens_out: int
    messages_out: int
    bytes_out: int
    cause: str
    event_ids: list[UUID]
    from_seqs: list[int]
    through_seqs: list[int]
    tokens: list[int]
    messages: list[int]
    version: int
    lazily: bool
    delay_seconds: float
    traceparent: str | None


class EndDelay(Query[LaneRow], name="end_delay"):
    """The work of a session waits no longer for more to share its model calls; returns its lanes."""

    shard_key: UUID
    session_key: UUID


class PostponePlanning(Query[Never], name="postpone_planning", repeatable=True):
    """Nothing could be flushed: do not plan again before the window has grown by so much."""

    tokens_more: int
    shard_key: UUID
    session_key: UUID
    incarnation: UUID
    old_window_from: int
    old_flushed_through: int


class RipeWatchesRow(NamedTuple):
    shard_key: UUID
    session_key: UUID
    watch_id: UUID
    cause: str


class RipeWatches(Query[RipeWatchesRow], name="ripe_watches", repeatable=True):
    """Sessions that it is time to look at.  Nothing is locked: a flush is a compare-and-set."""

    limit: int


class EndWatch(Query[Never], name="end_watch", repeatable=True):
    """Delete a watch that was looked at."""

    shard_key: UUID
    session_key: UUID
    watch_id: UUID


class WatchAgain(Query[Never], name="watch_again", repeatable=True):
    """The session was used since: replace this watch by one for the end of its new idle period."""

    shard_key: UUID
    session_key: UUID
    watch_id: UUID
    wait_seconds: float


class PutOffWatch(Query[WatchIdRow], name="put_off_watch"):
    """Looking at this session failed: let the others come first for a while."""

    wait_seconds: float
    shard_key: UUID
    session_key: UUID
    watch_id: UUID
