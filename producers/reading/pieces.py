"""The pieces that may fill a read's room, facts and messages, and their choice."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from uuid import UUID

from strandline.producers.blocks.base import BaseMemoryBlock, Material
from strandline.producers.blocks.render import speech_line
from strandline.producers.reading.context import Omission, Source
from strandline.producers.reading.contributions import Contribution
from strandline.producers.search.hits import Place, Utterance
from strandline.schemas.values.message import Message

# Messages tell a fact if they hold so much of its words, since a model rewords it.  Only words of so many
# letters count, compared by so many letters, whatever their ending.
TOLD_SHARE = 0.5
NAMING_CHARACTERS = 3
STEM_CHARACTERS = 5

# Of the room, for the summary if there is more to show: it says a little of everything.
SUMMARY_SHARE = 0.15
# Of the room, kept for facts while messages are chosen; what facts leave of it messages get in the end.
FACTS_SHARE = 0.15
# Of the facts' room, kept for the newest, which may matter unasked.
NEWEST_SHARE = 0.25

# Before a colon: a longer text is not a name.
MAX_SPEAKER_CHARACTERS = 64

_WORD = re.compile(r"\w+")

# Speaker and line end, on top of the count from the put.
LINE_TOKENS = 4
# The line that names the day of the facts below it.
DAY_TOKENS = 8

NOTHING_SHOWN: Mapping[Place, Message] = MappingProxyType({})


@dataclass(slots=True)
class FactPiece:
    """A fact that may be shown.

    Attributes:
        line: as it is shown, below its day.
        day: on which it was said, in the time zone of the session.
        sources: the messages that it comes from, with their sessions' names; empty if a person added it.
        score: how well it matches the query; 0 if it is a candidate because it is new.
        tokens: of its line.
        named_sources: of sessions whose names are known.
    """

    fact_id: UUID
    text: str
    line: str
    day: str
    said_at: datetime
    sources: Mapping[Place, str]
    score: float
    tokens: int
    named_sources: tuple[Source, ...] = ()

    def is_told_by(
        self, shown: Mapping[Place, Message], chosen: Mapping[Place, Message] = NOTHING_SHOWN
    ) -> bool:
        """Whether all the messages that it comes from are shown, or chosen, and say it themselves.

        "Tom took the job" comes from "He said yes", which alone does not say so.
        """
        messages = []
        for place in self.sources:
            if (message := chosen.get(place) or shown.get(place)) is None:
                return False  # as with most
            messages.append(message)
        if not messages:
            return False
        texts = " ".join(f"{message.name or ''} {message.text}" for message in messages).casefold()
        words = [word for word in _WORD.findall(self.text.casefold()) if len(word) >= NAMING_CHARACTERS]
        return sum(word[:STEM_CHARACTERS] in texts for word in words) >= TOLD_SHARE * len(words)


@dataclass(slots=True)
class MessagePiece:
    """A message that may be shown.

    Attributes:
        score: how well it matches the query.
        rank: its score, or less if an application's function put it below one of a lower score.
        similarity: the cosine similarity; 0 if only words were compared.
        place: its session and number.
        tokens: of its line.
    """

    utterance: Utterance
    score: float
    rank: float
    similarity: float
    message: Message
    place: Place
    text: str
    tokens: int

    @classmethod
    def of(cls, utterance: Utterance, score: float, rank: float, similarity: float) -> MessagePiece:
        message = utterance.message
        tokens = (message.tokens or 0) + LINE_TOKENS
        return cls(utterance, score, rank, similarity, message, utterance.place, utterance.text, tokens)

    @property
    def line(self) -> str:
        """As shown; made on demand."""
        if self.utterance.line is None:
            self.utterance.line = speech_line(self.utterance.message)
        return self.utterance.line

    @property
    def words(self) -> str:
        """Its line without who said it."""
        if self.utterance.words is None:
            self.utterance.words = words_of(self.line)
        return self.utterance.words


def words_of(line: str) -> str:
    """A line without who said it."""
    speaker, colon, words = line.partition(": ")
    return words.strip() if colon and len(speaker) <= MAX_SPEAKER_CHARACTERS else line.strip()


@dataclass(frozen=True)
class Candidates:
    """The memory that a read may show.

    Attributes:
        material: for blocks that render by themselves.
        blocks: that fill the room, in the order of their sections.
        newest_facts: newest first.
        facts: matches of the query, best first.
        messages: by name of the block that searched for them, best first.
        summaries: the whole text of each block that shows a summary, escaped, by its name.
        shown: the messages that the read shows anyway.
        known_texts: their texts, if known.
        time_zone: of the session; None: UTC.
        omitted: failures of the searches.
    """

    material: Material = field(default_factory=Material)
    blocks: tuple[BaseMemoryBlock, ...] = ()
    newest_facts: Sequence[FactPiece] = ()
    facts: Sequence[FactPiece] = ()
    messages: Mapping[str, Sequence[MessagePiece]] = field(default_factory=dict)
    summaries: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[Place, Message] = field(default_factory=dict)
    known_texts: frozenset[str] | None = None
    time_zone: str | None = None
    omitted: Sequence[Omission] = ()

    @property
    def has_facts(self) -> bool:
        return bool(self.facts or self.newest_facts)

    @property
    def has_messages(self) -> bool:
        return any(self.messages.values())

    @property
    def characters(self) -> int:
        """Of all that may be counted."""
        texts = [piece.text for pieces in self.messages.values() for piece in pieces]
        texts += [fact.text for fact in (*self.facts, *self.newest_facts)]
        return sum(map(len, texts)) + sum(map(len, self.summaries.values()))

    @cached_property
    def shown_texts(self) -> frozenset[str]:
        """The texts of the messages shown in any case; empty where no message may be added to them."""
        if self.known_texts is not None:
            return self.known_texts
        return frozenset([one.text for one in self.shown.values()] if self.has_messages else ())

    @cached_property
    def by_rank(self) -> list[tuple[str, MessagePiece]]:
        """The messages that may be chosen, best first, each with its block's name."""
        shown, texts = self.shown, self.shown_texts
        ranked = [
            (name, piece)
            for name, pieces in self.messages.items()
            for piece in pieces
            if piece.text not in texts and piece.place not in shown
        ]
        ranked.sort(key=lambda one: -one[1].rank)
        return ranked


@dataclass(frozen=True, slots=True)
class Chosen:
    """The pieces that fit, and the sections that show them.

    Attributes:
        facts: in the order in which they were said.
        messages: by name of the block, in the order in which they were said.
        sections: by name of the block; also those of summaries.
        omitted: pieces without room.
    """

    facts: tuple[FactPiece, ...] = ()
    messages: Mapping[str, tuple[MessagePiece, ...]] = field(default_factory=dict)
    sections: Mapping[str, Contribution] = field(default_factory=dict)
    omitted: tuple[Omission, ...] = ()

    @property
    def tokens(self) -> int:
        """Of the pieces' lines."""
        of_messages = sum(piece.tokens for pieces in self.messages.values() for piece in pieces)
        return of_messages + tokens_of_facts(self.facts)


def tokens_of_facts(facts: Collection[FactPiece]) -> int:
    """Of their lines and their days."""
    return sum(fact.tokens for fact in facts) + DAY_TOKENS * len({fact.day for fact in facts})


def choose_pieces(candidates: Candidates, room: int) -> Chosen:
    """The best pieces that fit together within ``room`` tokens of their lines.

    Each text is chosen once, and no fact that messages shown or chosen say themselves.  Pieces that do not
    fit are passed over, so that shorter ones of lower rank can fill the room.
    """
    left = _Room(max(0, room))
    shown = candidates.shown
    taken: dict[Place, tuple[str, MessagePiece]] = {}
    facts: dict[int, FactPiece] = {}
    left.take_messages(candidates, taken, int(left.tokens * FACTS_SHARE) if candidates.has_facts else 0)
    is_settled = not candidates.has_facts
    while not is_settled:
        left.take_facts(candidates, {place: piece.message for place, (_, piece) in taken.items()}, facts)
        # Messages take the room that facts leave, and spare facts that they show; each round adds some.
        left.take_messages(candidates, taken)
        chosen = {place: piece.message for place, (_, piece) in taken.items()}
        covered = [number for number, fact in facts.items() if fact.is_told_by(shown, chosen)]
        before = tokens_of_facts(facts.values())
        for number in covered:
            del facts[number]
        left.tokens += before - tokens_of_facts(facts.values())
        is_settled = not covered
    return Chosen(
        facts=tuple(sorted(facts.values(), key=lambda fact: (fact.said_at, fact.fact_id.int))),
        messages={
            name: tuple(in_order([piece for of, piece in taken.values() if of == name]))
            for name in candidates.messages
        },
    )


@dataclass(slots=True)
class _Room:
    tokens: int

    def take(self, tokens: int, reserve: int = 0) -> bool:
        if tokens > self.tokens - reserve:
            return False
        self.tokens -= tokens
        return True

    def take_messages(
        self, candidates: Candidates, taken: dict[Place, tuple[str, MessagePiece]], reserve: int = 0
    ) -> None:
        """The best messages; ``reserve`` is kept for facts."""
        if len(taken) == len(candidates.by_rank):
            return
        texts = {piece.text for _, piece in taken.values()}
        left = self.tokens - reserve
        for one in candidates.by_rank:
            piece = one[1]
            if piece.tokens <= left and piece.text not in texts:
                left -= piece.tokens
                taken[piece.place] = one
                texts.add(piece.text)
        self.tokens = left + reserve

    def take_facts(
        self, candidates: Candidates, chosen: Mapping[Place, Message], facts: dict[int, FactPiece]
    ) -> None:
        newest_room = int(self.tokens * NEWEST_SHARE)
        days = {fact.day for fact in facts.values()}
        turns: tuple[tuple[Sequence[FactPiece], int], ...] = (
            (candidates.newest_facts, self.tokens - newest_room),
            (candidates.facts, 0),
            (candidates.newest_facts, 0),
        )
        for pieces, reserve in turns:
            for piece in pieces:
                number = piece.fact_id.int
                if number in facts or (piece.sources and piece.is_told_by(candidates.shown, chosen)):
                    continue
                if self.take(piece.tokens + (0 if piece.day in days else DAY_TOKENS), reserve):
                    facts[number] = piece
                    days.add(piece.day)


def in_order(pieces: Sequence[MessagePiece]) -> list[MessagePiece]:
    """Session by session, each from its beginning; the session that was begun first comes first."""
    if len({piece.place[0] for piece in pieces}) < 2:
        return sorted(pieces, key=attrgetter("place"))
    begun: dict[int, float] = {}
    for piece in pieces:
        at = 0.0 if piece.message.created_at is None else piece.message.created_at.timestamp()
        session = piece.place[0]
        begun[session] = min(at, begun.get(session, at))
    return sorted(pieces, key=lambda one: (begun[one.place[0]], one.place))
