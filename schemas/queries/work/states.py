"""The statements of ``schemas/sql/states.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class LatestStateRow(NamedTuple):
    state: str
    through_seq: int


class LatestState(Query[LatestStateRow]):
    """The state that an ordered lane continues from."""

    __slots__ = ()
    name = "latest_state"
    row = LatestStateRow
    marks = Marks(owner=0, opens=(Mark(0, "json", "state"),))

    def __init__(self, *, shard_key: UUID, scope_key: UUID, generation_id: int) -> None:
        self.values = (shard_key, scope_key, generation_id)


class InsertState(Query[Never]):
    """The state after a batch, with the next number of its lane."""

    __slots__ = ()
    name = "insert_state"
    marks = Marks(owner=0, seals=(Mark(4, "json", "state"),))

    def __init__(
        self,
        *,
        shard_key: UUID,
        scope_key: UUID,
        generation_id: int,
        through_seq: int,
        state: str,
        batch_id: UUID,
    ) -> None:
        self.values = (shard_key, scope_key, generation_id, through_seq, state, batch_id)


class SessionSummaryRow(NamedTuple):
    is_fed: bool
    flushed_through: int
    state: str | None
    through_seq: int
    created_at: datetime


class SessionSummary(Query[SessionSummaryRow]):
    """The summary of a session in the derivation that serves its owner, if there is one; whether the session
    feeds summaries, and through which message it was delivered.
    """

    __slots__ = ()
    name = "session_summary"
    repeatable = True
    row = SessionSummaryRow
    marks = Marks(owner=0, opens=(Mark(2, "json", "state"),))

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)
