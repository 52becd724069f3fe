"""Chooses the pieces that fill a room: messages by how well they fit, and facts that these do not show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from strandline.producers.reading.budget.pieces import (
    NOTHING_SHOWN,
    Candidates,
    Chosen,
    FactPiece,
    MessagePiece,
)
from strandline.producers.search.hits import Place
from strandline.schemas.values.message import Message

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
    ranked: Sequence[tuple[str, MessagePiece]] | None = None,
) -> Chosen:
    """The best pieces that fit together; each text once, and no fact that messages shown say themselves.

    What does not fit is passed over, so that what is shorter and ranks lower can still fill the room.

    Args:
        candidates: best first.
        room: tokens that the lines may have together.
        shown: messages that the read shows anyway.
        ranked: the messages among the candidates, as ``rank_messages`` gives them.
    """
    left = _Room(max(0, room))
    if ranked is None:
        ranked = rank_messages(candidates, shown, {message.text for message in shown.values()})
    has_facts = bool(candidates.facts or candidates.newest_facts)
    taken: dict[Place, tuple[str, MessagePiece]] = {}
    facts: dict[int, FactPiece] = {}
    _take_messages(ranked, left, taken, reserve=int(left.tokens * FACTS_SHARE) if has_facts else 0)
    is_settled = not has_facts
    while not is_settled:
        _take_facts(candidates, left, (shown, _messages(taken)), facts)
        # What facts leave messages take, and what these show facts need not; each round shows more messages.
        _take_messages(ranked, left, taken)
        chosen = _messages(taken)
        covered = [number for number, fact in facts.items() if fact.is_told_by(shown, chosen)]
        for number in covered:
            left.tokens += facts.pop(number).tokens
        is_settled = not covered
    return Chosen(
        facts=tuple(sorted(facts.values(), key=lambda fact: (fact.said_at, fact.fact_id.int))),
        messages={
            name: tuple(in_order([piece for of, piece in taken.values() if of == name]))
            for name in candidates.messages
        },
    )


def rank_messages(
    candidates: Candidates, shown: Mapping[Place, Message], shown_texts: Collection[str]
) -> list[tuple[str, MessagePiece]]:
    """The messages that may be chosen, best first, each with its block's name; none that is shown anyway."""
    ranked = [
        (name, piece)
        for name, pieces in candidates.messages.items()
        for piece in pieces
        if piece.text not in shown_texts and piece.place not in shown
    ]
    ranked.sort(key=lambda one: -one[1].rank)
    return ranked


def _messages(taken: Mapping[Place, tuple[str, MessagePiece]]) -> dict[Place, Message]:
    return {place: piece.message for place, (_, piece) in taken.items()}


def _take_messages(
    ranked: Sequence[tuple[str, MessagePiece]],
    room: _Room,
    taken: dict[Place, tuple[str, MessagePiece]],
    reserve: int = 0,
) -> None:
    if len(taken) == len(ranked):
        return
    texts = {piece.text for _, piece in taken.values()}
    for one in ranked:
        piece = one[1]
        if piece.text not in texts and room.take(piece.tokens, reserve):
            taken[piece.place] = one
            texts.add(piece.text)


def _take_facts(
    candidates: Candidates,
    room: _Room,
    visible: tuple[Mapping[Place, Message], Mapping[Place, Message]],
    facts: dict[int, FactPiece],
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
            number = piece.fact_id.int
            is_new = number not in facts and not (piece.sources and piece.is_told_by(*visible))
            if is_new and room.take(piece.tokens, reserve):
                facts[number] = piece


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
