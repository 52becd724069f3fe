"""What ``ask`` prints under ``--json``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from strandline.cli.reports.memory import ReadState
from strandline.pipelines.transcript import speaker
from strandline.producers.reading.context import MemoryContext
from strandline.producers.reading.given import GivenMessage
from strandline.schemas.values.message import Message
from strandline.schemas.wire.contexts import GivenFactOut, GivenSummaryOut, SourceOut
from strandline.schemas.wire.report import Report


class GivenMessageReport(Report):
    """A message in the prompt that the search found; one with ``is_beside`` stands beside a message that
    matches, and has the score of that one."""

    id: str
    session_id: str
    seq: int
    created_at: datetime | None
    said_by: str
    text: str
    score: float
    similarity: float
    tokens: int
    is_beside: bool


class CitationReport(Report, from_attributes=True):
    """A piece of memory in the prompt; ``id`` and ``sources`` are empty for a summary."""

    number: int
    kind: Literal["fact", "message", "summary"]
    text: str
    id: str
    sources: list[SourceOut]
    at: datetime | None
    score: float


class TokenUseReport(Report):
    """The tokens of the read by what they are used for; with ``free`` they are the limit, or more if the read
    is over it."""

    head: int
    window: int
    tail: int
    facts: int
    summary: int
    messages: int
    other: int
    free: int


class RangeReport(Report):
    """Messages of the session that are shown as they were put."""

    messages: int
    from_seq: int
    through_seq: int


class AskReport(ReadState):
    """``strandline ask``: what a read with the question gave, and where it is from."""

    question: str
    token_use: TokenUseReport
    head: RangeReport | None
    window: RangeReport | None
    tail: RangeReport | None
    facts: list[GivenFactOut]
    summary: GivenSummaryOut | None
    hits: list[GivenMessageReport]
    citations: list[CitationReport]


def report_answer(question: str, context: MemoryContext, state: ReadState) -> AskReport:
    """What the read gave, as a report."""
    summary = context.summary
    return AskReport(
        **dict(state),
        question=question,
        token_use=TokenUseReport.of(context.token_use()),
        head=_range(context.head),
        window=_range(context.window),
        tail=_range(context.tail),
        facts=[GivenFactOut.model_validate(fact) for fact in context.facts],
        summary=None if summary is None else GivenSummaryOut.model_validate(summary),
        hits=[_message(hit) for hit in context.hits],
        citations=[CitationReport.model_validate(citation) for citation in context.citations()],
    )


def _range(messages: Sequence[Message]) -> RangeReport | None:
    if not messages:
        return None
    return RangeReport(
        messages=len(messages), from_seq=messages[0].seq or 0, through_seq=messages[-1].seq or 0
    )


def _message(hit: GivenMessage) -> GivenMessageReport:
    message = hit.message
    return GivenMessageReport.of(
        hit,
        id=message.id or "",
        seq=message.seq or 0,
        created_at=message.created_at,
        said_by=speaker(message),
        text=message.text,
    )
