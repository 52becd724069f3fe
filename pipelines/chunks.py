"""Chunks: the pieces of conversation that are searched; one turn each, long turns in several pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from strandline.pipelines.transcript import plain_text, speaker
from strandline.schemas.messages import Message

# About 400 tokens of English: long answers swamp both kinds of search when they are one piece.
MAX_PIECE_CHARACTERS = 1_600


@dataclass(frozen=True, slots=True)
class Chunk:
    """A searchable piece: piece number ``piece`` of the turn ``from_seq`` to ``through_seq``."""

    from_seq: int
    through_seq: int
    piece: int
    text: str


def chunks(messages: Sequence[Message]) -> list[Chunk]:
    """Cut the messages of one event into turns, and turns into pieces of bounded length."""
    return [
        Chunk(_seq(turn[0]), _seq(turn[-1]), number, text)
        for turn in turns(messages)
        for number, text in enumerate(_pieces(turn))
    ]


def turns(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Turns in order: a user message with all that follows until the next one."""
    turn: list[Message] = []
    for message in messages:
        if message.role == "user" and turn:
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn


def _pieces(turn: Sequence[Message]) -> Iterator[str]:
    gathered = ""
    for message in turn:
        text = plain_text(message)
        if not text:
            continue
        for part in _split(f"{speaker(message)}: {text}"):
            if gathered and len(gathered) + len(part) > MAX_PIECE_CHARACTERS:
                yield gathered
                gathered = ""
            gathered = f"{gathered}\n{part}" if gathered else part
    if gathered:
        yield gathered


def _split(text: str) -> Iterator[str]:
    """Parts of bounded length, cut at the last white space where there is one."""
    while len(text) > MAX_PIECE_CHARACTERS:
        cut = text.rfind(" ", MAX_PIECE_CHARACTERS // 2, MAX_PIECE_CHARACTERS)
        at = cut if cut > 0 else MAX_PIECE_CHARACTERS
        yield text[:at]
        text = text[at:].lstrip()
    if text:
        yield text


def _seq(message: Message) -> int:
    if message.seq is None:
        raise ValueError("a stored message has a seq")
    return message.seq
