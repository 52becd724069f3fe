"""The pieces that fill a read's room: facts and messages, each with its source, its score and its tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

from strandline.producers.blocks.render import speech_line
from strandline.producers.search.hits import Place, Utterance
from strandline.schemas.values.message import Message

# A fact is told by messages that hold so much of its words: a model words it anew.  Only words of so many
# letters name something, and of these so many letters are compared, whatever their ending.
TOLD_SHARE = 0.5
NAMING_CHARACTERS = 3
STEM_CHARACTERS = 5

# Before a colon: a longer text is no name.
MAX_SPEAKER_CHARACTERS = 64

_WORD = re.compile(r"\w+")

# Who speaks and the line's end, beside what was counted when the message was put.
LINE_TOKENS = 4


NOTHING_SHOWN: Mapping[Place, Message] = MappingProxyType({})


@dataclass(slots=True)
class FactPiece:
    """A fact that may be shown.

    Attributes:
        line: as it is shown.
        sources: the messages that it comes from, with their sessions' names; empty if a person added it.
        score: how well it matches the query; 0 if it is a candidate because it is new.
        tokens: of its line.
    """

    fact_id: UUID
    text: str
    line: str
    said_at: datetime
    sources: Mapping[Place, str]
    score: float
    tokens: int

    def is_told_by(
        self, shown: Mapping[Place, Message], chosen: Mapping[Place, Message] = NOTHING_SHOWN
    ) -> bool:
        """Whether all the messages that it comes from are shown, or chosen, and say it themselves.

        "Tom took the job" comes from "He said yes", which alone does not say so.
        """
        if not self.sources or not all(place in chosen or place in shown for place in self.sources):
            return False
        messages = [chosen[place] if place in chosen else shown[place] for place in self.sources]
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
        """As it is shown; made only for those that are."""
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


@dataclass(frozen=True, slots=True)
class Candidates:
    """The pieces that blocks may fill the room with.

    Attributes:
        newest_facts: newest first.
        facts: those that match the query, best first.
        messages: by name of the block that searched for them, best first.
    """

    newest_facts: Sequence[FactPiece] = ()
    facts: Sequence[FactPiece] = ()
    messages: Mapping[str, Sequence[MessagePiece]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The pieces that fit.

    Attributes:
        facts: in the order in which they were utterance.
        messages: by name of the block, in the order in which they were utterance.
    """

    facts: tuple[FactPiece, ...] = ()
    messages: Mapping[str, tuple[MessagePiece, ...]] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Of their lines."""
        of_messages = sum(piece.tokens for pieces in self.messages.values() for piece in pieces)
        return of_messages + sum(fact.tokens for fact in self.facts)
