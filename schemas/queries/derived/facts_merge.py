"""The statements of ``schemas/sql/facts_merge.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class NoteFactsChangeRow(NamedTuple):
    noted: int


class NoteFactsChange(Query[NoteFactsChangeRow]):
    """A merge is about to change facts of an owner."""

    __slots__ = ()
    name = "note_facts_change"
    row = NoteFactsChangeRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class InsertCandidates(Query[Never]):
    """Insert the candidates that extract found."""

    __slots__ = ()
    name = "insert_candidates"
    marks = Marks(
        owner=0,
        seals=(
            Mark(
                5, "within", "*.text=text:fact;*.fingerprint=hex;*.topics.*=name:topic;*.said_by=name:said_by"
            ),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int,
        batch_id: UUID,
        model: str,
        prompt_hash: str,
        candidates: str,
    ) -> None:
        self.values = (shard_key, generation_id, batch_id, model, prompt_hash, candidates)


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


class PendingCandidates(Query[PendingCandidatesRow]):
    """The candidates that a merge has to apply, in the order of its batch; with the lines that extract saw as
    context.
    """

    __slots__ = ()
    name = "pending_candidates"
    row = PendingCandidatesRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(4, "text", "fact"),
            Mark(6, "name", "topic"),
            Mark(7, "name", "said_by"),
        ),
    )

    def __init__(self, *, shard_key: UUID, event_ids: list[UUID], generation_id: int) -> None:
        self.values = (shard_key, event_ids, generation_id)


class DropCandidate(Query[Never]):
    """Drop a candidate because of a person's event."""

    __slots__ = ()
    name = "drop_candidate"

    def __init__(
        self, *, number: int, shard_key: UUID, generation_id: int, event_id: UUID, ordinal: int
    ) -> None:
        self.values = (number, shard_key, generation_id, event_id, ordinal)


class RelatedFactsRow(NamedTuple):
    fact_id: UUID
    text: str
    said_at: datetime
    fingerprint: bytes
    is_by_assistants: bool
    number: int | None
    created_at: datetime


class RelatedFacts(Query[RelatedFactsRow]):
    """The owner's live facts that share words with the candidates, closest first; with the person's event
    that worded a fact last, if one did.
    """

    __slots__ = ()
    name = "related_facts"
    row = RelatedFactsRow
    marks = Marks(
        owner=2,
        seals=(
            Mark(0, "query"),
            Mark(1, "query"),
        ),
        opens=(
            Mark(1, "text", "fact"),
            Mark(3, "fingerprint", "", 1),
        ),
    )

    def __init__(
        self,
        *,
        fingerprints: list[bytes],
        lexemes: list[str],
        shard_key: UUID,
        generation_id: int,
        limit: int,
    ) -> None:
        self.values = (fingerprints, lexemes, shard_key, generation_id, limit)


class AddFactRow(NamedTuple):
    fact_id: UUID


class AddFact(Query[AddFactRow]):
    """Insert a new fact with its first revision. If a live fact has the same words, that one is kept instead,
    with the candidate as another source.
    """

    __slots__ = ()
    name = "add_fact"
    row = AddFactRow
    marks = Marks(
        owner=0,
        seals=(
            Mark(3, "text", "fact"),
            Mark(4, "digest"),
            Mark(5, "word"),
            Mark(6, "name", "topic"),
            Mark(7, "name", "said_by"),
            Mark(10, "text", "fact"),
            Mark(11, "digest"),
            Mark(12, "word"),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int,
        fact_id: UUID,
        text: str,
        fingerprint: bytes,
        lexemes: list[str],
        topics: list[str],
        said_by: str | None,
        about_date: date | None,
        said_at: datetime,
        own_text: str | None,
        own_fingerprint: bytes | None,
        own_lexemes: list[str] | None,
        event_id: UUID,
        session_key: UUID,
        seqs: list[int],
        extract_batch_id: UUID,
        merge_batch_id: UUID,
        model: str,
        prompt_hash: str,
    ) -> None:
        self.values = (
            shard_key,
            generation_id,
            fact_id,
            text,
            fingerprint,
            lexemes,
            topics,
            said_by,
            about_date,
            said_at,
            own_text,
            own_fingerprint,
            own_lexemes,
            event_id,
            session_key,
            seqs,
            extract_batch_id,
            merge_batch_id,
            model,
            prompt_hash,
        )


class UpdateFactRow(NamedTuple):
    fact_id: UUID


class UpdateFact(Query[UpdateFactRow]):
    """Update a fact, if it still has the words that the merge was planned with; its earlier words stay in its
    revisions.
    """

    __slots__ = ()
    name = "update_fact"
    row = UpdateFactRow
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

    def __init__(
        self,
        *,
        text: str,
        fingerprint: bytes,
        lexemes: list[str],
        topics: list[str],
        about_date: date | None,
        said_at: datetime,
        shard_key: UUID,
        generation_id: int,
        fact_id: UUID,
        expected: bytes,
    ) -> None:
        self.values = (
            text,
            fingerprint,
            lexemes,
            topics,
            about_date,
            said_at,
            shard_key,
            generation_id,
            fact_id,
            expected,
        )


class ConfirmFactRow(NamedTuple):
    fact_id: UUID


class ConfirmFact(Query[ConfirmFactRow]):
    """Said again: change only when it was first and last said."""

    __slots__ = ()
    name = "confirm_fact"
    row = ConfirmFactRow

    def __init__(self, *, said_at: datetime, shard_key: UUID, generation_id: int, fact_id: UUID) -> None:
        self.values = (said_at, shard_key, generation_id, fact_id)


class InvalidateFactRow(NamedTuple):
    fact_id: UUID


class InvalidateFact(Query[InvalidateFactRow]):
    """End a fact that is no longer true, because of a later statement; it stays, with the fact that replaced
    it.
    """

    __slots__ = ()
    name = "invalidate_fact"
    row = InvalidateFactRow
    marks = Marks(owner=2, seals=(Mark(5, "digest"),))

    def __init__(
        self,
        *,
        by_fact_id: UUID,
        said_at: datetime,
        shard_key: UUID,
        generation_id: int,
        fact_id: UUID,
        expected: bytes,
    ) -> None:
        self.values = (by_fact_id, said_at, shard_key, generation_id, fact_id, expected)


class InsertRevision(Query[Never]):
    """Provenance: the operation on a fact, with its event, messages, prompt and model; and the candidate's
    own words, if the fact is worded differently.
    """

    __slots__ = ()
    name = "insert_revision"
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

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int,
        fact_id: UUID,
        operation: str,
        text: str,
        fingerprint: bytes,
        lexemes: list[str],
        own_text: str | None,
        own_fingerprint: bytes | None,
        own_lexemes: list[str] | None,
        event_id: UUID,
        session_key: UUID,
        seqs: list[int],
        extract_batch_id: UUID,
        merge_batch_id: UUID,
        model: str,
        prompt_hash: str,
    ) -> None:
        self.values = (
            shard_key,
            generation_id,
            fact_id,
            operation,
            text,
            fingerprint,
            lexemes,
            own_text,
            own_fingerprint,
            own_lexemes,
            event_id,
            session_key,
            seqs,
            extract_batch_id,
            merge_batch_id,
            model,
            prompt_hash,
        )


class CondensingRow(NamedTuple):
    live: int
    left_by_last: int
    max_facts: int | None


class Condensing(Query[CondensingRow]):
    """How many live facts an owner has, how many the last attempt to condense them left, and the smallest
    max_facts of some sessions.
    """

    __slots__ = ()
    name = "condensing"
    row = CondensingRow

    def __init__(self, *, shard_key: UUID, generation_id: int, session_keys: list[UUID]) -> None:
        self.values = (shard_key, generation_id, session_keys)


class CondensableFactsRow(NamedTuple):
    fact_id: UUID
    text: str
    said_at: datetime
    fingerprint: bytes
    lexemes: list[str]
    is_by_assistants: bool


class CondensableFacts(Query[CondensableFactsRow]):
    """The live facts that no person has worded or judged, longest known first."""

    __slots__ = ()
    name = "condensable_facts"
    row = CondensableFactsRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "text", "fact"),
            Mark(3, "fingerprint", "", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, generation_id: int, limit: int) -> None:
        self.values = (shard_key, generation_id, limit)


class EndCondensedRow(NamedTuple):
    fact_id: UUID


class EndCondensed(Query[EndCondensedRow]):
    """End the facts that one sentence condenses: they stay, and name it."""

    __slots__ = ()
    name = "end_condensed"
    row = EndCondensedRow

    def __init__(self, *, fact_id: UUID, shard_key: UUID, generation_id: int, parts: list[UUID]) -> None:
        self.values = (fact_id, shard_key, generation_id, parts)


class AddCondensed(Query[Never]):
    """The sentence, with the time, topics and speaker of what it holds, and every source of it."""

    __slots__ = ()
    name = "add_condensed"
    marks = Marks(
        owner=0,
        seals=(
            Mark(4, "text", "fact"),
            Mark(5, "digest"),
            Mark(6, "word"),
            Mark(7, "name", "topic"),
        ),
    )

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int,
        parts: list[UUID],
        fact_id: UUID,
        text: str,
        fingerprint: bytes,
        lexemes: list[str],
        topics: list[str],
        batch_id: UUID,
        model: str,
        prompt_hash: str,
    ) -> None:
        self.values = (
            shard_key,
            generation_id,
            parts,
            fact_id,
            text,
            fingerprint,
            lexemes,
            topics,
            batch_id,
            model,
            prompt_hash,
        )


class RecordCondensation(Query[Never]):
    """Record the outcome of an attempt to condense."""

    __slots__ = ()
    name = "record_condensation"

    def __init__(
        self,
        *,
        shard_key: UUID,
        generation_id: int,
        batch_id: UUID,
        outcome: str,
        facts_before: int,
        facts_after: int,
        reason: str | None,
    ) -> None:
        self.values = (shard_key, generation_id, batch_id, outcome, facts_before, facts_after, reason)
