"""The statements of ``schemas/sql/search.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import MessageOfHitRow, MessageOfSessionRow, SessionNameRow
from strandline.schemas.sealing.marks import Mark, Marks


class InsertChunks(Query[Never], name="insert_chunks"):
    """Searchable pieces with their lexemes and vectors."""

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


class SearchChunksRow(NamedTuple):
    score: float
    similarity: float
    session_key: UUID | None
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
    part: str | None


class SearchChunks(Query[SearchChunksRow], name="search_chunks", repeatable=True):
    """The best messages and facts of a scope for a query, best first; a message with those next to it
    (search_hits_v1). Then, of all of the owner's facts, the best by themselves; and a row with the next
    part of an index (index_part_v1).
    """

    marks = Marks(
        owner=0,
        seals=(
            Mark(6, "query"),
            Mark(16, "query"),
            Mark(12, "name", "topic"),
            Mark(24, "label", "", 3),
            Mark(25, "transition"),
        ),
        opens=(
            Mark(10, "json", "message", 6),
            Mark(11, "json", "metadata", 6),
            Mark(13, "text", "fact"),
        ),
    )
    shard_key: UUID
    generation_id: int | None
    scope_key: UUID | None
    session_key: UUID
    visible_from: int
    embedding: str | None
    lexemes: list[str]
    similarity_cutoff: float
    top_k: int
    messages: bool
    facts_generation_id: int | None
    facts_shown: list[UUID]
    topics: list[str] | None
    agent_id: str | None
    team_id: str | None
    is_own: bool
    names: list[str]
    dates_from: list[date]
    dates_through: list[date]
    dates_fit: list[float]
    words: int
    roles: list[str] | None
    since: datetime | None
    until: datetime | None
    labels: list[int] | None
    clear_labels: list[int] | None
    facts_alone_id: int | None
    top_facts: int
    beside: int
    part_of: UUID | None
    through_session: UUID
    through_seq: int
    through_piece: int
    pieces_since: int
    at_once: int


class FactsByWordsRow(NamedTuple):
    score: float
    fact_id: UUID
    fact: str
    said_at: datetime
    sources: str | None


class FactsByWords(Query[FactsByWordsRow], name="facts_by_words", repeatable=True):
    """The best of an owner's facts by the words of a query alone, best first, ranked as search_v1 ranks them
    without pieces; its steps for pieces take longer than all of this.
    """

    marks = Marks(
        owner=0,
        seals=(
            Mark(5, "query"),
            Mark(2, "name", "topic"),
        ),
        opens=(Mark(2, "text", "fact"),),
    )
    shard_key: UUID
    facts_generation_id: int
    topics: list[str] | None
    agent_id: str | None
    team_id: str | None
    lexemes: list[str]
    top_facts: int


class IndexedHits(Query[MessageOfHitRow], name="indexed_hits", repeatable=True):
    """Messages that an index in memory has ranked, each with those next to it, after a row that tells the
    version of the owner's pieces now; and, if they are asked for, all live facts up to a number of them,
    with their words.
    """

    marks = Marks(
        owner=0,
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
            Mark(6, "within", "facts.*.text=text:fact"),
        ),
    )
    shard_key: UUID
    facts_generation_id: int | None
    max_facts: int
    sessions: list[UUID]
    numbers: list[int]
    from_seqs: list[int]
    through_seqs: list[int]
    beside: int
    page_bytes: int


class AddedHits(Query[MessageOfHitRow], name="added_hits", repeatable=True):
    """As indexed_hits, for an index that lacks only added pieces: the id of the first row is their part of an
    index, and behind the messages that the index has ranked come those of the first added pieces in the
    session that is searched (shown_in, NULL: in all), in the order of the part.
    """

    marks = Marks(
        owner=0,
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
            Mark(6, "within", "facts.*.text=text:fact"),
        ),
    )
    shard_key: UUID
    generation_id: int
    scope_key: UUID | None
    pieces_since: int
    at_once: int
    shown_in: UUID | None
    shown: int
    facts_generation_id: int | None
    max_facts: int
    sessions: list[UUID]
    numbers: list[int]
    from_seqs: list[int]
    through_seqs: list[int]
    beside: int
    page_bytes: int


class UnsearchedMessages(Query[MessageOfSessionRow], name="unsearched_messages", repeatable=True):
    """Messages that a search by chunks cannot find, newest first: of the sessions last put to, those that are
    not delivered, that vectors have not covered, or that were flushed while the session fed no vectors.
    session_key: whose labels the filter has.
    """

    marks = Marks(
        owner=0,
        seals=(
            Mark(8, "label", "", 9),
            Mark(10, "transition"),
        ),
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
        ),
    )
    shard_key: UUID
    scope_key: UUID | None
    excluded_session: UUID | None
    sessions: int
    generation_id: int | None
    roles: list[str] | None
    since: datetime | None
    until: datetime | None
    labels: list[int] | None
    session_key: UUID
    clear_labels: list[int] | None
    messages: int
    page_bytes: int


class SessionNames(Query[SessionNameRow], name="session_names", repeatable=True):
    """The names of an owner's sessions."""

    shard_key: UUID
    session_keys: list[UUID]
