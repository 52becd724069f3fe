"""The lines of an export: one kind for each table, in a form that stays.

``strandline export --json-schema`` prints their JSON Schema.  A field is added, never renamed; a new kind of
line may come, so whoever reads an export passes over kinds that it does not know.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, RootModel

FORMAT_VERSION = 1


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HeaderLine(_Line):
    """The first line: the export's target and beginning."""

    kind: Literal["header"] = "header"
    format: Literal["strandline-export"] = "strandline-export"
    version: int = FORMAT_VERSION
    of: Literal["user", "session"]
    namespace: str
    user_id: str | None
    session_id: str | None
    owner_key: UUID
    release: str
    exported_at: datetime


class DirectoryLine(_Line):
    """A session id that the user has claimed, of a chat or of what facts come from."""

    kind: Literal["directory"] = "directory"
    session_id: str
    session_kind: str
    created_at: datetime


class SessionLine(_Line):
    """A session; ``session_key`` is by which other lines name it.

    Messages below ``log_start_seq`` are from before a reset.
    """

    kind: Literal["session"] = "session"
    session_key: UUID
    session_id: str
    created_at: datetime
    last_put_at: datetime
    log_start_seq: int
    last_seq: int
    corrections: int
    tokenizer: str
    pipelines: list[str]
    shared_scope: str | None
    token_limit: int
    flush_at_tokens: int
    time_zone: str | None = None


class MessageLine(_Line):
    """A message as it was put, in OpenAI's form, with its number in the session."""

    kind: Literal["message"] = "message"
    session_key: UUID
    seq: int
    tokens: int
    message: dict[str, Any]


class ArchivedLine(_Line):
    """A range of messages that retention took out of a session's log, or is about to, and where they are."""

    kind: Literal["archived"] = "archived"
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


class CorrectionLine(_Line):
    """A correction of a session's log."""

    kind: Literal["correction"] = "correction"
    session_key: UUID
    number: int
    correction: str
    from_seq: int
    through_seq: int
    actor: str | None
    created_at: datetime


class PolicyChangeLine(_Line):
    """A change of a session's policy."""

    kind: Literal["policy_change"] = "policy_change"
    session_key: UUID
    number: int
    before: dict[str, Any]
    after: dict[str, Any]
    actor: str | None
    created_at: datetime


class RunLine(_Line):
    """A run of an agent, with the numbers of its messages."""

    kind: Literal["run"] = "run"
    session_key: UUID
    run_id: str
    number: int
    status: str
    agent_id: str | None
    team_id: str | None
    seqs: list[int]
    created_at: datetime
    changed_at: datetime


class FlushLine(_Line):
    """One delivery to the pipelines, and its outcome in each stage."""

    kind: Literal["flush"] = "flush"
    session_key: UUID
    event_id: UUID
    cause: str
    from_seq: int
    through_seq: int
    messages: int
    tokens: int
    receipts: list[dict[str, Any]]
    created_at: datetime


class FactLine(_Line):
    """A fact of one derivation, ended ones included."""

    kind: Literal["fact"] = "fact"
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


class RevisionLine(_Line):
    """A change of a fact, and its provenance: messages, prompt and model, or the edit by its number."""

    kind: Literal["fact_revision"] = "fact_revision"
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


class EditLine(_Line):
    """An edit of a fact by a person or an agent; the words of deleted ones are gone."""

    kind: Literal["fact_edit"] = "fact_edit"
    number: int
    edit: str
    fact_id: UUID | None
    payload: dict[str, Any] | None
    actor: str | None
    instruction: UUID | None
    created_at: datetime


class CandidateLine(_Line):
    """A possible fact that was found in messages."""

    kind: Literal["fact_candidate"] = "fact_candidate"
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


class StateLine(_Line):
    """The summary of a session, or the state of a custom block, after one batch; the newest one serves.

    ``session_key`` is null for a block of all of the user's sessions.
    """

    kind: Literal["state"] = "state"
    pipeline: str
    session_key: UUID | None
    generation_id: int
    ordinal: int
    through_seq: int
    state: Any
    batch_id: UUID
    created_at: datetime


class AnswerLine(_Line):
    """A model's raw answer; ``text`` is null for vectors and other binary answers."""

    kind: Literal["answer"] = "answer"
    batch_id: UUID
    step: str
    stage: str | None
    model: str
    prompt_hash: str
    text: str | None
    bytes: int
    created_at: datetime


class DeadLetterLine(_Line):
    """An event that a stage went past, and why."""

    kind: Literal["dead_letter"] = "dead_letter"
    session_key: UUID
    generation_id: int
    stage: str
    from_seq: int
    through_seq: int
    event_id: UUID
    reason: str
    created_at: datetime
    dropped_at: datetime | None


class CallLine(_Line):
    """A model call in the ledger, without content."""

    kind: Literal["model_call"] = "model_call"
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


class CaptureActLine(_Line):
    """A choice of this user's capture."""

    kind: Literal["capture_act"] = "capture_act"
    number: int
    capture: dict[str, Any]
    actor: str | None
    created_at: datetime


class RetentionActLine(_Line):
    """A session's choice of retention; null is as for its namespace."""

    kind: Literal["retention_act"] = "retention_act"
    session_key: UUID
    number: int
    ttl_seconds: int | None
    max_age_seconds: int | None
    max_messages: int | None
    forget_facts: bool | None
    archive: str | None
    actor: str | None
    created_at: datetime


class PseudonymLine(_Line):
    """The name under which the user stands in the audit trail, until an erasure."""

    kind: Literal["audit_pseudonym"] = "audit_pseudonym"
    subject: UUID


class ServiceKeyLine(_Line):
    """A key of the HTTP service that opens this user alone; its secret is not stored."""

    kind: Literal["service_key"] = "service_key"
    key_id: str
    scopes: list[str]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class TrailerLine(_Line):
    """The last line: how many lines of each kind there were. An export without it was not finished."""

    kind: Literal["trailer"] = "trailer"
    lines: dict[str, int]


Line = (
    HeaderLine
    | DirectoryLine
    | SessionLine
    | MessageLine
    | ArchivedLine
    | CorrectionLine
    | PolicyChangeLine
    | RunLine
    | FlushLine
    | FactLine
    | RevisionLine
    | EditLine
    | CandidateLine
    | StateLine
    | AnswerLine
    | DeadLetterLine
    | CallLine
    | CaptureActLine
    | RetentionActLine
    | PseudonymLine
    | ServiceKeyLine
    | TrailerLine
)


class ExportLine(RootModel[Annotated[Line, Field(discriminator="kind")]]):
    """Any line of an export, told apart by ``kind``; for the JSON Schema."""
