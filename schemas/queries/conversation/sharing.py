"""The statements of ``schemas/sql/sharing.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import IsGoneRow, NothingRow, SessionNameRow
from strandline.schemas.sealing.marks import Mark, Marks


class SharedScopeOfRow(NamedTuple):
    shared_key: UUID
    namespace: str
    session_id: str
    incarnation: UUID


class SharedScopeOf(Query[SharedScopeOfRow], name="shared_scope_of", repeatable=True):
    """The scope that a session shares with, if any, and the session's life and names."""

    shard_key: UUID
    session_key: UUID


class LockSharedSession(Query[IsGoneRow], name="lock_shared_session"):
    """Record that this incarnation of a session shares, and lock its row until the end of the transaction;
    returns whether it was forgotten.
    """

    shard_key: UUID
    session_key: UUID
    incarnation: UUID
    owner_key: UUID
    session_id: str


class SharedCopiesRow(NamedTuple):
    seq: int
    id: str
    envelope: str


class SharedCopies(Query[SharedCopiesRow], name="shared_copies", repeatable=True):
    """The copies of a range of a session's messages."""

    marks = Marks(owner=0, opens=(Mark(2, "json", "message", 1),))
    shard_key: UUID
    session_key: UUID
    from_seq: int
    through_seq: int


class ClearShared(Query[NothingRow], name="clear_shared"):
    """Remove some copies of a session's messages (clear_shared_v1)."""

    shard_key: UUID
    session_key: UUID
    seqs: list[int]


class ShareMessages(Query[Never], name="share_messages"):
    """Copies of messages; existing copies stay."""

    marks = Marks(
        owner=0,
        seals=(
            Mark(8, "json", "message", 4),
            Mark(9, "json", "metadata", 4),
        ),
    )
    shard_key: UUID
    session_key: UUID
    incarnation: UUID
    seqs: list[int]
    ids: list[str]
    roles: list[str]
    tokens: list[int]
    created_at: list[datetime]
    envelopes: list[str]
    metadata: list[str | None]


class ShareChunks(Query[Never], name="share_chunks"):
    """Insert or update searchable pieces of these messages."""

    marks = Marks(
        owner=0,
        seals=(
            Mark(9, "tsvector"),
            Mark(12, "array"),
        ),
    )
    shard_key: UUID
    generation_id: int
    batch_id: UUID
    session_keys: list[UUID]
    from_seqs: list[int]
    pieces: list[int]
    through_seqs: list[int]
    event_ids: list[UUID]
    lengths: list[int]
    lexemes: list[str]
    embeddings: list[str | None]
    roles: list[str]
    speakers: list[str]
    tones: list[int]
    said_on: list[date | None]


class SearchSharedChunksRow(NamedTuple):
    score: float
    similarity: float
    session_key: UUID
    from_seq: int
    through_seq: int
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None
    fact_id: UUID | None
    fact: str
    sources: str | None


class SearchSharedChunks(Query[SearchSharedChunksRow], name="search_shared_chunks", repeatable=True):
    """The best messages of a shared scope for a query, best first, each with those next to it
    (search_hits_v1).
    """

    marks = Marks(
        owner=0,
        seals=(
            Mark(5, "query"),
            Mark(9, "query"),
        ),
        opens=(
            Mark(10, "json", "message", 6),
            Mark(11, "json", "metadata", 6),
        ),
    )
    shard_key: UUID
    generation_id: int | None
    session_key: UUID
    visible_from: int
    embedding: str | None
    lexemes: list[str]
    similarity_cutoff: float
    top_k: int
    is_own: bool
    names: list[str]
    dates_from: list[date]
    dates_through: list[date]
    dates_fit: list[float]
    words: int
    beside: int


class SharedSessionNames(Query[SessionNameRow], name="shared_session_names", repeatable=True):
    """The names of sessions that share with a scope."""

    shard_key: UUID
    session_keys: list[UUID]


class SharedLivesRow(NamedTuple):
    shared_key: UUID
    incarnations: list[UUID]


class SharedLives(Query[SharedLivesRow], name="shared_lives", repeatable=True):
    """The scope that a session shares with, and all of its incarnations that may have shared messages."""

    owner_key: UUID
    session_key: UUID


class ForgetShared(Query[NothingRow], name="forget_shared", repeatable=True):
    """Remove what these incarnations of a session shared with a scope, for good."""

    shard_key: UUID
    session_key: UUID
    owner_key: UUID
    incarnations: list[UUID]
