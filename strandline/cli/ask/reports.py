"""What ``ask`` prints under ``--json``."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.cli.reports.memory import ReadState
from strandline.pipelines.transcript import speaker
from strandline.producers.reading.context import MemoryContext
from strandline.producers.reading.given import Citation, GivenFact, GivenMessage, GivenSummary, Source
from strandline.schemas.wire.report import Report


class SourceReport(Report):
    """Messages of one session that something comes from."""

    session_id: str
    seqs: list[int]


class GivenFactReport(Report):
    """A fact in the prompt; ``score`` is 0 if it was given because it is new."""

    fact_id: UUID
    text: str
    said_at: datetime
    sources: list[SourceReport]
    score: float
    tokens: int


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


class GivenSummaryReport(Report):
    """The summary in the prompt; ``is_cut`` if a part of it had no room."""

    text: str
    through_seq: int
    is_cut: bool
    tokens: int


class CitationReport(Report):
    """A piece of memory in the prompt; ``id`` and ``sources`` are empty for a summary."""

    number: int
    kind: Literal["fact", "message", "summary"]
    text: str
    id: str
    sources: list[SourceReport]
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
    facts: list[GivenFactReport]
    summary: GivenSummaryReport | None
    hits: list[GivenMessageReport]
    citations: list[CitationReport]


def report_answer(question: str, context: MemoryContext, state: ReadState) -> AskReport:
    """What the read gave, as a report."""
    use = context.token_use()
    return AskReport(
        **dict(state),
        question=question,
        token_use=TokenUseReport.of(use),
        head=_range([message.seq or 0 for message in context.head]),
        window=_range([message.seq or 0 for message in context.window]),
        tail=_range([message.seq or 0 for message in context.tail]),
        facts=[_fact(fact) for fact in context.facts],
        summary=_summary(context.summary),
        hits=[_message(hit) for hit in context.hits],
        citations=[_citation(citation) for citation in context.citations()],
    )


def _range(seqs: list[int]) -> RangeReport | None:
    return RangeReport(messages=len(seqs), from_seq=seqs[0], through_seq=seqs[-1]) if seqs else None


def _fact(fact: GivenFact) -> GivenFactReport:
    return GivenFactReport.of(fact, sources=_sources(fact.sources))


def _summary(summary: GivenSummary | None) -> GivenSummaryReport | None:
    return None if summary is None else GivenSummaryReport(**asdict(summary))


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


def _citation(citation: Citation) -> CitationReport:
    return CitationReport.of(citation, sources=_sources(citation.sources))


def _sources(sources: tuple[Source, ...]) -> list[SourceReport]:
    return [SourceReport(session_id=source.session_id, seqs=list(source.seqs)) for source in sources]
