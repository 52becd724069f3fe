"""Rows that all explanations read: messages as sources, model calls, and rows as parts."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from strandline.pipelines.transcript import plain_text, speaker
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.inspection.explain import (
    ExplainCalls,
    ExplainCandidatesRow,
    ExplainChunksRow,
    ExplainCitedRow,
    ExplainContextsRow,
    ExplainMessageRow,
)
from strandline.schemas.values.message import Message
from strandline.schemas.wire.explanations import (
    CandidateTrace,
    ChunkTrace,
    CitingFact,
    ContextTrace,
    FlushTrace,
    ModelCall,
    Source,
)

MAX_EXCERPT_CHARACTERS = 160


def model_calls(fetcher: Fetcher, shard_key: UUID, batch_ids: Iterable[UUID | None]) -> list[ModelCall]:
    """The ledger of some batches."""
    ids = sorted({batch_id for batch_id in batch_ids if batch_id is not None})
    rows = fetcher.fetch(ExplainCalls(shard_key=shard_key, batch_ids=ids)) if ids else []
    return [ModelCall.of(row, at=row.created_at) for row in rows]


def source_of(message: Message) -> Source:
    """A message as it is shown."""
    return Source(
        id=message.id or "",
        seq=message.seq or 0,
        role=message.role,
        said_by=speaker(message),
        at=message.created_at,  # type: ignore[arg-type]  # a stored message has its time
        excerpt=excerpt(plain_text(message)),
    )


def excerpt(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_EXCERPT_CHARACTERS else line[: MAX_EXCERPT_CHARACTERS - 1].rstrip() + "…"


def event_trace(row: ExplainMessageRow) -> FlushTrace | None:
    if row.event_id is None:
        return None
    return FlushTrace(
        event_id=row.event_id,
        cause=row.cause,
        from_seq=row.from_seq,
        through_seq=row.through_seq,
        at=row.flushed_at,
    )


def candidate_trace(row: ExplainCandidatesRow) -> CandidateTrace:
    return CandidateTrace.of(row, generation=row.generation_id, dropped_because=row.kind)


def citing_fact(row: ExplainCitedRow) -> CitingFact:
    return CitingFact(
        fact_id=row.fact_id,
        generation=row.generation_id,
        text=row.text,
        live=row.live,
        operations=tuple(row.operations),
    )


def chunk_trace(row: ExplainChunksRow) -> ChunkTrace:
    return ChunkTrace(
        generation=row.generation_id,
        from_seq=row.from_seq,
        through_seq=row.through_seq,
        pieces=row.pieces,
    )


def context_trace(row: ExplainContextsRow) -> ContextTrace:
    return ContextTrace(
        generation=row.generation_id,
        batch_id=row.batch_id,
        from_seq=row.from_seq,
        through_seq=row.through_seq,
    )
