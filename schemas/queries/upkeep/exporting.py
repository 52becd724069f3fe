"""The statements of ``schemas/sql/exporting.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import CaptureActRow, SubjectRow
from strandline.schemas.sealing.marks import Mark, Marks


class ExportAuditSubject(Query[SubjectRow], name="export_audit_subject", repeatable=True):
    """The next rows of audit_subject of an owner."""

    shard_key: UUID
    limit: int


class ExportCaptureAct(Query[CaptureActRow], name="export_capture_act", repeatable=True):
    """The next rows of capture_act of an owner."""

    namespace: str
    owner_key: UUID
    after_number: int
    limit: int


class ExportCorrectionRow(NamedTuple):
    session_key: UUID
    number: int
    correction: str
    from_seq: int
    through_seq: int
    actor: str | None
    created_at: datetime


class ExportCorrection(Query[ExportCorrectionRow], name="export_correction", repeatable=True):
    """The next rows of correction of an owner, or of one session."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_number: int
    limit: int


class ExportDeadLetterRow(NamedTuple):
    session_key: UUID
    generation_id: int
    stage: str
    from_seq: int
    through_seq: int
    event_id: UUID
    reason: str
    created_at: datetime
    dropped_at: datetime | None


class ExportDeadLetter(Query[ExportDeadLetterRow], name="export_dead_letter", repeatable=True):
    """The next rows of dead_letter of an owner, or of one session."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_generation_id: int
    after_stage: str
    after_from_seq: int
    limit: int


class ExportFactRow(NamedTuple):
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
    doubt_operation: str | None
    doubt_reason: str | None
    doubt_fact_id: UUID | None
    created_at: datetime
    updated_at: datetime


class ExportFact(Query[ExportFactRow], name="export_fact", repeatable=True):
    """The next rows of fact of an owner, or of one session."""

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
    session_key: UUID | None
    after_generation_id: int
    after_fact_id: UUID
    limit: int


class ExportFactCandidateRow(NamedTuple):
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


class ExportFactCandidate(Query[ExportFactCandidateRow], name="export_fact_candidate", repeatable=True):
    """The next rows of fact_candidate of an owner, or of one session."""

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


class ExportFactEventRow(NamedTuple):
    number: int
    edit: str
    fact_id: UUID | None
    payload: str | None
    actor: str | None
    instruction: UUID | None
    created_at: datetime


class ExportFactEvent(Query[ExportFactEventRow], name="export_fact_event", repeatable=True):
    """The next rows of fact_event of an owner."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(3, "within", "text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic"),
        ),
    )
    shard_key: UUID
    after_number: int
    limit: int


class ExportFactRevisionRow(NamedTuple):
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
    edit: int | None
    model: str | None
    prompt_hash: str | None
    created_at: datetime


class ExportFactRevision(Query[ExportFactRevisionRow], name="export_fact_revision", repeatable=True):
    """The next rows of fact_revision of an owner, or of one session."""

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


class ExportModelCallRow(NamedTuple):
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


class ExportModelCall(Query[ExportModelCallRow], name="export_model_call", repeatable=True):
    """The next rows of model_call of an owner, or of one session."""

    shard_key: UUID
    session_key: UUID | None
    after_call_id: UUID
    limit: int


class ExportPolicyChangeRow(NamedTuple):
    session_key: UUID
    number: int
    before: str
    after: str
    actor: str | None
    created_at: datetime


class ExportPolicyChange(Query[ExportPolicyChangeRow], name="export_policy_change", repeatable=True):
    """The next rows of policy_change of an owner, or of one session."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_number: int
    limit: int


class ExportRetentionStepRow(NamedTuple):
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


class ExportRetentionStep(Query[ExportRetentionStepRow], name="export_retention_step", repeatable=True):
    """The next rows of retention_step of an owner, or of one session."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_from_seq: int
    limit: int


class ExportServiceKeyRow(NamedTuple):
    key_id: str
    scopes: list[str]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class ExportServiceKey(Query[ExportServiceKeyRow], name="export_service_key", repeatable=True):
    """The next rows of service_key of an owner."""

    namespace: str
    user_id: str
    after_key_id: str
    limit: int


class ExportSessionRetentionActRow(NamedTuple):
    session_key: UUID
    number: int
    ttl_seconds: int | None
    max_age_seconds: int | None
    max_messages: int | None
    forget_facts: bool | None
    archive: str | None
    actor: str | None
    created_at: datetime


class ExportSessionRetentionAct(
    Query[ExportSessionRetentionActRow], name="export_session_retention_act", repeatable=True
):
    """The next rows of session_retention_act of an owner, or of one session."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_number: int
    limit: int


class ExportSessionRunRow(NamedTuple):
    session_key: UUID
    run_id: str
    number: int
    status: str
    agent_id: str | None
    team_id: str | None
    seqs: list[int]
    created_at: datetime
    changed_at: datetime


class ExportSessionRun(Query[ExportSessionRunRow], name="export_session_run", repeatable=True):
    """The next rows of session_run of an owner, or of one session."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_run_id: str
    limit: int
