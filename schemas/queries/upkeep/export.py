"""The statements of ``schemas/sql/export.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import MessageOfSessionRow
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


class ExportSessions(Query[ExportSessionsRow], name="export_sessions", repeatable=True):
    """Sessions of an owner, with their marks and policy."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    limit: int


class ExportMessages(Query[MessageOfSessionRow], name="export_messages", repeatable=True):
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


class ExportFlushes(Query[ExportFlushesRow], name="export_flushes", repeatable=True):
    """Deliveries to the pipelines, with their outcome in each stage."""

    shard_key: UUID
    session_key: UUID | None
    after_session_key: UUID
    after_from_seq: int
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


class ExportStates(Query[ExportStatesRow], name="export_states", repeatable=True):
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


class ExportAnswers(Query[ExportAnswersRow], name="export_answers", repeatable=True):
    """Raw answers of models; for vectors, which are numbers, the size alone."""

    marks = Marks(owner=0, opens=(Mark(6, "bytes", "answer"),))
    shard_key: UUID
    scope_key: UUID | None
    after_batch_id: UUID
    after_step: str
    limit: int
    page_bytes: int
