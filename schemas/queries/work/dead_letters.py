"""The statements of ``schemas/sql/dead_letters.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import BatchIdRow, CurrentRow, EventIdRow, LeaseEpochRow


class ListDeadLettersRow(NamedTuple):
    event_id: UUID
    stage: str
    generation_id: int
    pipeline: str
    namespace: str
    session_id: str
    user_id: str | None
    shard_key: UUID
    session_key: UUID
    scope_key: UUID
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    cause: str
    flushed_at: datetime
    died_at: datetime
    batch_id: UUID
    reason: str
    current: bool
    generation_state: str
    dropped_at: datetime | None
    retry_at: datetime | None
    retries: int


class ListDeadLetters(Query[ListDeadLettersRow], name="list_dead_letters", repeatable=True):
    """Dead letters with their names, oldest first; dropped ones only if asked for.  Behind a place in that
    order, if one is given, and so many at most.
    """

    namespace: str | None
    session_id: str | None
    pipeline: str | None
    stage: str | None
    event_id: UUID | None
    dropped: bool
    after_at: datetime | None
    after_session: UUID | None
    after_seq: int | None
    after_generation: int | None
    after_stage: str | None
    limit: int | None


class RipeLettersRow(NamedTuple):
    event_id: UUID
    stage: str
    generation_id: int


class RipeLetters(Query[RipeLettersRow], name="ripe_letters", repeatable=True):
    """The dead letters that are to be retried now.  Nothing is locked: a retry deletes the letter."""

    stages: list[str]
    limit: int


class ReopenLane(Query[LeaseEpochRow], name="reopen_lane"):
    """The lane's failure counts are cleared, and it may be tried at once.  The row stays locked until the
    end. An ordered lane is also taken from its holder, which would continue from a state that is about to
    be deleted.
    """

    seize: bool
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class ReviveEvent(Query[CurrentRow], name="revive_event"):
    """Delete the dead letter and its receipt, and make the event due again; after a reset it is void instead.
    Merge work is sized by its candidates, as when extract passed it on.  Where the derivation does not
    serve the owner, it is left to the replay slots (ring_at: infinity). retries: how often it was retried
    by itself, this one included.
    """

    shard_key: UUID
    session_key: UUID
    generation_id: int
    stage: str
    from_seq: int
    event_id: UUID
    retries: int


class Refold(Query[EventIdRow], name="refold"):
    """Take an ordered lane back to before the first of its folds that holds what comes behind an event:
    behind it in the conversation, or, where a lane serves several sessions, flushed after it.
    """

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str
    event_id: UUID


class DropLetter(Query[BatchIdRow], name="drop_letter"):
    """Give up for good: receipt and batch stay dead, and the letter stays as the record of the drop."""

    shard_key: UUID
    session_key: UUID
    generation_id: int
    stage: str
    from_seq: int
    event_id: UUID
