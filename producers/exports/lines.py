"""The lines of an export: one kind for each table, in a form that stays.

``schemas/tables`` declares the kinds whose fields are a table's columns; the others are here.
``strandline export --json-schema`` prints their JSON Schema.  A field is added, never renamed; a new kind of
line may come, so readers of an export pass over kinds that they do not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, RootModel

from strandline.schemas.queries.exported import (
    ArchivedLine,
    CallLine,
    CandidateLine,
    CaptureActLine,
    CorrectionLine,
    DeadLetterLine,
    EditLine,
    ExportedLine,
    FactLine,
    PolicyChangeLine,
    PseudonymLine,
    RetentionActLine,
    RevisionLine,
    RunLine,
    ServiceKeyLine,
)

FORMAT_VERSION = 1


class HeaderLine(ExportedLine):
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


class DirectoryLine(ExportedLine):
    """A session id that the user has claimed, of a chat or of what facts come from."""

    kind: Literal["directory"] = "directory"
    session_id: str
    session_kind: str
    created_at: datetime


class SessionLine(ExportedLine):
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


class MessageLine(ExportedLine):
    """A message as it was put, in OpenAI's form, with its number in the session."""

    kind: Literal["message"] = "message"
    session_key: UUID
    seq: int
    tokens: int
    message: dict[str, Any]


class FlushLine(ExportedLine):
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


class StateLine(ExportedLine):
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


class AnswerLine(ExportedLine):
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


class TrailerLine(ExportedLine):
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
