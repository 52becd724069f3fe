"""Chooses the pieces that fill a room: messages by how well they fit, and facts that these do not show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from strandline.producers.reading.budget.pieces import (
    Candidates,
    Chosen,
    FactPiece,
    MessagePiece,
    Place,
)
from strandline.schemas.values.message import Message

NOTHING_SHOWN: Mapping[Place, Message] = MappingProxyType({})

# Of the room, kept for facts while messages are chosen; what facts leave of it messages get in the end.
FACTS_SHARE = 0.15
# Of the facts' room, kept for the newest: what a question does not name may still matter.
NEWEST_SHARE = 0.25


@dataclass(slots=True)
class _Room:
    """Tokens that are left."""

    tokens: int

    def take(self, tokens: int, reserve: int = 0) -> bool:
        """Take so many, unless fewer than ``reserve`` would be left."""
        if tokens > self.tokens - reserve:
            return False
        self.tokens -= tokens
        return True


def choose_pieces(
    candidates: Candidates,
    room: int,
    shown: Mapping[Place, Message] = NOTHING_SHOWN,
    shown_texts: frozenset[str] | None = None,
) -> Chosen:
    """The best pieces that fit together; each text once, and no fact that messages shown say themselves.

    What does not fit is passed over, so that what is shorter and ranks lower can still fill the room.

    Args:
        candidates: best first.
        room: tokens that the lines may have together.
        shown: messages that the read shows anyway.
        shown_texts: what these say, if that is known.
    """
    left = _Room(max(0, room))
    if shown_texts is None:
        shown_texts = frozenset([message.text for message in shown.values()])
    ranked = [
        (name, piece)
        for name, pieces in candidates.messages.items()
        for piece in pieces
        if piece.place not in shown and piece.text not in shown_texts
    ]
    ranked.sort(key=lambda one: -one[1].rank)
    facts_room = int(left.tokens * FACTS_SHARE) if candidates.facts or candidates.newest_facts else 0
    messages: dict[Place, tuple[str, MessagePiece]] = {}
    facts: dict[UUID, FactPiece] = {}
    _take_messages(ranked, left, messages, reserve=facts_room)
    is_settled = False
    while not is_settled:
        visible = {**shown, **{place: piece.message for place, (_, piece) in messages.items()}}
        _take_facts(candidates, left, visible, facts)
        # What facts leave messages take, and what these show facts need not; each round shows more messages.
        _take_messages(ranked, left, messages)
        visible.update((place, piece.message) for place, (_, piece) in messages.items())
        covered = [fact for fact in facts.values() if fact.is_told_by(visible)]
        for fact in covered:
            left.tokens += facts.pop(fact.fact_id).tokens
        is_settled = not covered
    return Chosen(
        facts=tuple(sorted(facts.values(), key=lambda fact: (fact.said_at, fact.fact_id))),
        messages={name: _in_order(name, messages.values()) for name in candidates.messages},
    )


def _take_messages(
    ranked: Sequence[tuple[str, MessagePiece]],
    room: _Room,
    taken: dict[Place, tuple[str, MessagePiece]],
    reserve: int = 0,
) -> None:
    texts = {piece.text for _, piece in taken.values()}
    for name, piece in ranked:
        text = piece.text
        if text not in texts and room.take(piece.tokens, reserve):
            taken[piece.place] = name, piece
            texts.add(text)


def _take_facts(
    candidates: Candidates, room: _Room, visible: Mapping[Place, Message], facts: dict[UUID, FactPiece]
) -> None:
    """A few of the newest, then those that match, then more of the newest."""
    newest_room = int(room.tokens * NEWEST_SHARE)
    turns: tuple[tuple[Sequence[FactPiece], int], ...] = (
        (candidates.newest_facts, room.tokens - newest_room),
        (candidates.facts, 0),
        (candidates.newest_facts, 0),
    )
    for pieces, reserve in turns:
        for piece in pieces:
            is_new = piece.fact_id not in facts and not piece.is_told_by(visible)
            if is_new and room.take(piece.tokens, reserve):
                facts[piece.fact_id] = piece


def _in_order(name: str, taken: Iterable[tuple[str, MessagePiece]]) -> tuple[MessagePiece, ...]:
    return tuple(in_order([piece for of, piece in taken if of == name]))


def in_order(pieces: Sequence[MessagePiece]) -> list[MessagePiece]:
    """Session by session, each from its beginning; the session that was begun first comes first."""
    begun: dict[int, str] = {}
    for piece in pieces:
        session, at = piece.session_key.int, str(piece.message.created_at)
        begun[session] = min(at, begun.get(session, at))
    return sorted(pieces, key=lambda one: (begun[one.session_key.int], one.place))
