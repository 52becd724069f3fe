"""What fills a room: pieces of a conversation, chosen by how well they fit; tokens are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from strandline.producers.blocks.render import render_memory
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.choice import fill
from strandline.producers.reading.contributions import Measure
from strandline.producers.reading.pieces import (
    Candidates,
    Chosen,
    FactPiece,
    MessagePiece,
    choose_pieces,
    in_order,
)
from strandline.producers.search.hits import Place, Utterance
from strandline.schemas.values.message import Message

HERE, ELSEWHERE = UUID(int=1), UUID(int=2)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def message(seq: int, score: float = 0.5, tokens: int = 10, session: UUID = HERE) -> MessagePiece:
    said = Message("user", f"m{seq} {session.int}", seq=seq, created_at=NOON + timedelta(minutes=seq))
    return replace(MessagePiece.of(Utterance(session, said), score, score, 0.0), tokens=tokens)


def fact(number: int, *sources: int, score: float = 0.5, tokens: int = 10) -> FactPiece:
    places = {(HERE.int, seq): "here" for seq in sources}
    said = str(number)  # which names nothing, so that any message tells it
    return FactPiece(UUID(int=number), said, said, NOON + timedelta(days=number), places, score, tokens)


def candidates(
    *messages: MessagePiece,
    facts: tuple[FactPiece, ...] = (),
    newest: tuple[FactPiece, ...] = (),
    shown: Mapping[Place, Message] = MappingProxyType({}),
) -> Candidates:
    ranked = sorted(messages, key=lambda piece: -piece.score)
    return Candidates(newest_facts=newest, facts=facts, messages={"vector_memory": ranked}, shown=shown)


def seqs(chosen: Chosen) -> list[int | None]:
    return [piece.message.seq for pieces in chosen.messages.values() for piece in pieces]


def numbers(chosen: Chosen) -> list[int]:
    return [piece.fact_id.int for piece in chosen.facts]


def test_the_best_fill_the_room_in_the_order_in_which_they_were_said() -> None:
    chosen = choose_pieces(candidates(message(1, 0.2), message(2, 0.9), message(3, 0.1), message(4, 0.5)), 30)
    assert seqs(chosen) == [1, 2, 4]


def test_what_does_not_fit_makes_way_for_what_does() -> None:
    chosen = choose_pieces(candidates(message(1, 0.9), message(2, 0.8, tokens=50), message(3, 0.1)), 30)
    assert seqs(chosen) == [1, 3]


def test_the_order_is_that_of_ranks_and_a_text_is_given_once() -> None:
    first, again = message(1, 0.9), message(2, 0.8)
    again = replace(again, text=first.text)
    assert seqs(choose_pieces(candidates(first, again, message(3, 0.1)), 100)) == [1, 3]
    pieces = candidates(replace(message(1, 0.9), rank=0.2), message(2, 0.3))
    assert seqs(choose_pieces(pieces, 10)) == [2]


def test_what_is_shown_anyway_is_not_chosen() -> None:
    chosen = choose_pieces(
        candidates(message(1, 0.9), message(2, 0.8), shown={(HERE.int, 1): message(1).message}), 100
    )
    assert seqs(chosen) == [2]
    other = message(1, session=ELSEWHERE)
    for there, expected in ((other, [1]), (message(1), [])):
        shown = {(ELSEWHERE.int, 1): there.message}
        assert seqs(choose_pieces(candidates(message(1), shown=shown), 100)) == expected


def test_a_fact_is_left_out_where_all_its_messages_are_shown() -> None:
    facts = (fact(1, 1), fact(2, 1, 2), fact(3, 9), fact(4))
    chosen = choose_pieces(
        candidates(message(1), facts=facts, shown={(HERE.int, 9): message(9).message}), 1_000
    )
    assert numbers(chosen) == [2, 4]


def test_a_fact_that_its_message_alone_does_not_say_is_kept_beside_it() -> None:
    said = message(1)
    yes = replace(said, message=replace(said.message, content="He said yes."))
    accepted = replace(fact(1, 1), text="Tom accepted the post in Kiel.")
    assert numbers(choose_pieces(candidates(yes, facts=(accepted,)), 1_000)) == [1]
    whole = replace(said, message=replace(said.message, content="Tom has accepted it, the post in Kiel!"))
    assert numbers(choose_pieces(candidates(whole, facts=(accepted,)), 1_000)) == []


def test_facts_keep_a_share_of_a_room_that_messages_would_fill() -> None:
    said = [message(seq, score=0.9) for seq in range(1, 50)]
    chosen = choose_pieces(candidates(*said, facts=(fact(1, 900), fact(2, 901), fact(3, 902))), 100)
    assert (numbers(chosen), len(seqs(chosen))) == ([1, 2], 8)


def test_the_room_that_facts_leave_is_for_messages_and_that_of_messages_for_facts() -> None:
    chosen = choose_pieces(candidates(*(message(seq) for seq in range(1, 50)), facts=(fact(1, 900),)), 200)
    assert (numbers(chosen), len(seqs(chosen))) == ([1], 19)
    many = tuple(fact(number, 900 + number) for number in range(1, 50))
    chosen = choose_pieces(candidates(message(1), facts=many), 200)
    assert (len(numbers(chosen)), seqs(chosen)) == (19, [1])


def test_new_facts_that_nothing_asked_for_have_a_part_of_the_facts_share() -> None:
    matching = tuple(fact(number, 900 + number) for number in range(1, 50))
    newest = tuple(fact(number, 900 + number) for number in range(99, 59, -1))
    chosen = choose_pieces(candidates(facts=matching, newest=newest), 200)
    assert [number for number in numbers(chosen) if number > 50] == [95, 96, 97, 98, 99]
    assert len(numbers(chosen)) == 20
    # Where nothing matches they have all of it.
    assert len(numbers(choose_pieces(candidates(newest=newest), 200))) == 20


def test_sessions_stand_in_the_order_in_which_they_began() -> None:
    late = message(1, session=HERE)
    early = [
        replace(message(seq, session=ELSEWHERE), message=Message("user", "e", seq=seq, created_at=NOON))
        for seq in (7, 3)
    ]
    assert [piece.message.seq for piece in in_order([late, *early])] == [3, 7, 1]


_sizes = st.integers(1, 40)
_scores = st.floats(0.01, 1)
_messages = st.lists(
    st.builds(message, st.integers(1, 30), _scores, _sizes, st.sampled_from([HERE, ELSEWHERE])), max_size=20
)


@st.composite
def facts_of(draw: st.DrawFn) -> tuple[FactPiece, ...]:
    ids = draw(st.lists(st.integers(1, 30), max_size=12, unique=True))
    return tuple(
        fact(number, *draw(st.lists(st.integers(1, 30), max_size=3)), tokens=draw(_sizes)) for number in ids
    )


@given(_messages, facts_of(), facts_of(), st.integers(0, 300), st.sets(st.integers(1, 30), max_size=5))
def test_pieces_fit_and_stand_once_and_nothing_is_left_out_that_has_room(
    said: list[MessagePiece],
    facts: tuple[FactPiece, ...],
    newest: tuple[FactPiece, ...],
    room: int,
    window: set[int],
) -> None:
    shown = {(HERE.int, seq): message(seq).message for seq in window}
    offered = candidates(*said, facts=facts, newest=newest, shown=shown)
    chosen = choose_pieces(offered, room)
    messages = [piece for pieces in chosen.messages.values() for piece in pieces]
    places = [piece.place for piece in messages]
    used = sum(piece.tokens for piece in messages) + sum(piece.tokens for piece in chosen.facts)
    assert used <= room
    assert len(set(places)) == len(places)
    assert not shown.keys() & set(places)
    ids = [piece.fact_id for piece in chosen.facts]
    assert len(set(ids)) == len(ids)
    visible = {*shown, *places}
    assert not [piece for piece in chosen.facts if piece.sources and piece.sources.keys() <= visible]
    left = [piece.tokens for piece in said if piece.place not in visible]
    left += [
        piece.tokens
        for piece in (*facts, *newest)
        if piece.fact_id not in ids and not (piece.sources and piece.sources.keys() <= visible)
    ]
    assert all(used + tokens > room for tokens in left)


def test_pieces_that_are_larger_than_they_were_counted_leave_room_for_others() -> None:
    """Of each that is too large the next takes the place, which says that it is a token smaller."""
    measure = Measure(lambda text: len(text.split()), render_memory)
    large = " ".join(["w"] * 200)
    too_large = [
        replace(
            message(seq, 1 - seq / 100, tokens=201 - seq),
            utterance=Utterance(HERE, Message("user", large, seq=seq)),
        )
        for seq in range(1, 50)
    ]
    offered = candidates(*too_large, message(50, 0.01, tokens=1))
    chosen = fill(replace(offered, blocks=(VectorMemoryBlock(),)), (), 202, measure)
    assert seqs(chosen) == [50]
    assert measure.cost(list(chosen.sections.values())) <= 202
    (omission,) = chosen.omitted
    assert omission.reason == "49 of 50 messages that match had no room."
