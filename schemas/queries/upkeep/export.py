"""The statements of ``schemas/sql/export.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import CaptureActRow, MessageOfSessionRow, SubjectRow
from strandline.schemas.sealing.marks import Mark, Marks


class ExportSessionsRow(NamedTuple):
    session_key: UUID
    session_id: str
    created_at: datetime
    last_put_at: datetime
    log_start_seq: int
    next_seq: int
    corrections: int
    tokenizer: str
    pipelines: list[str]
    shared_scope: str | None
    token_limit: int
    flush_at_tokens: int
    time_zone: str | None


class ExportSessions(Query[ExportSessionsRow], name="export_sessions"):
    """Sessions of an owner, with their marks and policy."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    limit: int


class ExportMessages(Query[MessageOfSessionRow], name="export_messages"):
    """Messages, those from before a reset included."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
        ),
    )
    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_seq: int
    limit: int
    page_bytes: int


class ExportCorrectionsRow(NamedTuple):
    session_key: UUID
    number: int
    correction_kind: str
    from_seq: int
    through_seq: int
    actor: str | None
    created_at: datetime


class ExportCorrections(Query[ExportCorrectionsRow], name="export_corrections"):
    """How logs were corrected."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_number: int
    limit: int


class ExportPolicyChangesRow(NamedTuple):
    session_key: UUID
    number: int
    before: str
    after: str
    actor: str | None
    created_at: datetime


class ExportPolicyChanges(Query[ExportPolicyChangesRow], name="export_policy_changes"):
    """How the policies of sessions were changed."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_number: int
    limit: int


class ExportRunsRow(NamedTuple):
    session_key: UUID
    run_id: str
    number: int
    status: str
    agent_id: str | None
    team_id: str | None
    seqs: list[int]
    created_at: datetime
    changed_at: datetime


class ExportRuns(Query[ExportRunsRow], name="export_runs"):
    """Runs of agents."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_run_id: str
    limit: int


class ExportFlushesRow(NamedTuple):
    session_key: UUID
    event_id: UUID
    cause: str
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    created_at: datetime
    receipts: str


class ExportFlushes(Query[ExportFlushesRow], name="export_flushes"):
    """What was delivered to the pipelines, with what became of it in each stage."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_from_seq: int
    limit: int


class ExportFactsRow(NamedTuple):
    generation_id: int
    fact_id: UUID
    text: str
    topics: list[str]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    valid_from: datetime
    valid_until: datetime | None
    live: bool
    invalidated_at: datetime | None
    invalidated_by: UUID | None
    condensed_into: UUID | None
    input: str | None
    agent_id: str | None
    team_id: str | None
    feedback: str | None
    created_at: datetime
    updated_at: datetime


class ExportFacts(Query[ExportFactsRow], name="export_facts"):
    """Facts of every derivation, ended ones included; of a session, those that some revision got from it."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(2, "text", "fact"),
            Mark(3, "name", "topic"),
            Mark(4, "name", "said_by"),
            Mark(13, "text", "input"),
            Mark(16, "text", "feedback"),
        ),
    )
    shard_key: UUID
    after_generation_id: int
    after_fact_id: UUID
    session_key: UUID | None
    limit: int


class ExportRevisionsRow(NamedTuple):
    generation_id: int
    fact_id: UUID
    revision: int
    operation: str
    text: str
    own_text: str | None
    event_id: UUID | None
    session_key: UUID | None
    seqs: list[int]
    extract_batch_id: UUID | None
    merge_batch_id: UUID | None
    condense_batch_id: UUID | None
    fact_event: int | None
    model: str | None
    prompt_hash: str | None
    created_at: datetime


class ExportRevisions(Query[ExportRevisionsRow], name="export_revisions"):
    """The histories of facts: which messages, prompt and model, or which edit, did what."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(4, "text", "fact"),
            Mark(5, "text", "fact"),
        ),
    )
    shard_key: UUID
    session_key: UUID | None
    after_generation_id: int
    after_fact_id: UUID
    after_revision: int
    limit: int


class ExportEditsRow(NamedTuple):
    number: int
    edit: str
    fact_id: UUID | None
    payload: str | None
    actor: str | None
    instruction: UUID | None
    created_at: datetime


class ExportEdits(Query[ExportEditsRow], name="export_edits"):
    """What people and agents did to facts."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(3, "within", "text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic"),
        ),
    )
    shard_key: UUID
    after_number: int
    limit: int


class ExportCandidatesRow(NamedTuple):
    generation_id: int
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
    dropped_by: int | None
    withheld_by: int | None


class ExportCandidates(Query[ExportCandidatesRow], name="export_candidates"):
    """What was found in messages as possible facts."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(5, "text", "fact"),
            Mark(7, "name", "topic"),
            Mark(8, "name", "said_by"),
        ),
    )
    shard_key: UUID
    session_key: UUID | None
    after_generation_id: int
    after_event_id: UUID
    after_ordinal: int
    limit: int


class ExportStatesRow(NamedTuple):
    scope_key: UUID
    generation_id: int
    pipeline: str
    ordinal: int
    through_seq: int
    state: str
    batch_id: UUID
    created_at: datetime


class ExportStates(Query[ExportStatesRow], name="export_states"):
    """Summaries and the states of custom blocks, each after each batch."""

    marks = Marks(owner=0, opens=(Mark(5, "json", "state"),))
    shard_key: UUID
    scope_key: UUID | None
    after_scope_key: UUID
    after_generation_id: int
    after_ordinal: int
    limit: int
    page_bytes: int


class ExportAnswersRow(NamedTuple):
    batch_id: UUID
    step: str
    stage: str | None
    scope_key: UUID | None
    model: str
    prompt_hash: str
    body: bytes | None
    bytes: int
    created_at: datetime


class ExportAnswers(Query[ExportAnswersRow], name="export_answers"):
    """The raw answers of models; of vectors, which are numbers, the size alone."""

    marks = Marks(owner=0, opens=(Mark(6, "bytes", "answer"),))
    shard_key: UUID
    scope_key: UUID | None
    after_batch_id: UUID
    after_step: str
    limit: int
    page_bytes: int


class ExportDeadLettersRow(NamedTuple):
    session_key: UUID
    generation_id: int
    stage: str
    from_seq: int
    through_seq: int
    event_id: UUID
    reason: str
    created_at: datetime
    dropped_at: datetime | None


class ExportDeadLetters(Query[ExportDeadLettersRow], name="export_dead_letters"):
    """Events that a lane went past, and why."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_generation_id: int
    after_stage: str
    after_from_seq: int
    limit: int


class ExportCallsRow(NamedTuple):
    call_id: UUID
    generation_id: int | None
    stage: str
    batch_id: UUID
    step: str
    model: str
    prompt_hash: str
    input_tokens: int
    output_tokens: int
    seconds: float
    cost_usd: Decimal | None
    created_at: datetime


class ExportCalls(Query[ExportCallsRow], name="export_calls"):
    """The ledger of model calls; of a session, those of its batches."""

    shard_key: UUID
    after_call_id: UUID
    scope_key: UUID | None
    limit: int


class ExportCaptureActs(Query[CaptureActRow], name="export_capture_acts"):
    """The choices on capturing of one owner."""

    namespace: str
    owner_key: UUID
    after_number: int
    limit: int


class ExportArchivedRow(NamedTuple):
    session_key: UUID
    from_seq: int
    through_seq: int
    cause: str
    state: str
    archive: str | None
    object_name: str | None
    object_digest: str | None
    messages: int
    removed: int
    kept_seqs: list[int]
    removed_at: datetime | None


class ExportArchived(Query[ExportArchivedRow], name="export_archived", repeatable=True):
    """The next ranges of messages that left an owner's logs, or one session's, or are on their way; and where
    they are.
    """

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_from_seq: int
    limit: int


class ExportRetentionActsRow(NamedTuple):
    session_key: UUID
    number: int
    ttl_seconds: int | None
    max_age_seconds: int | None
    max_messages: int | None
    forget_facts: bool | None
    archive: str | None
    actor: str | None
    created_at: datetime


class ExportRetentionActs(Query[ExportRetentionActsRow], name="export_retention_acts", repeatable=True):
    """The next acts on retention of an owner's sessions, or of one."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_number: int
    limit: int


class ExportPseudonym(Query[SubjectRow], name="export_pseudonym", repeatable=True):
    """The pseudonym of an owner in the audit trail; no row if nothing was recorded of it."""

    shard_key: UUID
    limit: int


class ExportServiceKeysRow(NamedTuple):
    key_id: str
    scopes: list[str]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class ExportServiceKeys(Query[ExportServiceKeysRow], name="export_service_keys", repeatable=True):
    """The next keys of the HTTP service that open one user alone; without their digests."""

    namespace: str
    user_id: str
    after_key_id: str
    limit: int
