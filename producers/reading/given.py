"""What a read gave, and where it comes from: facts, messages and the summary, for applications to cite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.schemas.values.message import Message

CitationKind = Literal["fact", "message", "summary"]
SectionKind = Literal["facts", "summary", "messages", "other"]


@dataclass(frozen=True, slots=True)
class Source:
    """Messages of one session that something comes from."""

    session_id: str
    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GivenFact:
    """A fact that a read gave.

    Attributes:
        fact_id: for ``memory.facts.get``.
        said_at: when it was last said.
        sources: the messages that it comes from; empty if a person added it.
        score: how well it matches the query, above 0; 0 if it was not compared, since it is new, or since all
            facts have room.
        tokens: of its line.
    """

    fact_id: UUID
    text: str
    said_at: datetime
    sources: tuple[Source, ...]
    score: float
    tokens: int


@dataclass(frozen=True, slots=True)
class GivenMessage:
    """A message that a search found, and that a read gave.

    Attributes:
        message: as it was put, with ``seq`` and ``created_at``.
        session_id: the session that it was put to.
        score: how well it matches the query, 0 to 1; comparable only within one read.
        similarity: the cosine similarity to the query; 0 if only words were compared.
        tokens: of its line.
        is_beside: whether it was given only because it stands beside a message that matches, whose score and
            similarity it then has.
    """

    message: Message
    session_id: str
    score: float
    similarity: float
    tokens: int
    is_beside: bool = False


@dataclass(frozen=True, slots=True)
class GivenSummary:
    """The summary that a read gave.

    Attributes:
        text: as it is given.
        through_seq: the last message that it covers.
        is_cut: whether a part of it had no room.
        tokens: of ``text``.
    """

    text: str
    through_seq: int
    is_cut: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class Citation:
    """One piece of memory that a read gave, for an application that shows where an answer comes from.

    Attributes:
        number: 1, 2, …: facts, then the summary, then messages; the prompt does not show it.
        kind: ``fact``, ``message`` or ``summary``.
        text: as it was stored; data, never markup.
        id: of the fact or message; empty for a summary.
        sources: sessions and the numbers of their messages; empty for a summary, which tells of all messages
            up to ``context.summary.through_seq``.
        at: when it was said; None for a summary.
        score: as ``GivenFact`` and ``GivenMessage`` have it; 0 for a summary.
    """

    number: int
    kind: CitationKind
    text: str
    id: str
    sources: tuple[Source, ...]
    at: datetime | None
    score: float


@dataclass(frozen=True, slots=True)
class GivenSection:
    """The text of one block in the prompt.

    Attributes:
        name: of the block.
        kind: what the block shows; ``messages``: what a search found, even if it was asked for facts.
        text: escaped, as it stands between the block's tags.
    """

    name: str
    kind: SectionKind
    text: str


@dataclass(frozen=True, slots=True)
class Given:
    """All that a read gave from memory; window and tail are messages of the context."""

    facts: tuple[GivenFact, ...] = ()
    hits: tuple[GivenMessage, ...] = ()
    summary: GivenSummary | None = None
    sections: tuple[GivenSection, ...] = ()


def cite(memory: Given, session_id: str) -> list[Citation]:
    """The pieces as citations, numbered: facts, then the summary, then messages."""
    pieces: list[tuple[CitationKind, str, str, tuple[Source, ...], datetime | None, float]] = [
        ("fact", fact.text, str(fact.fact_id), fact.sources, fact.said_at, fact.score)
        for fact in memory.facts
    ]
    if memory.summary is not None:
        pieces.append(("summary", memory.summary.text, "", (), None, 0.0))
    pieces += [("message", *_message(hit)) for hit in memory.hits]
    return [Citation(number, *piece) for number, piece in enumerate(pieces, start=1)]


def _message(hit: GivenMessage) -> tuple[str, str, tuple[Source, ...], datetime | None, float]:
    message = hit.message
    source = Source(hit.session_id, (message.seq or 0,))
    return message.shown_text, message.id or "", (source,), message.created_at, hit.score


def sources_of_places(places: Sequence[tuple[str, int]]) -> tuple[Source, ...]:
    """Numbers of messages by their session, in order."""
    by_session: dict[str, list[int]] = {}
    for session_id, seq in sorted(places):
        by_session.setdefault(session_id, []).append(seq)
    return tuple(Source(session_id, tuple(seqs)) for session_id, seqs in by_session.items())
