"""Lines of an export, from ``schemas/tables``.  Written by `make queries`."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _parsed(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


JsonObject = Annotated[dict[str, Any], BeforeValidator(_parsed)]
"""A JSON object, which statements read as text."""


class ExportedLine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str


class PseudonymLine(ExportedLine):
    """The name under which the user stands in the audit trail, until an erasure."""

    kind: Literal["audit_pseudonym"] = "audit_pseudonym"
    subject: UUID


class CaptureActLine(ExportedLine):
    """A choice of this user's capture."""

    kind: Literal["capture_act"] = "capture_act"
    number: int
    capture: JsonObject
    actor: str | None
    created_at: datetime


class CorrectionLine(ExportedLine):
    """A correction of a session's log."""

    kind: Literal["correction"] = "correction"
    session_key: UUID
    number: int
    correction: str
    from_seq: int
    through_seq: int
    actor: str | None
    created_at: datetime


class DeadLetterLine(ExportedLine):
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


class FactLine(ExportedLine):
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
    doubt_operation: str | None
    doubt_reason: str | None
    doubt_fact_id: UUID | None
    created_at: datetime
    updated_at: datetime


class CandidateLine(ExportedLine):
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


class EditLine(ExportedLine):
    """An edit of a fact by a person or an agent; the words of deleted ones are gone."""

    kind: Literal["fact_edit"] = "fact_edit"
    number: int
    edit: str
    fact_id: UUID | None
    payload: JsonObject | None
    actor: str | None
    instruction: UUID | None
    created_at: datetime


class RevisionLine(ExportedLine):
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


class CallLine(ExportedLine):
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


class PolicyChangeLine(ExportedLine):
    """A change of a session's policy."""

    kind: Literal["policy_change"] = "policy_change"
    session_key: UUID
    number: int
    before: JsonObject
    after: JsonObject
    actor: str | None
    created_at: datetime


class ArchivedLine(ExportedLine):
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


class ServiceKeyLine(ExportedLine):
    """A key of the HTTP service that opens this user alone; its secret is not stored."""

    kind: Literal["service_key"] = "service_key"
    key_id: str
    scopes: list[str]
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class RetentionActLine(ExportedLine):
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


class RunLine(ExportedLine):
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
