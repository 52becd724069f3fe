"""Chunks: the pieces of conversation that are searched, one message each or a part of one; their speakers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from strandline.pipelines.text.lexemes import query_lexemes
from strandline.pipelines.text.tone import tone_of
from strandline.pipelines.transcript import cut_pieces, full_text
from strandline.schemas.display.local_time import in_zone
from strandline.schemas.values.message import Message

# About 400 tokens of English: one vector says little of a text that is much longer.
MAX_PIECE_CHARACTERS = 1_600

# Of one message, unless a setting says otherwise.  A second's work for finding the words, and about a hundred
# vectors: a tool's answer of a megabyte must not hold up its lane, nor fill a search with its pieces.
MAX_INDEXED_CHARACTERS = 100_000
# Where a recipe of vectors records how much of a message is indexed, if it is not the default.
INDEXED = "indexed_characters"
# Of a name; a search looks for its words.
MAX_NAME_CHARACTERS = 200
# More words are a text that many questions would match, not a name.
MAX_NAME_WORDS = 3


@dataclass(frozen=True, slots=True)
class Chunk:
    """A searchable piece: piece number ``piece`` of the messages ``from_seq`` to ``through_seq``."""

    from_seq: int
    through_seq: int
    piece: int
    text: str


def indexed_characters(config: Mapping[str, Any]) -> int:
    """How many characters of a message a generation of vectors indexes."""
    return int(config.get(INDEXED, MAX_INDEXED_CHARACTERS))


def chunks(messages: Sequence[Message], max_characters: int = MAX_INDEXED_CHARACTERS) -> list[Chunk]:
    """Cut the messages of one event into pieces of bounded length.

    Only the first ``max_characters`` of a message are cut; none of them is left out.

    Messages are kept apart, because a long answer would drown its question; a search takes neighbouring
    messages into account.
    """
    return [
        Chunk(_seq(message), _seq(message), number, text)
        for message in messages
        for number, text in enumerate(_pieces(message, max_characters))
    ]


def _pieces(message: Message, max_characters: int) -> Iterator[str]:
    """The text in parts of bounded length.

    A person's name belongs to it, since people ask by name; the role does not: it says nothing.
    """
    text = full_text(message)[:max_characters]
    if text and message.name:
        text = f"{message.name}: {text}"
    return cut_pieces(text, MAX_PIECE_CHARACTERS)


def _seq(message: Message) -> int:
    if message.seq is None:
        raise ValueError("a stored message has a seq")
    return message.seq


@dataclass(frozen=True, slots=True)
class Voice:
    """Stored features of a message besides words and vector; the day is that of the speaker's clock."""

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
