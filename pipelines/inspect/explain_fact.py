"""Explains a fact: the way back to its messages, and people's edits; with what all explanations share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict
from uuid import UUID

from strandline.pipelines.transcript import plain_text, speaker
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.inspection.explain import (
    ExplainCalls,
    ExplainContextSources,
    ExplainFact,
    ExplainFactEvents,
    ExplainFactRow,
    ExplainFindFactEvents,
    ExplainFindFacts,
    ExplainRemovedSources,
    ExplainRevisions,
    ExplainRevisionsRow,
    ExplainSources,
    ExplainSuccessors,
)
from strandline.schemas.queries.rows import SourceMessageRow
from strandline.schemas.values.doubts import doubt_sentence
from strandline.schemas.values.lanes import DerivationKeys
from strandline.schemas.values.message import Message, read_rows
from strandline.schemas.wire.explanations import (
    DoubtTrace,
    FactEventTrace,
    FactExplanation,
    ModelCall,
    RemovedFactExplanation,
    RemovedSource,
    RevisionTrace,
    Source,
    SuccessorTrace,
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


# Of the messages that a fact comes from, which are shown by how they begin, the newest are read.
SOURCES_PAGE_BYTES = 4_000_000


class Where(TypedDict):
    """Where to look for the subject."""

    namespace: str
    session_id: str | None
    user_id: str | None
    without_user: bool


def explain_fact(
    fetcher: Fetcher, where: Where, owner_key: UUID | None, fact_id: UUID
) -> FactExplanation | RemovedFactExplanation | None:
    """Explain a fact by its id, even if people removed it; None if none of the owners has such a fact."""
    for fact in fetcher.fetch(ExplainFindFacts(**where, owner_key=owner_key, fact_id=fact_id)):
        (row,) = fetcher.fetch(
            ExplainFact(shard_key=fact.shard_key, generation_id=fact.generation_id, fact_id=fact_id)
        )
        return FactExplanation.of(
            row,
            generation=row.generation_id,
            generation_state=row.state,
            topics=tuple(row.topics),
            doubt=_doubt(row),
            doubted_by=tuple(row.doubted_by),
            revisions=_revisions(fetcher, fact.shard_key, fact.generation_id, fact_id),
            events=_events(fetcher, fact.shard_key, fact.generation_id, fact_id),
            successors=_successors(fetcher, fact.shard_key, fact_id),
        )
    for owner in fetcher.fetch(ExplainFindFactEvents(**where, owner_key=owner_key, fact_id=fact_id)):
        return RemovedFactExplanation(
            fact_id=fact_id,
            events=_events(fetcher, owner.shard_key, None, fact_id),
            successors=_successors(fetcher, owner.shard_key, fact_id),
        )
    return None


def _doubt(row: ExplainFactRow) -> DoubtTrace | None:
    if row.doubt_operation is None or row.doubt_fact_id is None or row.doubt_reason is None:
        return None
    reason = doubt_sentence(row.doubt_reason)
    return DoubtTrace(
        operation=row.doubt_operation, fact_id=row.doubt_fact_id, text=row.doubted, reason=reason
    )


def _revisions(
    fetcher: Fetcher, shard_key: UUID, generation_id: int, fact_id: UUID
) -> tuple[RevisionTrace, ...]:
    key = DerivationKeys(shard_key=shard_key, generation_id=generation_id)
    rows = fetcher.fetch(ExplainRevisions(**key, fact_id=fact_id))
    page = SOURCES_PAGE_BYTES
    sources = _by_revision(fetcher.fetch(ExplainSources(**key, fact_id=fact_id, page_bytes=page)))
    contexts = _by_revision(fetcher.fetch(ExplainContextSources(**key, fact_id=fact_id, page_bytes=page)))
    calls = model_calls(fetcher, shard_key, [batch_id for row in rows for batch_id in _batches(row)])
    removed = fetcher.fetch(ExplainRemovedSources(**key, fact_id=fact_id))
    return tuple(
        RevisionTrace.of(
            row,
            at=row.created_at,
            messages=tuple(sources.get(row.revision, ())),
            context=tuple(contexts.get(row.revision, ())),
            calls=tuple(call for call in calls if call.batch_id in _batches(row)),
            removed=tuple(RemovedSource.of(one) for one in removed if one.revision == row.revision),
        )
        for row in rows
    )


def _by_revision(
    rows: Sequence[SourceMessageRow],
) -> dict[int, list[Source]]:
    by_revision: dict[int, list[Source]] = {}
    for row, message in zip(rows, read_rows(rows), strict=True):
        by_revision.setdefault(row.revision, []).append(source_of(message))
    return by_revision


def _batches(row: ExplainRevisionsRow) -> tuple[UUID | None, ...]:
    return row.extract_batch_id, row.merge_batch_id, row.condense_batch_id


def _successors(fetcher: Fetcher, shard_key: UUID, fact_id: UUID) -> tuple[SuccessorTrace, ...]:
    rows = fetcher.fetch(ExplainSuccessors(shard_key=shard_key, fact_id=fact_id))
    return tuple(map(SuccessorTrace.of, rows))


def _events(
    fetcher: Fetcher, shard_key: UUID, generation_id: int | None, fact_id: UUID
) -> tuple[FactEventTrace, ...]:
    rows = fetcher.fetch(ExplainFactEvents(shard_key=shard_key, generation_id=generation_id, fact_id=fact_id))
    return tuple(FactEventTrace.of(row, at=row.created_at) for row in rows)
