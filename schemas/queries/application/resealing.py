"""The statements of ``schemas/sql/resealing.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query


class UnsealedAnswerRow(NamedTuple):
    batch_id: UUID
    step: str
    body: bytes
    version: str


class UnsealedAnswer(Query[UnsealedAnswerRow], name="unsealed_answer", repeatable=True):
    """The next rows of answer of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_batch_id: UUID
    after_step: str
    prefix: str
    limit: int


class ResealAnswer(Query[Never], name="reseal_answer", repeatable=True):
    """Store rows of answer in the form that they are to have, unless they were changed."""

    batch_id: list[UUID]
    step: list[str]
    version: list[str]
    body: list[bytes]
    shard_key: UUID


class UnsealedArchivedInputRow(NamedTuple):
    session_key: UUID
    seq: int
    generation_id: int
    id: str
    envelope: str
    metadata: str | None
    version: str


class UnsealedArchivedInput(Query[UnsealedArchivedInputRow], name="unsealed_archived_input", repeatable=True):
    """The next rows of archived_input of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_session_key: UUID
    after_seq: int
    after_generation_id: int
    prefix: str
    limit: int


class ResealArchivedInput(Query[Never], name="reseal_archived_input", repeatable=True):
    """Store rows of archived_input in the form that they are to have, unless they were changed."""

    session_key: list[UUID]
    seq: list[int]
    generation_id: list[int]
    version: list[str]
    envelope: list[str]
    metadata: list[str | None]
    shard_key: UUID


class UnsealedBlockStateRow(NamedTuple):
    scope_key: UUID
    generation_id: int
    ordinal: int
    state: str
    version: str


class UnsealedBlockState(Query[UnsealedBlockStateRow], name="unsealed_block_state", repeatable=True):
    """The next rows of block_state of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_scope_key: UUID
    after_generation_id: int
    after_ordinal: int
    prefix: str
    limit: int


class ResealBlockState(Query[Never], name="reseal_block_state", repeatable=True):
    """Store rows of block_state in the form that they are to have, unless they were changed."""

    scope_key: list[UUID]
    generation_id: list[int]
    ordinal: list[int]
    version: list[str]
    state: list[str]
    shard_key: UUID


class UnsealedChunkRow(NamedTuple):
    generation_id: int
    session_key: UUID
    from_seq: int
    piece: int
    lexemes: str
    speaker: list[str]
    version: str


class UnsealedChunk(Query[UnsealedChunkRow], name="unsealed_chunk", repeatable=True):
    """The next rows of chunk of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_generation_id: int
    after_session_key: UUID
    after_from_seq: int
    after_piece: int
    has_vectors: bool
    limit: int


class UnsealedCorrectionRow(NamedTuple):
    session_key: UUID
    number: int
    digest: bytes | None
    version: str


class UnsealedCorrection(Query[UnsealedCorrectionRow], name="unsealed_correction", repeatable=True):
    """The next rows of correction of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_session_key: UUID
    after_number: int
    limit: int


class ResealCorrection(Query[Never], name="reseal_correction", repeatable=True):
    """Store rows of correction in the form that they are to have, unless they were changed."""

    session_key: list[UUID]
    number: list[int]
    version: list[str]
    digest: list[bytes | None]
    shard_key: UUID


class UnsealedFactRow(NamedTuple):
    generation_id: int
    fact_id: UUID
    text: str
    fingerprint: bytes
    lexemes: list[str]
    topics: list[str]
    said_by: str | None
    input: str | None
    feedback: str | None
    version: str


class UnsealedFact(Query[UnsealedFactRow], name="unsealed_fact", repeatable=True):
    """The next rows of fact of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_generation_id: int
    after_fact_id: UUID
    prefix: str
    limit: int


class UnsealedFactCandidateRow(NamedTuple):
    generation_id: int
    event_id: UUID
    ordinal: int
    text: str
    fingerprint: bytes
    topics: list[str]
    said_by: str | None
    version: str


class UnsealedFactCandidate(Query[UnsealedFactCandidateRow], name="unsealed_fact_candidate", repeatable=True):
    """The next rows of fact_candidate of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_generation_id: int
    after_event_id: UUID
    after_ordinal: int
    prefix: str
    limit: int


class ResealFactCandidate(Query[Never], name="reseal_fact_candidate", repeatable=True):
    """Store rows of fact_candidate in the form that they are to have, unless they were changed."""

    generation_id: list[int]
    event_id: list[UUID]
    ordinal: list[int]
    version: list[str]
    text: list[str]
    fingerprint: list[bytes]
    topics: list[str]
    said_by: list[str | None]
    shard_key: UUID


class UnsealedFactEventRow(NamedTuple):
    number: int
    payload: str | None
    traces: str
    version: str


class UnsealedFactEvent(Query[UnsealedFactEventRow], name="unsealed_fact_event", repeatable=True):
    """The next rows of fact_event of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_number: int
    prefix: str
    limit: int


class ResealFactEvent(Query[Never], name="reseal_fact_event", repeatable=True):
    """Store rows of fact_event in the form that they are to have, unless they were changed."""

    number: list[int]
    version: list[str]
    payload: list[str | None]
    traces: list[str]
    shard_key: UUID


class UnsealedFactRevisionRow(NamedTuple):
    generation_id: int
    fact_id: UUID
    revision: int
    text: str
    fingerprint: bytes
    lexemes: list[str]
    own_text: str | None
    own_fingerprint: bytes | None
    own_lexemes: list[str] | None
    version: str


class UnsealedFactRevision(Query[UnsealedFactRevisionRow], name="unsealed_fact_revision", repeatable=True):
    """The next rows of fact_revision of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_generation_id: int
    after_fact_id: UUID
    after_revision: int
    prefix: str
    limit: int


class ResealFactRevision(Query[Never], name="reseal_fact_revision", repeatable=True):
    """Store rows of fact_revision in the form that they are to have, unless they were changed."""

    generation_id: list[int]
    fact_id: list[UUID]
    revision: list[int]
    version: list[str]
    text: list[str]
    fingerprint: list[bytes]
    lexemes: list[str]
    own_text: list[str | None]
    own_fingerprint: list[bytes | None]
    own_lexemes: list[str | None]
    shard_key: UUID


class UnsealedFormerFactRow(NamedTuple):
    session_key: UUID
    fact_id: UUID
    fingerprints: list[bytes]
    version: str


class UnsealedFormerFact(Query[UnsealedFormerFactRow], name="unsealed_former_fact", repeatable=True):
    """The next rows of former_fact of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_session_key: UUID
    after_fact_id: UUID
    limit: int


class ResealFormerFact(Query[Never], name="reseal_former_fact", repeatable=True):
    """Store rows of former_fact in the form that they are to have, unless they were changed."""

    session_key: list[UUID]
    fact_id: list[UUID]
    version: list[str]
    fingerprints: list[str]
    shard_key: UUID


class UnsealedKeptResponseRow(NamedTuple):
    request_key: UUID
    body: str | None
    version: str


class UnsealedKeptResponse(Query[UnsealedKeptResponseRow], name="unsealed_kept_response", repeatable=True):
    """The next rows of kept_response of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_request_key: UUID
    prefix: str
    limit: int


class ResealKeptResponse(Query[Never], name="reseal_kept_response", repeatable=True):
    """Store rows of kept_response in the form that they are to have, unless they were changed."""

    request_key: list[UUID]
    version: list[str]
    body: list[str | None]
    shard_key: UUID


class UnsealedMessageRow(NamedTuple):
    session_key: UUID
    seq: int
    id: str
    digest: bytes
    envelope: str
    metadata: str | None
    calls: str | None
    answers: str | None
    labels: list[int] | None
    version: str


class UnsealedMessage(Query[UnsealedMessageRow], name="unsealed_message", repeatable=True):
    """The next rows of message of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_session_key: UUID
    after_seq: int
    prefix: str
    limit: int


class ResealMessage(Query[Never], name="reseal_message", repeatable=True):
    """Store rows of message in the form that they are to have, unless they were changed."""

    session_key: list[UUID]
    seq: list[int]
    version: list[str]
    digest: list[bytes]
    envelope: list[str]
    metadata: list[str | None]
    calls: list[str | None]
    answers: list[str | None]
    labels: list[str | None]
    shard_key: UUID


class UnsealedSessionRunRow(NamedTuple):
    session_key: UUID
    run_id: str
    digests: list[bytes]
    version: str


class UnsealedSessionRun(Query[UnsealedSessionRunRow], name="unsealed_session_run", repeatable=True):
    """The next rows of session_run of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_session_key: UUID
    after_run_id: str
    limit: int


class ResealSessionRun(Query[Never], name="reseal_session_run", repeatable=True):
    """Store rows of session_run in the form that they are to have, unless they were changed."""

    session_key: list[UUID]
    run_id: list[str]
    version: list[str]
    digests: list[str]
    shard_key: UUID


class UnsealedSharedMessageRow(NamedTuple):
    session_key: UUID
    seq: int
    id: str
    envelope: str
    metadata: str | None
    version: str


class UnsealedSharedMessage(Query[UnsealedSharedMessageRow], name="unsealed_shared_message", repeatable=True):
    """The next rows of shared_message of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_session_key: UUID
    after_seq: int
    prefix: str
    limit: int


class ResealSharedMessage(Query[Never], name="reseal_shared_message", repeatable=True):
    """Store rows of shared_message in the form that they are to have, unless they were changed."""

    session_key: list[UUID]
    seq: list[int]
    version: list[str]
    envelope: list[str]
    metadata: list[str | None]
    shard_key: UUID


class UnsealedStoreItemRow(NamedTuple):
    path: str
    key: str
    value: str
    version: str


class UnsealedStoreItem(Query[UnsealedStoreItemRow], name="unsealed_store_item", repeatable=True):
    """The next rows of store_item of which something is not sealed under the newest data key."""

    shard_key: UUID
    after_path: str
    after_key: str
    prefix: str
    limit: int


class ResealStoreItem(Query[Never], name="reseal_store_item", repeatable=True):
    """Store rows of store_item in the form that they are to have, unless they were changed."""

    path: list[str]
    key: list[str]
    version: list[str]
    value: list[str]
    shard_key: UUID
