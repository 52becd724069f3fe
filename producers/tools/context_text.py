"""The result of ``get_context``: the pieces of a read as one numbered text, with their sources.

The limit of tokens holds for the whole result as JSON, sources included.  If not all pieces fit, the best
match for the question and the latest message stay, and the latest messages have no gap, unless one of these
alone is over the limit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from strandline.producers.reading.context import GivenFact, MemoryContext, Source
from strandline.producers.tools.results import CitationResult, ContextResult, source_results
from strandline.schemas.display.local_time import in_zone
from strandline.schemas.display.shown_text import seen
from strandline.schemas.values.message import Message, by_local_clock, speaker_of_line

NOTHING = "Memory holds nothing for this question, or nothing that fits the token_limit."

# A piece's number, twice, and its separator.
_NUMBER_TOKENS = 8

# Ranks of pieces: parts that the read bounds itself, matches, the latest messages, facts that are merely new.
_WHOLE, _MATCHING, _LATEST, _NEWEST = range(4)
_ALL = sys.maxsize
# The order in which pieces take room: at most so many, and this share of the rest.
_SHARES = (
    (_WHOLE, _ALL, 1.0),
    (_MATCHING, 1, 1.0),
    (_LATEST, 1, 1.0),
    (_LATEST, _ALL, 0.25),
    (_MATCHING, _ALL, 1.0),
    (_NEWEST, _ALL, 1.0),
    (_LATEST, _ALL, 1.0),
)

Part = Literal["Notes", "Facts", "Summary", "Messages", "Latest messages"]

_PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A line of the text; the smaller rank has the room first, and its source has a kind, if there is one."""

    part: Part
    rank: tuple[int, float]
    line: str
    kind: Literal["fact", "message", "summary"] | None
    id: str = ""
    sources: tuple[Source, ...] = ()

    def cite(self, number: int) -> CitationResult | None:
        if self.kind is None:
            return None
        return CitationResult(number=number, kind=self.kind, id=self.id, sources=source_results(self.sources))


def context_result(
    context: MemoryContext, token_limit: int, count_text: Callable[[str], int]
) -> ContextResult:
    """The pieces of a read that fit ``token_limit``, as a text with numbers, and their sources."""
    pieces = list(_pieces(context))
    kept = _choose(pieces, token_limit, count_text)
    while kept and _cost(result := _lay_out(_in_order(pieces, kept)), count_text) > token_limit:
        kept = kept[:-1]
    return result if kept else ContextResult(text=NOTHING, citations=[])


def _pieces(context: MemoryContext) -> Iterator[_Piece]:
    for section in context.memory.sections:
        if section.kind == "other":
            yield _Piece("Notes", (_WHOLE, 0.0), f"{section.name}: {_line(section.text)}", None)
    for fact in context.facts:
        yield _fact(fact, context.time_zone)
    if context.summary is not None:
        yield _Piece("Summary", (_WHOLE, 0.0), _line(context.summary.text), "summary")
    for hit in context.hits:
        source = Source(hit.session_id, (hit.message.seq or 0,))
        hit_message = by_local_clock(hit.message, context.time_zone)
        yield _message("Messages", (_MATCHING, -hit.score), hit_message, source)
    latest = [*context.tail, *context.window]
    for age, message in zip(range(len(latest), 0, -1), latest, strict=True):
        if message.shown_text.strip():
            source = Source(context.session_id, (message.seq or 0,))
            local = by_local_clock(message, context.time_zone)
            yield _message("Latest messages", (_LATEST, float(age)), local, source)


def _fact(fact: GivenFact, time_zone: str | None) -> _Piece:
    is_match = fact.score > 0
    rank = (_MATCHING, -fact.score) if is_match else (_NEWEST, -fact.said_at.timestamp())
    line = f"{_day(in_zone(fact.said_at, time_zone))}{_line(fact.text)}"
    return _Piece("Facts", rank, line, "fact", str(fact.fact_id), fact.sources)


def _message(part: Part, rank: tuple[int, float], message: Message, source: Source) -> _Piece:
    speaker = seen(speaker_of_line(message.name, message.role))
    line = f"{_day(message.created_at)}{speaker}: {_line(message.shown_text)}"
    return _Piece(part, rank, line, "message", message.id or "", (source,))


def _line(text: str) -> str:
    """A text whose further lines are indented, so that none passes for a piece or a heading."""
    return seen(text).strip().replace("\n", "\n  ")


def _day(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d} "


def _choose(pieces: Sequence[_Piece], token_limit: int, count_text: Callable[[str], int]) -> list[int]:
    room = token_limit - _cost(_lay_out([]), count_text) - _headings_cost(count_text)
    costs = [_piece_cost(piece, len(pieces), count_text) for piece in pieces]
    fitting = (place for place, cost in enumerate(costs) if cost <= room)
    order = sorted(fitting, key=lambda place: pieces[place].rank)
    kept: list[int] = []
    for group, most, share in _SHARES:
        left = int(room * share)
        rest = [place for place in order if pieces[place].rank[0] == group and place not in kept]
        for place in rest[:most]:
            if costs[place] <= left:
                left -= costs[place]
                room -= costs[place]
                kept.append(place)
            elif group == _LATEST:
                break
    return kept


def _piece_cost(piece: _Piece, number: int, count_text: Callable[[str], int]) -> int:
    citation = piece.cite(number)
    source = "" if citation is None else json.dumps(citation.as_json(), ensure_ascii=False)
    return count_text(json.dumps(piece.line, ensure_ascii=False)) + count_text(source) + _NUMBER_TOKENS


def _headings_cost(count_text: Callable[[str], int]) -> int:
    return sum(count_text(f"\\n{part}:\\n") for part in _PARTS)


def _in_order(pieces: Sequence[_Piece], kept: Sequence[int]) -> list[_Piece]:
    return [pieces[place] for place in sorted(kept)]


def _lay_out(pieces: Sequence[_Piece]) -> ContextResult:
    lines: list[str] = []
    citations: list[CitationResult] = []
    for part in _PARTS:
        of_part = [piece for piece in pieces if piece.part == part]
        if of_part:
            lines.append(f"{part}:")
        for piece in of_part:
            citation = piece.cite(len(citations) + 1)
            lines.append(piece.line if citation is None else f"[{citation.number}] {piece.line}")
            citations += [] if citation is None else [citation]
    return ContextResult(text="\n".join(lines), citations=citations)


def _cost(result: ContextResult, count_text: Callable[[str], int]) -> int:
    return count_text(json.dumps(result.as_json(), ensure_ascii=False))
