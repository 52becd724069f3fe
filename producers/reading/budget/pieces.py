"""The pieces that fill a read's room: facts and messages, each with its source, its score and its tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from strandline.schemas.values.message import Message

# Of one message: its session, and its number there.
Place = tuple[UUID, int]


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

    def is_told_by(self, places: Collection[Place]) -> bool:
        """Whether all the messages that it comes from are among ``places``."""
        return bool(self.sources) and all(place in places for place in self.sources)


@dataclass(frozen=True, slots=True)
class MessagePiece:
    """A message that may be shown.

    Attributes:
        line: as it is shown.
        score: how well it matches the query.
        similarity: the cosine similarity; 0 if only words were compared.
        tokens: of its line.
    """

    message: Message
    line: str
    session_key: UUID
    score: float
    similarity: float
    tokens: int

    @property
    def place(self) -> Place:
        return self.session_key, self.message.seq or 0


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
