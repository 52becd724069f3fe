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


class LatestState(Query[LatestStateRow], name="latest_state", repeatable=True):
    """The state that an ordered lane continues from."""

    marks = Marks(owner=0, opens=(Mark(0, "json", "state"),))
    shard_key: UUID
    scope_key: UUID
    generation_id: int


class InsertState(Query[Never], name="insert_state"):
    """The state after a batch, with the next number of its lane."""

    marks = Marks(owner=0, seals=(Mark(4, "json", "state"),))
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    through_seq: int
    state: str
    batch_id: UUID


class SessionSummaryRow(NamedTuple):
    is_fed: bool
    flushed_through: int
    state: str | None
    through_seq: int
    created_at: datetime


class SessionSummary(Query[SessionSummaryRow], name="session_summary", repeatable=True):
    """The summary of a session in the derivation that serves its owner, if there is one; whether the session
    feeds summaries, and through which message it was delivered.
    """

    marks = Marks(owner=0, opens=(Mark(2, "json", "state"),))
    shard_key: UUID
    session_key: UUID
