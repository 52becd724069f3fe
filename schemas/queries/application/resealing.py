"""The statements of ``schemas/sql/resealing.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query


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


class UnsealedMessages(Query[UnsealedMessagesRow]):
    """The next messages of an owner of which something is not sealed under the newest data key, whose tokens
    begin with the prefix.
    """

    __slots__ = ()
    name = "unsealed_messages"
    repeatable = True
    row = UnsealedMessagesRow

    def __init__(
        self, *, shard_key: UUID, after_session: UUID, after_seq: int, prefix: str, limit: int
    ) -> None:
        self.values = (shard_key, after_session, after_seq, prefix, limit)


class ResealMessagesRow(NamedTuple):
    seq: int


class ResealMessages(Query[ResealMessagesRow]):
    """Store messages in the form that they are to have."""

    __slots__ = ()
    name = "reseal_messages"
    repeatable = True
    row = ResealMessagesRow

    def __init__(
        self,
        *,
        session_keys: list[UUID],
        seqs: list[int],
        versions: list[str],
        digests: list[bytes],
        envelopes: list[str],
        metadata: list[str | None],
        calls: list[str | None],
        answers: list[str | None],
        labels: list[str | None],
        shard_key: UUID,
    ) -> None:
        self.values = (
            session_keys,
            seqs,
            versions,
            digests,
            envelopes,
            metadata,
            calls,
            answers,
            labels,
            shard_key,
        )


class UnsealedSharedMessagesRow(NamedTuple):
    session_key: UUID
    seq: int
    version: str
    id: str
    envelope: str
    metadata: str | None


class UnsealedSharedMessages(Query[UnsealedSharedMessagesRow]):
    """The same of copies in a shared scope."""

    __slots__ = ()
    name = "unsealed_shared_messages"
    repeatable = True
    row = UnsealedSharedMessagesRow

    def __init__(
        self, *, shard_key: UUID, after_session: UUID, after_seq: int, prefix: str, limit: int
    ) -> None:
        self.values = (shard_key, after_session, after_seq, prefix, limit)


class ResealSharedMessagesRow(NamedTuple):
    seq: int


class ResealSharedMessages(Query[ResealSharedMessagesRow]):
    """Store copies in the form that they are to have."""

    __slots__ = ()
    name = "reseal_shared_messages"
    repeatable = True
    row = ResealSharedMessagesRow

    def __init__(
        self,
        *,
        session_keys: list[UUID],
        seqs: list[int],
        versions: list[str],
        envelopes: list[str],
        metadata: list[str | None],
        shard_key: UUID,
    ) -> None:
        self.values = (session_keys, seqs, versions, envelopes, metadata, shard_key)


class UnsealedCorrectionsRow(NamedTuple):
    session_key: UUID
    number: int
    digest: bytes


class UnsealedCorrections(Query[UnsealedCorrectionsRow]):
    """The next corrections of an owner whose digest of the content asked for is not keyed."""

    __slots__ = ()
    name = "unsealed_corrections"
    repeatable = True
    row = UnsealedCorrectionsRow

    def __init__(self, *, shard_key: UUID, after_session: UUID, after_number: int, limit: int) -> None:
        self.values = (shard_key, after_session, after_number, limit)


class ResealCorrectionsRow(NamedTuple):
    number: int


class ResealCorrections(Query[ResealCorrectionsRow]):
    """Store the keyed forms of these digests."""

    __slots__ = ()
    name = "reseal_corrections"
    repeatable = True
    row = ResealCorrectionsRow

    def __init__(
        self, *, session_keys: list[UUID], numbers: list[int], digests: list[bytes], shard_key: UUID
    ) -> None:
        self.values = (session_keys, numbers, digests, shard_key)


class UnsealedChunksRow(NamedTuple):
    generation_id: int
    session_key: UUID
    from_seq: int
    piece: int
    version: str
    lexemes: str
    speaker: list[str]


class UnsealedChunks(Query[UnsealedChunksRow]):
    """The next pieces of an owner's messages, of any generation, with words that are not keyed. With vectors
    off, those that still have one as well.
    """

    __slots__ = ()
    name = "unsealed_chunks"
    repeatable = True
    row = UnsealedChunksRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        after_generation: int,
        after_session: UUID,
        after_seq: int,
        after_piece: int,
        has_vectors: bool,
        limit: int,
    ) -> None:
        self.values = (shard_key, after_generation, after_session, after_seq, after_piece, has_vectors, limit)


class ResealChunksRow(NamedTuple):
    piece: int


class ResealChunks(Query[ResealChunksRow]):
    """Store pieces with keyed words."""

    __slots__ = ()
    name = "reseal_chunks"
    repeatable = True
    row = ResealChunksRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        has_vectors: bool,
        generation_ids: list[int],
        session_keys: list[UUID],
        from_seqs: list[int],
        pieces: list[int],
        versions: list[str],
        lexemes: list[str],
        speakers: list[str],
    ) -> None:
        self.values = (
            shard_key,
            has_vectors,
            generation_ids,
            session_keys,
            from_seqs,
            pieces,
            versions,
            lexemes,
            speakers,
        )


class UnsealedStatesRow(NamedTuple):
    batch_id: UUID
    version: str
    state: str


class UnsealedStates(Query[UnsealedStatesRow]):
    """The next states of an owner's lanes that are not sealed under the newest data key."""

    __slots__ = ()
    name = "unsealed_states"
    repeatable = True
    row = UnsealedStatesRow

    def __init__(self, *, shard_key: UUID, after_batch: UUID, prefix: str, limit: int) -> None:
        self.values = (shard_key, after_batch, prefix, limit)


class ResealStatesRow(NamedTuple):
    batch_id: UUID


class ResealStates(Query[ResealStatesRow]):
    """Store states in the form that they are to have."""

    __slots__ = ()
    name = "reseal_states"
    repeatable = True
    row = ResealStatesRow

    def __init__(
        self, *, batch_ids: list[UUID], versions: list[str], states: list[str], shard_key: UUID
    ) -> None:
        self.values = (batch_ids, versions, states, shard_key)


class UnsealedAnswersRow(NamedTuple):
    batch_id: UUID
    step: str
    version: str
    body: bytes


class UnsealedAnswers(Query[UnsealedAnswersRow]):
    """The next stored answers of models that are not sealed under the newest data key."""

    __slots__ = ()
    name = "unsealed_answers"
    repeatable = True
    row = UnsealedAnswersRow

    def __init__(
        self, *, shard_key: UUID, after_batch: UUID, after_step: str, prefix: bytes, limit: int
    ) -> None:
        self.values = (shard_key, after_batch, after_step, prefix, limit)


class ResealAnswersRow(NamedTuple):
    step: str


class ResealAnswers(Query[ResealAnswersRow]):
    """Store answers in the form that they are to have."""

    __slots__ = ()
    name = "reseal_answers"
    repeatable = True
    row = ResealAnswersRow

    def __init__(
        self,
        *,
        batch_ids: list[UUID],
        steps: list[str],
        versions: list[str],
        bodies: list[bytes],
        shard_key: UUID,
    ) -> None:
        self.values = (batch_ids, steps, versions, bodies, shard_key)


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


class UnsealedFacts(Query[UnsealedFactsRow]):
    """The next facts of an owner, of any generation, of which something is not sealed under the newest data
    key.
    """

    __slots__ = ()
    name = "unsealed_facts"
    repeatable = True
    row = UnsealedFactsRow

    def __init__(
        self, *, shard_key: UUID, after_generation: int, after_fact: UUID, prefix: str, limit: int
    ) -> None:
        self.values = (shard_key, after_generation, after_fact, prefix, limit)


class ResealFactsRow(NamedTuple):
    fact_id: UUID


class ResealFacts(Query[ResealFactsRow]):
    """Store facts in the form that they are to have. One whose words another live fact has got in its keyed
    form in between ends in favour of that one.
    """

    __slots__ = ()
    name = "reseal_facts"
    repeatable = True
    row = ResealFactsRow

    def __init__(self, *, facts: str, shard_key: UUID) -> None:
        self.values = (facts, shard_key)


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


class UnsealedRevisions(Query[UnsealedRevisionsRow]):
    """The next revisions of an owner's facts of which something is not sealed under the newest data key."""

    __slots__ = ()
    name = "unsealed_revisions"
    repeatable = True
    row = UnsealedRevisionsRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        after_generation: int,
        after_fact: UUID,
        after_revision: int,
        prefix: str,
        limit: int,
    ) -> None:
        self.values = (shard_key, after_generation, after_fact, after_revision, prefix, limit)


class ResealRevisionsRow(NamedTuple):
    fact_id: UUID


class ResealRevisions(Query[ResealRevisionsRow]):
    """Store revisions in the form that they are to have."""

    __slots__ = ()
    name = "reseal_revisions"
    repeatable = True
    row = ResealRevisionsRow

    def __init__(self, *, revisions: str, shard_key: UUID) -> None:
        self.values = (revisions, shard_key)


class UnsealedCandidatesRow(NamedTuple):
    generation_id: int
    event_id: UUID
    ordinal: int
    version: str
    text: str
    fingerprint: bytes
    topics: list[str]
    said_by: str | None


class UnsealedCandidates(Query[UnsealedCandidatesRow]):
    """The next candidates of an owner of which something is not sealed under the newest data key."""

    __slots__ = ()
    name = "unsealed_candidates"
    repeatable = True
    row = UnsealedCandidatesRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        after_generation: int,
        after_event: UUID,
        after_ordinal: int,
        prefix: str,
        limit: int,
    ) -> None:
        self.values = (shard_key, after_generation, after_event, after_ordinal, prefix, limit)


class ResealCandidatesRow(NamedTuple):
    event_id: UUID


class ResealCandidates(Query[ResealCandidatesRow]):
    """Store candidates in the form that they are to have."""

    __slots__ = ()
    name = "reseal_candidates"
    repeatable = True
    row = ResealCandidatesRow

    def __init__(self, *, candidates: str, shard_key: UUID) -> None:
        self.values = (candidates, shard_key)


class UnsealedFactEventsRow(NamedTuple):
    number: int
    version: str
    payload: str | None
    traces: str


class UnsealedFactEvents(Query[UnsealedFactEventsRow]):
    """The next of people's events about an owner's facts of which something is not sealed under the newest
    data key.
    """

    __slots__ = ()
    name = "unsealed_fact_events"
    repeatable = True
    row = UnsealedFactEventsRow

    def __init__(self, *, shard_key: UUID, after_number: int, prefix: str, limit: int) -> None:
        self.values = (shard_key, after_number, prefix, limit)


class ResealFactEventsRow(NamedTuple):
    number: int


class ResealFactEvents(Query[ResealFactEventsRow]):
    """Store these events in the form that they are to have."""

    __slots__ = ()
    name = "reseal_fact_events"
    repeatable = True
    row = ResealFactEventsRow

    def __init__(
        self,
        *,
        numbers: list[int],
        versions: list[str],
        payloads: list[str | None],
        traces: list[str],
        shard_key: UUID,
    ) -> None:
        self.values = (numbers, versions, payloads, traces, shard_key)


class UnsealedItemsRow(NamedTuple):
    path: str
    key: str
    version: str
    value: str


class UnsealedItems(Query[UnsealedItemsRow]):
    """The next items of a store that are not sealed under the newest data key."""

    __slots__ = ()
    name = "unsealed_items"
    repeatable = True
    row = UnsealedItemsRow

    def __init__(self, *, shard_key: UUID, after_path: str, after_key: str, prefix: str, limit: int) -> None:
        self.values = (shard_key, after_path, after_key, prefix, limit)


class ResealItemsRow(NamedTuple):
    key: str


class ResealItems(Query[ResealItemsRow]):
    """Store items in the form that they are to have."""

    __slots__ = ()
    name = "reseal_items"
    repeatable = True
    row = ResealItemsRow

    def __init__(
        self, *, paths: list[str], keys: list[str], versions: list[str], values: list[str], shard_key: UUID
    ) -> None:
        self.values = (paths, keys, versions, values, shard_key)


class UnsealedArchivedInputsRow(NamedTuple):
    session_key: UUID
    seq: int
    generation_id: int
    version: str
    id: str
    envelope: str
    metadata: str | None


class UnsealedArchivedInputs(Query[UnsealedArchivedInputsRow]):
    """The next messages from the archive, kept for a new derivation, that are not sealed under the newest
    data key.
    """

    __slots__ = ()
    name = "unsealed_archived_inputs"
    repeatable = True
    row = UnsealedArchivedInputsRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        after_session: UUID,
        after_seq: int,
        after_generation: int,
        prefix: str,
        limit: int,
    ) -> None:
        self.values = (shard_key, after_session, after_seq, after_generation, prefix, limit)


class ResealArchivedInputsRow(NamedTuple):
    seq: int


class ResealArchivedInputs(Query[ResealArchivedInputsRow]):
    """Store them in the form that they are to have."""

    __slots__ = ()
    name = "reseal_archived_inputs"
    repeatable = True
    row = ResealArchivedInputsRow

    def __init__(
        self,
        *,
        session_keys: list[UUID],
        seqs: list[int],
        generation_ids: list[int],
        versions: list[str],
        envelopes: list[str],
        metadata: list[str | None],
        shard_key: UUID,
    ) -> None:
        self.values = (session_keys, seqs, generation_ids, versions, envelopes, metadata, shard_key)


class UnsealedResponsesRow(NamedTuple):
    request_key: UUID
    version: str
    body: str


class UnsealedResponses(Query[UnsealedResponsesRow]):
    """The next responses that the HTTP service keeps for a day and that are not sealed under the newest data
    key.
    """

    __slots__ = ()
    name = "unsealed_responses"
    repeatable = True
    row = UnsealedResponsesRow

    def __init__(self, *, shard_key: UUID, after_request: UUID, prefix: str, limit: int) -> None:
        self.values = (shard_key, after_request, prefix, limit)


class ResealResponsesRow(NamedTuple):
    request_key: UUID


class ResealResponses(Query[ResealResponsesRow]):
    """Store these responses in the form that they are to have."""

    __slots__ = ()
    name = "reseal_responses"
    repeatable = True
    row = ResealResponsesRow

    def __init__(
        self, *, request_keys: list[UUID], versions: list[str], bodies: list[str], shard_key: UUID
    ) -> None:
        self.values = (request_keys, versions, bodies, shard_key)


class UnsealedRunsRow(NamedTuple):
    session_key: UUID
    run_id: str
    digests: list[bytes]


class UnsealedRuns(Query[UnsealedRunsRow]):
    """The next runs of an owner of whose messages, as they were given, not all digests are keyed."""

    __slots__ = ()
    name = "unsealed_runs"
    repeatable = True
    row = UnsealedRunsRow

    def __init__(self, *, shard_key: UUID, after_session: UUID, after_run: str, limit: int) -> None:
        self.values = (shard_key, after_session, after_run, limit)


class ResealRunRow(NamedTuple):
    run_id: str


class ResealRun(Query[ResealRunRow]):
    """Store the keyed forms of a run's digests, unless the run was changed meanwhile."""

    __slots__ = ()
    name = "reseal_run"
    repeatable = True
    row = ResealRunRow

    def __init__(
        self, *, digests: list[bytes], shard_key: UUID, session_key: UUID, run_id: str, known: list[bytes]
    ) -> None:
        self.values = (digests, shard_key, session_key, run_id, known)
