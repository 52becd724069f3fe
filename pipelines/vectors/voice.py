"""Voice: who says a message, how and when, as a search weighs it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from strandline.pipelines.text.lexemes import query_lexemes
from strandline.pipelines.text.tone import tone_of
from strandline.pipelines.transcript import full_text
from strandline.schemas.display.local_time import in_zone
from strandline.schemas.values.message import Message

# Of a name; a search looks for its words.
MAX_NAME_CHARACTERS = 200
# More words are a text that many questions would match, not a name.
MAX_NAME_WORDS = 3


@dataclass(frozen=True, slots=True)
class Voice:
    """Stored features of a message besides its words and its vector.

    Attributes:
        name: the lexemes of the speaker's name; empty if it has none.
        tone: as ``pipelines.text.tone`` numbers it.
        said_on: the day, by the speaker's clock; None if unknown.
    """

    role: str
    name: tuple[str, ...]
    tone: int
    said_on: date | None

    @property
    def speaker(self) -> str:
        """The name as Postgres reads an array."""
        return "{" + ",".join(f'"{_escaped(lexeme)}"' for lexeme in self.name) + "}"


def voice_of(message: Message) -> Voice:
    name = query_lexemes((message.name or "")[:MAX_NAME_CHARACTERS])
    if len(name) > MAX_NAME_WORDS:
        name = []
    return Voice(
        role=message.role,
        name=tuple(name),
        tone=tone_of(full_text(message), message.role),
        said_on=said_on(message),
    )


def said_on(message: Message) -> date | None:
    """The day of a message, by its speaker's clock."""
    said_at = message.created_at
    return None if said_at is None else in_zone(said_at, None).date()


def _escaped(lexeme: str) -> str:
    return lexeme.replace("\\", "\\\\").replace('"', '\\"')
