"""The statements of ``schemas/sql/facts_merge.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import FactIdRow, NotedRow
from strandline.schemas.sealing.marks import Mark, Marks


class NoteFactsChange(Query[NotedRow], name="note_facts_change"):
    """A merge is about to change facts of an owner."""

    shard_key: UUID


class InsertCandidates(Query[Never], name="insert_candidates"):
    """Insert the candidates that extract found."""

    marks = Marks(
        owner=0,
        seals=(
            Mark(
                5, "within", "*.text=text:fact;*.fingerprint=hex;*.topics.*=name:topic;*.said_by=name:said_by"
            ),
        ),
    )
    shard_key: UUID
    generation_id: int
    batch_id: UUID
    model: str
    prompt_hash: str
    candidates: str


class PendingCandidatesRow(NamedTuple):
    event_id: UUID
    ordinal: int
    session_key: UUID
    batch_id: UUID
    text: str
    seqs: list[int]
    topics: list[str]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    model: str
    prompt_hash: str
    context_seqs: list[int]
    flushed_at: datetime | None
    is_by_assistants: bool


class PendingCandidates(Query[PendingCandidatesRow], name="pending_candidates", repeatable=True):
    """The candidates that a merge has to apply, in the order of its batch; with the lines that extract saw as
    context.
    """

    marks = Marks(
        owner=0,
        opens=(
            Mark(4, "text", "fact"),
            Mark(6, "name", "topic"),
            Mark(7, "name", "said_by"),
        ),
    )
    shard_key: UUID
    event_ids: list[UUID]
    generation_id: int


class DropCandidate(Query[Never], name="drop_candidate"):
    """Drop a candidate because of a person's event."""

    number: int
    shard_key: UUID
    generation_id: int
    event_id: UUID
    ordinal: int


class RelatedFactsRow(NamedTuple):
    fact_id: UUID
    text: str
    said_at: datetime
    fingerprint: bytes
    is_by_assistants: bool
    number: int | None
    created_at: datetime
    session_keys: list[UUID]
    last_seqs: list[int]


class RelatedFacts(Query[RelatedFactsRow], name="related_facts", repeatable=True):
    """The owner's live facts that have most to do with one of the candidates, closest first: all while they
    are few; with the person's event that worded a fact last, if one did.  Near are facts by words and
    kinds of statement, each by how few hold it, none that half of them hold; and by the vectors of the
    messages, as far as there are any.  With the last message of each session that a fact comes from.
    """

    marks = Marks(
        owner=1,
        seals=(
            Mark(0, "query"),
            Mark(5, "query"),
        ),
        opens=(
            Mark(1, "text", "fact"),
            Mark(3, "fingerprint", "", 1),
        ),
    )
    fingerprints: list[bytes]
    shard_key: UUID
    generation_id: int
    numbers: list[int]
    weights: list[float]
    lexemes: list[str]
    limit: int
    sessions: list[UUID]
    seqs: list[int]
    cited: list[int]
    meaning: float


class AddFactRow(NamedTuple):
    fact_id: UUID
    is_new: bool


class AddFact(Query[AddFactRow], name="add_fact"):
    """Insert a new fact with its first revision. If a live fact has the same words, that one is kept instead,
    with the candidate as another source, and without the doubt. Its id follows from its event and words,
    so that each derivation of the event gives it again, with the feedback and creation that it had.  A
    fact that other messages said first has the id from these: another derivation of the event tells it, or
    what went with a correction of messages that were delivered together.  An id that this derivation has,
    or a person deleted, is not given again; fact_id is that of the fact if there is no other.
    """

    marks = Marks(
        owner=2,
        seals=(
            Mark(7, "text", "fact"),
            Mark(1, "digest"),
            Mark(8, "word"),
            Mark(9, "name", "topic"),
            Mark(10, "name", "said_by"),
            Mark(16, "text", "fact"),
            Mark(17, "digest"),
            Mark(18, "word"),
        ),
    )
    event_id: UUID
    fingerprint: bytes
    shard_key: UUID
    generation_id: int
    session_key: UUID
    extract_batch_id: UUID
    fact_id: UUID
    text: str
    lexemes: list[str]
    topics: list[str]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    doubt_operation: str | None
    doubt_reason: str | None
    doubt_fact_id: UUID | None
    own_text: str | None
    own_fingerprint: bytes | None
    own_lexemes: list[str] | None
    seqs: list[int]
    merge_batch_id: UUID
    model: str
    prompt_hash: str


class UpdateFact(Query[FactIdRow], name="update_fact"):
    """Update a fact, if it still has the words that the merge was planned with; its earlier words stay in its
    revisions.
    """

    marks = Marks(
        owner=6,
        seals=(
            Mark(0, "text", "fact"),
            Mark(1, "digest"),
            Mark(2, "word"),
            Mark(3, "name", "topic"),
            Mark(9, "digest"),
        ),
    )
    text: str
    fingerprint: bytes
    lexemes: list[str]
    topics: list[str]
    said_at: datetime
    about_date: date | None
    shard_key: UUID
    generation_id: int
    fact_id: UUID
    expected: bytes


class ConfirmFact(Query[FactIdRow], name="confirm_fact"):
    """Said again: change only when it was first and last said."""

    said_at: datetime
    shard_key: UUID
    generation_id: int
    fact_id: UUID


class InvalidateFact(Query[FactIdRow], name="invalidate_fact"):
    """End a fact that is no longer true, because of a later statement; it stays, with the fact that replaced
    it.
    """

    marks = Marks(owner=2, seals=(Mark(5, "digest"),))
    by_fact_id: UUID
    said_at: datetime
    shard_key: UUID
    generation_id: int
    fact_id: UUID
    expected: bytes


class InsertRevision(Query[Never], name="insert_revision"):
    """Provenance: the operation on a fact, with its event, messages, prompt and model; and the candidate's
    own words, if the fact is worded differently.
    """

    marks = Marks(
        owner=0,
        seals=(
            Mark(4, "text", "fact"),
            Mark(5, "digest"),
            Mark(6, "word"),
            Mark(7, "text", "fact"),
            Mark(8, "digest"),
            Mark(9, "word"),
        ),
    )
    shard_key: UUID
    generation_id: int
    fact_id: UUID
    operation: str
    text: str
    fingerprint: bytes
    lexemes: list[str]
    own_text: str | None
    own_fingerprint: bytes | None
    own_lexemes: list[str] | None
    event_id: UUID
    session_key: UUID
    seqs: list[int]
    extract_batch_id: UUID
    merge_batch_id: UUID
    model: str
    prompt_hash: str


class CondensingRow(NamedTuple):
    live: int
    left_by_last: int
    max_facts: int | None


class Condensing(Query[CondensingRow], name="condensing", repeatable=True):
    """How many live facts an owner has, how many the last attempt to condense them left, and the smallest
    max_facts of some sessions.
    """

    shard_key: UUID
    generation_id: int
    session_keys: list[UUID]


class CondensableFactsRow(NamedTuple):
    fact_id: UUID
    text: str
    said_at: datetime
    fingerprint: bytes
    lexemes: list[str]
    is_by_assistants: bool


class CondensableFacts(Query[CondensableFactsRow], name="condensable_facts", repeatable=True):
    """The live facts that no person has worded or judged and that no doubt concerns, longest known first."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "text", "fact"),
            Mark(3, "fingerprint", "", 1),
        ),
    )
    shard_key: UUID
    generation_id: int
    limit: int


class EndCondensed(Query[FactIdRow], name="end_condensed"):
    """End the facts that one sentence condenses: they stay, and name it."""

    fact_id: UUID
    shard_key: UUID
    generation_id: int
    parts: list[UUID]


class AddCondensed(Query[Never], name="add_condensed"):
    """The sentence, with the time, topics and speaker of what it holds, and every source of it."""

    marks = Marks(
        owner=0,
        seals=(
            Mark(4, "text", "fact"),
            Mark(5, "digest"),
            Mark(6, "word"),
            Mark(7, "name", "topic"),
        ),
    )
    shard_key: UUID
    generation_id: int
    parts: list[UUID]
    fact_id: UUID
    text: str
    fingerprint: bytes
    lexemes: list[str]
    topics: list[str]
    batch_id: UUID
    model: str
    prompt_hash: str


class RecordCondensation(Query[Never], name="record_condensation"):
    """Record the outcome of an attempt to condense."""

    shard_key: UUID
    generation_id: int
    batch_id: UUID
    outcome: str
    facts_before: int
    facts_after: int
    reason: str | None
