"""The pieces that fill a read's room: facts and messages, each with its source, its score and its tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from strandline.producers.blocks.render import speech_line
from strandline.schemas.values.message import Message

# A fact is told by messages that hold so much of its words: a model words it anew.  Only words of so many
# letters name something, and of these so many letters are compared, whatever their ending.
TOLD_SHARE = 0.5
NAMING_CHARACTERS = 3
STEM_CHARACTERS = 5

_WORD = re.compile(r"\w+")

# Of one message: its session's key, as a number since these are compared sooner, and its own number there.
Place = tuple[int, int]


def place_of(session_key: UUID, seq: int | None) -> Place:
    return session_key.int, seq or 0


@dataclass(frozen=True, slots=True)
class FactPiece:
    """A fact that may be shown.

    Attributes:
        line: as it is shown.
        sources: the messages that it comes from; empty if a person added it.
        score: how well it matches the query; 0 if it is a candidate because it is new.
        tokens: of its line.
    """

    fact_id: UUID
    text: str
    line: str
    said_at: datetime
    sources: frozenset[Place]
    score: float
    tokens: int

    def is_told_by(self, shown: Mapping[Place, Message]) -> bool:
        """Whether all the messages that it comes from are shown, and say it themselves.

        "Tom took the job" comes from "He said yes", which alone does not say so.
        """
        if not self.sources or not all(place in shown for place in self.sources):
            return False
        messages = [shown[place] for place in self.sources]
        texts = " ".join(f"{message.name or ''} {message.text}" for message in messages).casefold()
        words = [word for word in _WORD.findall(self.text.casefold()) if len(word) >= NAMING_CHARACTERS]
        return sum(word[:STEM_CHARACTERS] in texts for word in words) >= TOLD_SHARE * len(words)


@dataclass(frozen=True, slots=True)
class MessagePiece:
    """A message that may be shown.

    Attributes:
        score: how well it matches the query.
        rank: its score, or less if an application's function put it below one of a lower score.
        similarity: the cosine similarity; 0 if only words were compared.
        tokens: of its line.
        place: its session and number.
        text: the message's.
    """

    message: Message
    place: Place
    text: str
    session_key: UUID
    score: float
    rank: float
    similarity: float
    tokens: int

    @property
    def line(self) -> str:
        """As it is shown; made only for those that are."""
        return speech_line(self.message)


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
        facts: in the order in which they were said.
        messages: by name of the block, in the order in which they were said.
    """

    facts: tuple[FactPiece, ...] = ()
    messages: Mapping[str, tuple[MessagePiece, ...]] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Of their lines."""
        of_messages = sum(piece.tokens for pieces in self.messages.values() for piece in pieces)
        return of_messages + sum(fact.tokens for fact in self.facts)
