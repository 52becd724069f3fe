"""The statements of ``schemas/sql/flush.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query


class PlanWindowRow(NamedTuple):
    to_flush: str | None


class PlanWindow(Query[PlanWindowRow]):
    """The input of a flush plan: marks, policy and the window's entries, in one snapshot."""

    __slots__ = ()
    name = "plan_window"
    repeatable = True
    row = PlanWindowRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class FlushRow(NamedTuple):
    generation_id: int | None
    stage: str
    scope_key: UUID


class Flush(Query[FlushRow]):
    """Move the marks and record the events, if nothing changed since the plan."""

    __slots__ = ()
    name = "flush"
    repeatable = True
    row = FlushRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        incarnation: UUID,
        corrections: int,
        old_window_from: int,
        old_flushed_through: int,
        window_from: int,
        flushed_through: int,
        tokens_out: int,
        messages_out: int,
        bytes_out: int,
        cause: str,
        event_ids: list[UUID],
        from_seqs: list[int],
        through_seqs: list[int],
        tokens: list[int],
        messages: list[int],
        version: int,
        question_seq: int | None,
        lazily: bool,
        delay_seconds: float,
    ) -> None:
        self.values = (
            shard_key,
            session_key,
            incarnation,
            corrections,
            old_window_from,
            old_flushed_through,
            window_from,
            flushed_through,
            tokens_out,
            messages_out,
            bytes_out,
            cause,
            event_ids,
            from_seqs,
            through_seqs,
            tokens,
            messages,
            version,
            question_seq,
            lazily,
            delay_seconds,
        )


class EndDelayRow(NamedTuple):
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class EndDelay(Query[EndDelayRow]):
    """The work of a session waits no longer for more to share its model calls; returns its lanes."""

    __slots__ = ()
    name = "end_delay"
    row = EndDelayRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class PostponePlanning(Query[Never]):
    """Nothing could be flushed: do not plan again before the window has grown by so much."""

    __slots__ = ()
    name = "postpone_planning"
    repeatable = True

    def __init__(
        self,
        *,
        tokens_more: int,
        shard_key: UUID,
        session_key: UUID,
        incarnation: UUID,
        old_window_from: int,
        old_flushed_through: int,
    ) -> None:
        self.values = (tokens_more, shard_key, session_key, incarnation, old_window_from, old_flushed_through)


class RipeWatchesRow(NamedTuple):
    shard_key: UUID
    session_key: UUID
    watch_id: UUID
    cause: str


class RipeWatches(Query[RipeWatchesRow]):
    """Sessions that it is time to look at.  Nothing is locked: a flush is a compare-and-set."""

    __slots__ = ()
    name = "ripe_watches"
    row = RipeWatchesRow

    def __init__(self, *, limit: int) -> None:
        self.values = (limit,)


class EndWatch(Query[Never]):
    """Delete a watch that was looked at."""

    __slots__ = ()
    name = "end_watch"
    repeatable = True

    def __init__(self, *, shard_key: UUID, session_key: UUID, watch_id: UUID) -> None:
        self.values = (shard_key, session_key, watch_id)


class WatchAgain(Query[Never]):
    """The session was used since: replace this watch by one for the end of its new idle period."""

    __slots__ = ()
    name = "watch_again"
    repeatable = True

    def __init__(self, *, shard_key: UUID, session_key: UUID, watch_id: UUID, wait_seconds: float) -> None:
        self.values = (shard_key, session_key, watch_id, wait_seconds)


class PutOffWatchRow(NamedTuple):
    watch_id: UUID


class PutOffWatch(Query[PutOffWatchRow]):
    """Looking at this session failed: let the others come first for a while."""

    __slots__ = ()
    name = "put_off_watch"
    row = PutOffWatchRow

    def __init__(self, *, wait_seconds: float, shard_key: UUID, session_key: UUID, watch_id: UUID) -> None:
        self.values = (wait_seconds, shard_key, session_key, watch_id)
