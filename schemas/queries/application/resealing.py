"""The statements of ``schemas/sql/resealing.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import (
    BatchIdRow,
    EventIdRow,
    FactIdRow,
    KeyRow,
    NumberRow,
    PieceRow,
    RequestKeyRow,
    SeqRow,
    SessionKeyRow,
    StepRow,
)


class UnsealedMessagesRow(NamedTuple):
    session_key: UUID
    seq: int
    version: str
    id: str
    digest: bytes
    envelope: str
    metadata: str | None
    calls: str | None
    answers: str | None
    labels: list[int] | None


class UnsealedMessages(Query[UnsealedMessagesRow], name="unsealed_messages", repeatable=True):
    """The next messages of an owner of which something is not sealed under the newest data key, whose tokens
    begin with the prefix.
    """

    shard_key: UUID
    after_session: UUID
    after_seq: int
    prefix: str
    limit: int


class ResealMessages(Query[SeqRow], name="reseal_messages", repeatable=True):
    """Store messages in the form that they are to have."""

    session_keys: list[UUID]
    seqs: list[int]
    versions: list[str]
    digests: list[bytes]
    envelopes: list[str]
    metadata: list[str | None]
    calls: list[str | None]
    answers: list[str | None]
    labels: list[str | None]
    shard_key: UUID


class UnsealedSharedMessagesRow(NamedTuple):
    session_key: UUID
    seq: int
    version: str
    id: str
    envelope: str
    metadata: str | None


class UnsealedSharedMessages(
    Query[UnsealedSharedMessagesRow], name="unsealed_shared_messages", repeatable=True
):
    """The same of copies in a shared scope."""

    shard_key: UUID
    after_session: UUID
    after_seq: int
    prefix: str
    limit: int


class ResealSharedMessages(Query[SeqRow], name="reseal_shared_messages", repeatable=True):
    """Store copies in the form that they are to have."""

    session_keys: list[UUID]
    seqs: list[int]
    versions: list[str]
    envelopes: list[str]
    metadata: list[str | None]
    shard_key: UUID


class UnsealedCorrectionsRow(NamedTuple):
    session_key: UUID
    number: int
    digest: bytes


class UnsealedCorrections(Query[UnsealedCorrectionsRow], name="unsealed_corrections", repeatable=True):
    """The next corrections of an owner whose digest of the content asked for is not keyed."""

    shard_key: UUID
    after_session: UUID
    after_number: int
    limit: int


class ResealCorrections(Query[NumberRow], name="reseal_corrections", repeatable=True):
    """Store the keyed forms of these digests."""

    session_keys: list[UUID]
    numbers: list[int]
    digests: list[bytes]
    shard_key: UUID


class UnsealedChunksRow(NamedTuple):
    generation_id: int
    session_key: UUID
    from_seq: int
    piece: int
    version: str
    lexemes: str
    speaker: list[str]


class UnsealedChunks(Query[UnsealedChunksRow], name="unsealed_chunks", repeatable=True):
    """The next pieces of an owner's messages, of any generation, with words that are not keyed. With vectors
    off, those that still have one as well.
    """

    shard_key: UUID
    after_generation: int
    after_session: UUID
    after_seq: int
    after_piece: int
    has_vectors: bool
    limit: int


class ResealChunks(Query[PieceRow], name="reseal_chunks", repeatable=True):
    """Store pieces with keyed words."""

    shard_key: UUID
    has_vectors: bool
    generation_ids: list[int]
    session_keys: list[UUID]
    from_seqs: list[int]
    pieces: list[int]
    versions: list[str]
    lexemes: list[str]
    speakers: list[str]


class UnsealedStatesRow(NamedTuple):
    batch_id: UUID
    version: str
    state: str


class UnsealedStates(Query[UnsealedStatesRow], name="unsealed_states", repeatable=True):
    """The next states of an owner's lanes that are not sealed under the newest data key."""

    shard_key: UUID
    after_batch: UUID
    prefix: str
    limit: int


class ResealStates(Query[BatchIdRow], name="reseal_states", repeatable=True):
    """Store states in the form that they are to have."""

    batch_ids: list[UUID]
    versions: list[str]
    states: list[str]
    shard_key: UUID


class UnsealedAnswersRow(NamedTuple):
    batch_id: UUID
    step: str
    version: str
    body: bytes


class UnsealedAnswers(Query[UnsealedAnswersRow], name="unsealed_answers", repeatable=True):
    """The next stored answers of models that are not sealed under the newest data key."""

    shard_key: UUID
    after_batch: UUID
    after_step: str
    prefix: bytes
    limit: int


class ResealAnswers(Query[StepRow], name="reseal_answers", repeatable=True):
    """Store answers in the form that they are to have."""

    batch_ids: list[UUID]
    steps: list[str]
    versions: list[str]
    bodies: list[bytes]
    shard_key: UUID


class UnsealedFactsRow(NamedTuple):
    generation_id: int
    fact_id: UUID
    version: str
    text: str
    fingerprint: bytes
    lexemes: list[str]
    topics: list[str]
    said_by: str | None
    input: str | None
    feedback: str | None


class UnsealedFacts(Query[UnsealedFactsRow], name="unsealed_facts", repeatable=True):
    """The next facts of an owner, of any generation, of which something is not sealed under the newest data
    key.
    """

    shard_key: UUID
    after_generation: int
    after_fact: UUID
    prefix: str
    limit: int


class ResealFacts(Query[FactIdRow], name="reseal_facts", repeatable=True):
    """Store facts in the form that they are to have. One whose words another live fact has got in its keyed
    form in between ends in favour of that one.
    """

    facts: str
    shard_key: UUID


class UnsealedRevisionsRow(NamedTuple):
    generation_id: int
    fact_id: UUID
    revision: int
    version: str
    text: str
    fingerprint: bytes
    lexemes: list[str]
    own_text: str | None
    own_fingerprint: bytes | None
    own_lexemes: list[str] | None


class UnsealedRevisions(Query[UnsealedRevisionsRow], name="unsealed_revisions", repeatable=True):
    """The next revisions of an owner's facts of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_generation: int
    after_fact: UUID
    after_revision: int
    prefix: str
    limit: int


class ResealRevisions(Query[FactIdRow], name="reseal_revisions", repeatable=True):
    """Store revisions in the form that they are to have."""

    revisions: str
    shard_key: UUID


class UnsealedCandidatesRow(NamedTuple):
    generation_id: int
    event_id: UUID
    ordinal: int
    version: str
    text: str
    fingerprint: bytes
    topics: list[str]
    said_by: str | None


class UnsealedCandidates(Query[UnsealedCandidatesRow], name="unsealed_candidates", repeatable=True):
    """The next candidates of an owner of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_generation: int
    after_event: UUID
    after_ordinal: int
    prefix: str
    limit: int


class ResealCandidates(Query[EventIdRow], name="reseal_candidates", repeatable=True):
    """Store candidates in the form that they are to have."""

    candidates: str
    shard_key: UUID


class UnsealedFactEventsRow(NamedTuple):
    number: int
    version: str
    payload: str | None
    traces: str


class UnsealedFactEvents(Query[UnsealedFactEventsRow], name="unsealed_fact_events", repeatable=True):
    """The next of people's events about an owner's facts of which something is not sealed under the newest
    data key.
    """

    shard_key: UUID
    after_number: int
    prefix: str
    limit: int


class ResealFactEvents(Query[NumberRow], name="reseal_fact_events", repeatable=True):
    """Store these events in the form that they are to have."""

    numbers: list[int]
    versions: list[str]
    payloads: list[str | None]
    traces: list[str]
    shard_key: UUID


class UnsealedItemsRow(NamedTuple):
    path: str
    key: str
    version: str
    value: str


class UnsealedItems(Query[UnsealedItemsRow], name="unsealed_items", repeatable=True):
    """The next items of a store that are not sealed under the newest data key."""

    shard_key: UUID
    after_path: str
    after_key: str
    prefix: str
    limit: int


class ResealItems(Query[KeyRow], name="reseal_items", repeatable=True):
    """Store items in the form that they are to have."""

    paths: list[str]
    keys: list[str]
    versions: list[str]
    texts: list[str]
    shard_key: UUID


class UnsealedArchivedInputsRow(NamedTuple):
    session_key: UUID
    seq: int
    generation_id: int
    version: str
    id: str
    envelope: str
    metadata: str | None


class UnsealedArchivedInputs(
    Query[UnsealedArchivedInputsRow], name="unsealed_archived_inputs", repeatable=True
):
    """The next messages from the archive, kept for a new derivation, that are not sealed under the newest
    data key.
    """

    shard_key: UUID
    after_session: UUID
    after_seq: int
    after_generation: int
    prefix: str
    limit: int


class ResealArchivedInputs(Query[SeqRow], name="reseal_archived_inputs", repeatable=True):
    """Store them in the form that they are to have."""

    session_keys: list[UUID]
    seqs: list[int]
    generation_ids: list[int]
    versions: list[str]
    envelopes: list[str]
    metadata: list[str | None]
    shard_key: UUID


class UnsealedResponsesRow(NamedTuple):
    request_key: UUID
    version: str
    body: str


class UnsealedResponses(Query[UnsealedResponsesRow], name="unsealed_responses", repeatable=True):
    """The next responses that the HTTP service keeps for a day and that are not sealed under the newest data
    key.
    """

    shard_key: UUID
    after_request: UUID
    prefix: str
    limit: int


class ResealResponses(Query[RequestKeyRow], name="reseal_responses", repeatable=True):
    """Store these responses in the form that they are to have."""

    request_keys: list[UUID]
    versions: list[str]
    bodies: list[str]
    shard_key: UUID


class UnsealedRunsRow(NamedTuple):
    session_key: UUID
    run_id: str
    digests: list[bytes]


class UnsealedRuns(Query[UnsealedRunsRow], name="unsealed_runs", repeatable=True):
    """The next runs of an owner of whose messages, as they were given, not all digests are keyed."""

    shard_key: UUID
    after_session: UUID
    after_run: str
    limit: int


class ResealRun(Query[SessionKeyRow], name="reseal_run", repeatable=True):
    """Store the keyed forms of a run's digests, unless the run was changed meanwhile."""

    digests: list[bytes]
    shard_key: UUID
    session_key: UUID
    run_id: str
    known: list[bytes]
