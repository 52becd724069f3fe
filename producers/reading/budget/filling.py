"""Fills the room that other blocks leave: a summary cut to its share, and the pieces that fit best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strandline.producers.blocks.base import BaseMemoryBlock, FactExtractionMemoryBlock, SummaryMemoryBlock
from strandline.producers.blocks.render import conversation_text
from strandline.producers.reading.budget.choice import choose_pieces
from strandline.producers.reading.budget.contributions import Contribution, Measure
from strandline.producers.reading.budget.pieces import Candidates, Chosen, Place
from strandline.producers.reading.context import Omission
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.values.message import Message

# Of the room, for the summary if there is more to show: it says a little of everything.
SUMMARY_SHARE = 0.15
# Before a colon: a longer text is no name.
MAX_SPEAKER_CHARACTERS = 64
# Attempts to come within the room: lines are counted one by one, and the memory as a whole. Each attempt
# gives up twice as much of the room as the one before, since other pieces replace those that were too large.
MAX_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class Filled:
    """The sections that fill a room.

    Attributes:
        contributions: by name of the block.
        chosen: the pieces in them.
        omitted: what had no room.
    """

    contributions: Mapping[str, Contribution] = field(default_factory=dict)
    chosen: Chosen = field(default_factory=Chosen)
    omitted: tuple[Omission, ...] = ()


@dataclass(frozen=True, slots=True)
class Filling:
    """What may fill a room.

    Attributes:
        blocks: those that fill it, in the order of their sections.
        candidates: facts and messages.
        summaries: the whole text of each block that shows a summary, escaped, by its name.
        shown: the messages that the read shows anyway.
    """

    blocks: tuple[BaseMemoryBlock, ...] = ()
    candidates: Candidates = field(default_factory=Candidates)
    summaries: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[Place, Message] = field(default_factory=dict)

    @property
    def characters(self) -> int:
        """Of all that may be counted."""
        pieces = (piece for pieces in self.candidates.messages.values() for piece in pieces)
        facts = (*self.candidates.facts, *self.candidates.newest_facts)
        return (
            sum(len(piece.message.text) for piece in pieces)
            + sum(len(fact.text) for fact in facts)
            + sum(map(len, self.summaries.values()))
        )

    def fill(self, kept: Sequence[Contribution], room: int, measure: Measure) -> Filled:
        """The sections that fit beside ``kept``, within ``room`` tokens for the whole memory."""
        if not self.blocks:
            return Filled()
        free = room - measure.cost(kept)
        for attempt in range(MAX_ATTEMPTS):
            filled = self._fill(free, measure)
            excess = measure.cost([*kept, *filled.contributions.values()]) - room
            if excess <= 0 or not filled.contributions:
                return filled
            free -= excess << attempt
        return Filled()

    def without(self, messages: Mapping[Place, Message]) -> Filling:
        """The same where these messages are shown as well."""
        return replace(self, shown={**self.shown, **messages})

    def _fill(self, free: int, measure: Measure) -> Filled:
        free -= sum(_frame(block, measure) for block in self.blocks)
        has_pieces = bool(self.candidates.facts or any(self.candidates.messages.values()))
        room = int(free * SUMMARY_SHARE) if has_pieces else free
        cut = {block.name: self._cut_summary(block, room, measure) for block in self._summary_blocks()}
        chosen = choose_pieces(self.candidates, free - _tokens(cut.values(), measure), self.shown)
        summaries = {name: _without_repeated(text, _lines_of(chosen)) for name, text in cut.items()}
        if summaries != cut:
            # What the summary need not say leaves room for more.
            chosen = choose_pieces(self.candidates, free - _tokens(summaries.values(), measure), self.shown)
        texts = {**summaries, **dict(_facts(self.blocks, chosen)), **dict(_conversations(chosen))}
        contributions = {
            block.name: Contribution(block, texts[block.name])
            for block in self.blocks
            if texts.get(block.name)
        }
        left_out = tuple(self._left_out(chosen, cut, measure))
        return Filled(contributions, chosen, left_out)

    def _summary_blocks(self) -> list[SummaryMemoryBlock]:
        return [block for block in self.blocks if isinstance(block, SummaryMemoryBlock)]

    def _cut_summary(self, block: SummaryMemoryBlock, room: int, measure: Measure) -> str:
        text = self.summaries.get(block.name, "")
        excess = measure.count_text(text) - room
        return text if excess <= 0 else block.truncate(text, excess, measure.count_text) or ""

    def _left_out(self, chosen: Chosen, cut: Mapping[str, str], measure: Measure) -> Iterator[Omission]:
        """What had no room; of messages and facts only those that match."""
        chosen_messages = {one.place: one.message for pieces in chosen.messages.values() for one in pieces}
        taken = {**self.shown, **chosen_messages}
        facts = {fact.fact_id for fact in chosen.facts}
        for block in self.blocks:
            name = block.name
            if isinstance(block, SummaryMemoryBlock) and cut[name] != self.summaries.get(name, ""):
                before, after = (measure.count_text(text) for text in (self.summaries[name], cut[name]))
                reason = f"Shortened from {before} to {quantity(after, 'token')} to fit the limit."
                yield Omission("block_truncated", name, reason)
            elif isinstance(block, FactExtractionMemoryBlock):
                kept = [f.fact_id in facts or f.is_told_by(taken) for f in self.candidates.facts]
                yield from _had_no_room(name, "fact", kept)
            else:
                pieces = self.candidates.messages.get(name, ())
                yield from _had_no_room(name, "message", [piece.place in taken for piece in pieces])


def _had_no_room(name: str, what: str, kept: Sequence[bool]) -> Iterator[Omission]:
    missing = kept.count(False)
    if missing:
        reason = f"{missing} of {quantity(len(kept), what)} that match had no room."
        yield Omission("block_truncated", name, reason)


def _tokens(texts: Iterable[str], measure: Measure) -> int:
    return sum(measure.count_text(text) for text in texts if text)


def _lines_of(chosen: Chosen) -> str:
    """All that the chosen messages say, as it is shown."""
    pieces = (piece for pieces in chosen.messages.values() for piece in pieces)
    return "\n".join(piece.line for piece in pieces)


def _without_repeated(summary: str, lines: str) -> str:
    """The summary without the lines or sentences that messages say in the same words."""
    pieces, between = SummaryMemoryBlock.pieces_of(summary)
    return between.join(piece for piece in pieces if not _words_of(piece) or _words_of(piece) not in lines)


def _words_of(piece: str) -> str:
    """A line of a summary without who said it."""
    speaker, colon, words = piece.partition(": ")
    return words.strip() if colon and len(speaker) <= MAX_SPEAKER_CHARACTERS else piece.strip()


def _frame(block: BaseMemoryBlock, measure: Measure) -> int:
    return measure.count_text(f"<{block.name}>\n\n</{block.name}>\n")


def _facts(blocks: Sequence[BaseMemoryBlock], chosen: Chosen) -> Iterator[tuple[str, str]]:
    for block in blocks:
        if isinstance(block, FactExtractionMemoryBlock) and chosen.facts:
            yield block.name, "\n".join(fact.line for fact in chosen.facts)


def _conversations(chosen: Chosen) -> Iterator[tuple[str, str]]:
    for name, pieces in chosen.messages.items():
        if pieces:
            yield name, conversation_text([(one.session_key, one.message, one.line) for one in pieces])
