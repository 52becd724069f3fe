"""The statements of ``schemas/sql/sharing.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class SharedScopeOfRow(NamedTuple):
    shared_key: UUID
    namespace: str
    session_id: str
    incarnation: UUID


class SharedScopeOf(Query[SharedScopeOfRow]):
    """The scope that a session shares with, if any, and the session's life and names."""

    __slots__ = ()
    name = "shared_scope_of"
    repeatable = True
    row = SharedScopeOfRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class LockSharedSessionRow(NamedTuple):
    is_gone: bool


class LockSharedSession(Query[LockSharedSessionRow]):
    """Record that this incarnation of a session shares, and lock its row until the end of the transaction;
    returns whether it was forgotten.
    """

    __slots__ = ()
    name = "lock_shared_session"
    row = LockSharedSessionRow

    def __init__(
        self, *, shard_key: UUID, session_key: UUID, incarnation: UUID, owner_key: UUID, session_id: str
    ) -> None:
        self.values = (shard_key, session_key, incarnation, owner_key, session_id)


class SharedCopiesRow(NamedTuple):
    seq: int
    id: str
    envelope: str


class SharedCopies(Query[SharedCopiesRow]):
    """What was copied of a range of a session's messages."""

    __slots__ = ()
    name = "shared_copies"
    row = SharedCopiesRow
    marks = Marks(owner=0, opens=(Mark(2, "json", "message", 1),))

    def __init__(self, *, shard_key: UUID, session_key: UUID, from_seq: int, through_seq: int) -> None:
        self.values = (shard_key, session_key, from_seq, through_seq)


class ClearSharedRow(NamedTuple):
    nothing: str | None


class ClearShared(Query[ClearSharedRow]):
    """Remove some copies of a session's messages (clear_shared_v1)."""

    __slots__ = ()
    name = "clear_shared"
    row = ClearSharedRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, seqs: list[int]) -> None:
        self.values = (shard_key, session_key, seqs)


class ShareMessages(Query[Never]):
    """Copies of messages; those that are there already stay."""

    __slots__ = ()
    name = "share_messages"
    marks = Marks(
        owner=0,
        seals=(
            Mark(8, "json", "message", 4),
            Mark(9, "json", "metadata", 4),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        incarnation: UUID,
        seqs: list[int],
        ids: list[str],
        roles: list[str],
        tokens: list[int],
        created_at: list[datetime],
        envelopes: list[str],
        metadata: list[str | None],
    ) -> None:
        self.values = (
            shard_key,
            session_key,
            incarnation,
            seqs,
            ids,
            roles,
            tokens,
            created_at,
            envelopes,
            metadata,
        )


class ShareChunks(Query[Never]):
    """Insert or update searchable pieces of these messages."""

    __slots__ = ()
    name = "share_chunks"
    marks = Marks(
        owner=0,
        seals=(
            Mark(9, "tsvector"),
            Mark(12, "array"),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int,
        batch_id: UUID,
        session_keys: list[UUID],
        from_seqs: list[int],
        pieces: list[int],
        through_seqs: list[int],
        event_ids: list[UUID],
        lengths: list[int],
        lexemes: list[str],
        embeddings: list[str | None],
        roles: list[str],
        speakers: list[str],
        tones: list[int],
        said_on: list[date | None],
    ) -> None:
        self.values = (
            shard_key,
            generation_id,
            batch_id,
            session_keys,
            from_seqs,
            pieces,
            through_seqs,
            event_ids,
            lengths,
            lexemes,
            embeddings,
            roles,
            speakers,
            tones,
            said_on,
        )


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


class SearchSharedChunks(Query[SearchSharedChunksRow]):
    """The best messages of a shared scope for a query, best first, each with those beside it
    (search_hits_v1).
    """

    __slots__ = ()
    name = "search_shared_chunks"
    repeatable = True
    row = SearchSharedChunksRow
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

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int | None,
        session_key: UUID,
        visible_from: int,
        embedding: str | None,
        lexemes: list[str],
        similarity_cutoff: float,
        top_k: int,
        is_own: bool,
        names: list[str],
        dates_from: list[date],
        dates_through: list[date],
        dates_fit: list[float],
        beside: int,
        words: int,
    ) -> None:
        self.values = (
            shard_key,
            generation_id,
            session_key,
            visible_from,
            embedding,
            lexemes,
            similarity_cutoff,
            top_k,
            is_own,
            names,
            dates_from,
            dates_through,
            dates_fit,
            beside,
            words,
        )


class SharedSessionNamesRow(NamedTuple):
    session_key: UUID
    session_id: str


class SharedSessionNames(Query[SharedSessionNamesRow]):
    """The names of sessions that share with a scope."""

    __slots__ = ()
    name = "shared_session_names"
    repeatable = True
    row = SharedSessionNamesRow

    def __init__(self, *, shard_key: UUID, session_keys: list[UUID]) -> None:
        self.values = (shard_key, session_keys)


class SharedLivesRow(NamedTuple):
    shared_key: UUID
    incarnations: list[UUID]


class SharedLives(Query[SharedLivesRow]):
    """The scope that a session shares with, and all of its incarnations that may have shared messages."""

    __slots__ = ()
    name = "shared_lives"
    repeatable = True
    row = SharedLivesRow

    def __init__(self, *, owner_key: UUID, session_key: UUID) -> None:
        self.values = (owner_key, session_key)


class ForgetSharedRow(NamedTuple):
    nothing: str | None


class ForgetShared(Query[ForgetSharedRow]):
    """Remove what these incarnations of a session shared with a scope, for good."""

    __slots__ = ()
    name = "forget_shared"
    repeatable = True
    row = ForgetSharedRow

    def __init__(
        self, *, shard_key: UUID, session_key: UUID, owner_key: UUID, incarnations: list[UUID]
    ) -> None:
        self.values = (shard_key, session_key, owner_key, incarnations)
