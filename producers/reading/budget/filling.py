"""Fills the room that other blocks leave: a summary cut to its share, and the pieces that fit best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strandline.producers.blocks.base import BaseMemoryBlock, FactExtractionMemoryBlock, SummaryMemoryBlock
from strandline.producers.blocks.render import conversation_text
from strandline.producers.reading.budget.choice import choose_pieces, rank_messages
from strandline.producers.reading.budget.contributions import Contribution, Measure
from strandline.producers.reading.budget.pieces import Candidates, Chosen, MessagePiece, words_of
from strandline.producers.reading.budget.recent_counts import recent_counts
from strandline.producers.reading.context import Omission
from strandline.producers.search.hits import Place
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.values.message import Message

# Of the room, for the summary if there is more to show: it says a little of everything.
SUMMARY_SHARE = 0.15
# A shorter part of a message may mean something else there.
MIN_PART_CHARACTERS = 24
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
        shown_texts: what these say, if that is known.
        time_zone: of the session; None: UTC.
    """

    blocks: tuple[BaseMemoryBlock, ...] = ()
    candidates: Candidates = field(default_factory=Candidates)
    summaries: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[Place, Message] = field(default_factory=dict)
    shown_texts: frozenset[str] | None = None
    time_zone: str | None = None

    @property
    def characters(self) -> int:
        """Of all that may be counted."""
        texts = [piece.text for pieces in self.candidates.messages.values() for piece in pieces]
        texts += [fact.text for fact in (*self.candidates.facts, *self.candidates.newest_facts)]
        return sum(map(len, texts)) + sum(map(len, self.summaries.values()))

    def fill(self, kept: Sequence[Contribution], room: int, measure: Measure) -> Filled:
        """The sections that fit beside ``kept``, within ``room`` tokens for the whole memory."""
        if not self.blocks:
            return Filled()
        free = room - measure.cost(kept)
        texts = self.shown_texts or frozenset()
        if self.shown_texts is None and any(self.candidates.messages.values()):
            texts = frozenset([message.text for message in self.shown.values()])
        ranked = rank_messages(self.candidates, self.shown, texts)
        for attempt in range(MAX_ATTEMPTS):
            filled = self._fill(free, measure, ranked, texts)
            excess = measure.cost([*kept, *filled.contributions.values()]) - room
            if excess <= 0 or not filled.contributions:
                return filled
            free -= excess << attempt
        return Filled()

    def without(self, messages: Mapping[Place, Message]) -> Filling:
        """The same where these messages are shown as well."""
        return replace(self, shown={**self.shown, **messages}, shown_texts=None)

    def _fill(
        self,
        free: int,
        measure: Measure,
        ranked: Sequence[tuple[str, MessagePiece]],
        texts_shown: frozenset[str],
    ) -> Filled:
        free -= sum([_frame(block, measure) for block in self.blocks])
        room = int(free * SUMMARY_SHARE) if self._has_pieces() else free
        cut = {block.name: self._cut_summary(block, room, measure) for block in self._summary_blocks()}
        left = free - _tokens(cut.values(), measure)
        chosen = choose_pieces(self.candidates, left, self.shown, ranked)
        unused = left - chosen.tokens
        if unused > 0 and cut != self.summaries:
            room += unused
            cut = {block.name: self._cut_summary(block, room, measure) for block in self._summary_blocks()}
        summaries = _without_repeated(cut, chosen) if any(cut.values()) else cut
        if summaries != cut:
            # What the summary need not say leaves room for more, unless a line is then lost from both.
            left = free - _tokens(summaries.values(), measure)
            more = choose_pieces(self.candidates, left, self.shown, ranked)
            beside = _without_repeated(cut, more)
            if _tokens(beside.values(), measure) <= _tokens(summaries.values(), measure):
                chosen, summaries = more, beside
        texts = {**summaries, **dict(_facts(self.blocks, chosen)), **self._conversations(chosen)}
        contributions = {
            block.name: Contribution(block, texts[block.name])
            for block in self.blocks
            if texts.get(block.name)
        }
        left_out = (*_cut(self.summaries, cut, summaries, measure), *self._left_out(chosen, texts_shown))
        return Filled(contributions, chosen, left_out)

    def _conversations(self, chosen: Chosen) -> dict[str, str]:
        shown = {
            name: [(one.place[0], one.message, one.line) for one in pieces]
            for name, pieces in chosen.messages.items()
        }
        return {name: conversation_text(lines, self.time_zone) for name, lines in shown.items() if lines}

    def _has_pieces(self) -> bool:
        candidates = self.candidates
        return bool(candidates.facts or candidates.newest_facts or any(candidates.messages.values()))

    def _summary_blocks(self) -> list[SummaryMemoryBlock]:
        return [block for block in self.blocks if isinstance(block, SummaryMemoryBlock)]

    def _cut_summary(self, block: SummaryMemoryBlock, room: int, measure: Measure) -> str:
        text = self.summaries.get(block.name, "")
        excess = _count(text, measure) - room
        return text if excess <= 0 else block.truncate(text, excess, measure.count_text) or ""

    def _left_out(self, chosen: Chosen, texts_shown: frozenset[str]) -> Iterator[Omission]:
        """The messages and facts that match and had no room."""
        taken = {one.place: one.message for pieces in chosen.messages.values() for one in pieces}
        texts = texts_shown.union([one.text for pieces in chosen.messages.values() for one in pieces])
        facts = {fact.fact_id for fact in chosen.facts}
        for block in self.blocks:
            name = block.name
            if isinstance(block, FactExtractionMemoryBlock):
                kept = [f.fact_id in facts or f.is_told_by(self.shown, taken) for f in self.candidates.facts]
                yield from _had_no_room(name, "fact", kept)
            else:
                pieces = self.candidates.messages.get(name, ())
                yield from _had_no_room(name, "message", [piece.text in texts for piece in pieces])


def _cut(
    whole: Mapping[str, str], cut: Mapping[str, str], reduced: Mapping[str, str], measure: Measure
) -> Iterator[Omission]:
    """The summaries that had not enough room; what messages beside it say is no loss."""
    for name, text in cut.items():
        if text == whole.get(name, ""):
            continue
        before, after = _count(whole[name], measure), _count(reduced[name], measure)
        if after:
            reason = f"Shortened from {before} to {quantity(after, 'token')} to fit the limit."
            yield Omission("block_truncated", name, reason)
        else:
            yield Omission("block_dropped", name, f"Its {quantity(before, 'token')} had no room.")


def _had_no_room(name: str, what: str, kept: Sequence[bool]) -> Iterator[Omission]:
    missing = kept.count(False)
    if missing:
        reason = f"{missing} of {quantity(len(kept), what)} that match had no room."
        yield Omission("block_truncated", name, reason)


def _tokens(texts: Iterable[str], measure: Measure) -> int:
    return sum(_count(text, measure) for text in texts if text)


def _count(text: str, measure: Measure) -> int:
    return recent_counts.count(measure.count_text, text)


def _without_repeated(summaries: Mapping[str, str], chosen: Chosen) -> dict[str, str]:
    """The summaries without the lines or sentences that the chosen messages say in the same words."""
    lines = [piece.words for pieces in chosen.messages.values() for piece in pieces]
    return {name: _without_said(text, frozenset(lines), "\n".join(lines)) for name, text in summaries.items()}


def _without_said(summary: str, messages: frozenset[str], together: str) -> str:
    pieces, between = SummaryMemoryBlock.pieces_of(summary)
    return between.join(piece for piece in pieces if not _is_said(words_of(piece), messages, together))


def _is_said(words: str, messages: frozenset[str], together: str) -> bool:
    """Whether a message is these words, or holds them where they are more than a phrase."""
    return words in messages or (len(words) >= MIN_PART_CHARACTERS and words in together)


def _frame(block: BaseMemoryBlock, measure: Measure) -> int:
    return _count(f"<{block.name}>\n\n</{block.name}>\n", measure)


def _facts(blocks: Sequence[BaseMemoryBlock], chosen: Chosen) -> Iterator[tuple[str, str]]:
    for block in blocks:
        if isinstance(block, FactExtractionMemoryBlock) and chosen.facts:
            yield block.name, "\n".join(fact.line for fact in chosen.facts)
