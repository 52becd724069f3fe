"""The token budget of a read, by properties and by example; tokens are words here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.producers.blocks.base import BaseMemoryBlock, CountText, FactExtractionMemoryBlock, Material
from strandline.producers.blocks.render import render_memory
from strandline.producers.blocks.template import compile_memory_template
from strandline.producers.reading.call_pairs import Settled, is_settled, settled
from strandline.producers.reading.candidates import reserved_tail
from strandline.producers.reading.choice import Choice, choose_within
from strandline.producers.reading.contributions import Contribution, Measure, attempt
from strandline.producers.reading.snapshot import Tail, newest_that_fit
from strandline.schemas.values.message import Message


def words(text: str) -> int:
    return len(text.split())


MEASURE = Measure(words, render_memory)
# <memory>, </memory> and a section's two tags, in words.
FRAME, TAGS = 2, 2


class Shortening(BaseMemoryBlock):
    """Cuts exactly what it is asked to."""

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        return " ".join(content.split()[: max(0, words(content) - tokens_to_cut)])


class Stubborn(BaseMemoryBlock):
    """Gives up one word at a time."""

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        return " ".join(content.split()[1:])


class Growing(BaseMemoryBlock):
    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        return content + " and more"


class Failing(BaseMemoryBlock):
    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        raise KeyError("what somebody said")


def says(
    name: str, size: int, *, priority: int, kind: type[BaseMemoryBlock] = BaseMemoryBlock
) -> Contribution:
    return Contribution(kind(name=name, priority=priority), " ".join(["w"] * size))


def user(seq: int, tokens: int = 1) -> Message:
    return Message("user", "u", seq=seq, tokens=tokens)


def assistant(seq: int, tokens: int = 1, *calls: str) -> Message:
    return Message(
        "assistant", "a", seq=seq, tokens=tokens, tool_calls=[{"id": call} for call in calls] or None
    )


def result(seq: int, call: str, tokens: int = 1) -> Message:
    return Message("tool", "r", seq=seq, tokens=tokens, tool_call_id=call)


def fitted(
    limit: int, contributions: Sequence[Contribution] = (), tail: Tail | None = None, fixed: int = 0
) -> Choice:
    return choose_within(
        token_limit=limit,
        fixed_tokens=fixed,
        contributions=contributions,
        tail=Tail() if tail is None else tail,
        measure=MEASURE,
    )


def sections(fit: Choice) -> list[str]:
    return [line[2:-1] for line in fit.memory.splitlines() if line.startswith("</")][:-1]


def kinds(fit: Choice) -> list[tuple[str, str]]:
    return [(omission.kind, omission.name) for omission in fit.omitted]


def seqs(messages: Sequence[Message]) -> list[int | None]:
    return [message.seq for message in messages]


def test_what_fits_stays_and_is_counted_with_its_template() -> None:
    found = fitted(100, [says("a", 5, priority=1), says("b", 5, priority=2)], fixed=10)
    assert found.tokens == 10 + FRAME + 2 * TAGS + 10
    assert (found.omitted, found.over_budget, sections(found)) == ((), False, ["a", "b"])


def test_the_larger_number_goes_first_whatever_the_order() -> None:
    blocks = [says("c", 5, priority=3), says("a", 5, priority=1), says("b", 5, priority=2)]
    assert sections(fitted(FRAME + 2 * (TAGS + 5), blocks)) == ["a", "b"]
    one = fitted(FRAME + TAGS + 5, blocks)
    assert sections(one) == ["a"]
    assert kinds(one) == [("block_dropped", "c"), ("block_dropped", "b")]


def test_of_equal_numbers_the_one_named_last_goes_first() -> None:
    assert sections(fitted(FRAME + TAGS + 5, [says("a", 5, priority=1), says("b", 5, priority=1)])) == ["a"]


def test_priority_0_wins_over_the_limit_and_this_is_said() -> None:
    found = fitted(3, [says("kept", 9, priority=0, kind=Shortening), says("gone", 1, priority=1)])
    assert sections(found) == ["kept"]
    assert (found.over_budget, found.tokens) == (True, FRAME + TAGS + 9)


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("{% for s in sections %}{{ s.text | upper }} {% endfor %}", []),
        ("{{ sections | map(attribute='text') | join }}", []),
        ("{{ sections | length }}", ["always", "b", "c"]),
        ("{% for s in sections %}[{{ s.name }}]{% endfor %}", ["always", "b", "c"]),
        ("{{ sections[0].text }}", ["b", "c"]),
        ("{% for s in sections if s.name == 'b' %}{{ s.text }}{% endfor %}", ["always", "c"]),
        ("{% for s in sections %}{{ s.text | length }}{% endfor %}", ["always", "b", "c"]),
    ],
)
@pytest.mark.parametrize("limit", [1_000, 10])
def test_a_block_that_the_template_does_not_show_is_an_omission(
    source: str, missing: list[str], limit: int
) -> None:
    blocks = [says("always", 3, priority=0), says("b", 2, priority=1), says("c", 2, priority=2)]
    found = choose_within(
        token_limit=limit,
        fixed_tokens=0,
        contributions=blocks,
        tail=Tail(),
        measure=Measure(words, compile_memory_template(source)),
    )
    assert kinds(found) == [("not_rendered", name) for name in missing]
    assert all("template" in omission.reason for omission in found.omitted)


def test_only_what_a_template_shows_is_cut_for_the_limit() -> None:
    source = "{% for s in sections if s.name == 'b' %}{{ s.text }}{% endfor %}"
    found = choose_within(
        token_limit=10,
        fixed_tokens=0,
        contributions=[says("b", 50, priority=1), says("c", 50, priority=2)],
        tail=Tail(),
        measure=Measure(words, compile_memory_template(source)),
    )
    assert kinds(found) == [("block_dropped", "b"), ("not_rendered", "c")]


def test_a_window_over_the_limit_drops_the_rest_and_sets_over_budget() -> None:
    found = fitted(10, [says("a", 1, priority=1)], Tail([user(1)], [(1, 1)]), fixed=11)
    assert (found.memory, found.tail, found.tokens, found.over_budget) == ("", (), 11, True)
    assert kinds(found) == [("block_dropped", "a"), ("tail", "tail")]


def test_a_window_at_the_limit_is_not_over_it() -> None:
    assert not fitted(10, fixed=10).over_budget


def test_a_block_shortens_itself_to_what_fits_with_the_template() -> None:
    found = fitted(12, [says("a", 50, priority=1, kind=Shortening)])
    assert found.tokens == 12
    assert kinds(found) == [("block_truncated", "a")]
    assert "from 50 to 8 tokens" in found.omitted[0].reason


def test_a_block_that_shortens_too_little_is_left_out() -> None:
    found = fitted(12, [says("a", 50, priority=1, kind=Stubborn)])
    assert (found.memory, kinds(found)) == ("", [("block_dropped", "a")])


def test_a_block_that_grows_is_left_out() -> None:
    assert kinds(fitted(12, [says("a", 50, priority=1, kind=Growing)])) == [("block_dropped", "a")]


def test_a_block_whose_truncate_fails_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    found = fitted(12, [says("a", 50, priority=1, kind=Failing)])
    assert kinds(found) == [("block_failed", "a")]
    assert "truncate() raised KeyError" in found.omitted[0].reason
    assert "what somebody said" not in caplog.text + found.omitted[0].reason


def test_a_block_that_returns_no_text_is_a_failure() -> None:
    text, failure = attempt("render", BaseMemoryBlock(name="a"), lambda: 3)
    assert text is None
    assert failure is not None
    assert "returned int" in failure.reason


def test_facts_lose_the_oldest_only() -> None:
    block = FactExtractionMemoryBlock(priority=1)
    text = block.render(Material(facts=[f"fact {number}" for number in range(20)])) or ""
    found = fitted(20, [Contribution(block, text)])
    assert found.tokens <= 20
    assert "fact 19" in found.memory
    assert "fact 0<" not in found.memory


def test_content_parts_count_by_their_estimates() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    found = fitted(10, [Contribution(BaseMemoryBlock(name="a", priority=0), "", (image,))])
    assert (found.memory, found.parts, found.tokens, found.over_budget) == ("", (image,), 256, True)
    assert fitted(10, [Contribution(BaseMemoryBlock(name="a", priority=1), "", (image,))]).parts == ()


def test_the_tail_keeps_half_the_room_before_blocks_and_takes_what_is_left() -> None:
    tail = Tail([user(seq) for seq in range(1, 41)], [(1, 40)])
    crowded = fitted(40, [says("a", 500, priority=1, kind=Shortening)], tail)
    assert seqs(crowded.tail) == list(range(21, 41))
    assert crowded.tokens == 40
    alone = fitted(40, [says("a", 6, priority=1)], tail)
    assert seqs(alone.tail) == list(range(11, 41))
    assert (alone.omitted[0].from_seq, alone.omitted[0].through_seq) == (1, 10)


def test_a_tail_begins_with_a_user_message_or_with_its_event() -> None:
    turn = [user(1), assistant(2), assistant(3), user(4), assistant(5)]
    assert seqs(newest_that_fit(Tail(turn, [(1, 5)]), 4)) == [4, 5]
    assert seqs(newest_that_fit(Tail(turn, [(1, 2), (3, 5)]), 4)) == [3, 4, 5]
    assert seqs(newest_that_fit(Tail(turn, [(1, 5)]), 1)) == []


def settled_tail(messages: Sequence[Message], ranges: Sequence[tuple[int, int]]) -> Tail:
    """As a snapshot has it."""
    return Tail(settled(messages), ranges)


@given(st.sets(st.integers(1, 5)), st.integers(0, 9))
def test_whatever_is_taken_in_of_a_turn_no_result_is_without_its_call(taken: set[int], room: int) -> None:
    """Of events that were cut inside a group, the blocks have taken in some."""
    turn = [user(1), assistant(2, 1, "x", "y"), result(3, "x"), result(4, "y"), assistant(5), user(6)]
    left = [message for message in turn if message.seq not in taken]
    shown = newest_that_fit(settled_tail(left, [(m.seq or 0, m.seq or 0) for m in left]), room)
    assert is_settled(shown)


def test_a_tail_keeps_calls_and_results_together() -> None:
    messages = [user(1), assistant(2, 1, "x"), user(3), result(4, "x"), user(5)]
    assert seqs(newest_that_fit(settled_tail(messages, [(1, 5)]), 4)) == [3, 5]
    assert seqs(newest_that_fit(settled_tail(messages, [(1, 5)]), 5)) == [1, 2, 4, 3, 5]
    assert seqs(newest_that_fit(settled_tail(messages, [(1, 3), (4, 5)]), 3)) == [3, 5]


def test_a_result_without_its_call_is_left_out_alone() -> None:
    tail = settled_tail([user(1), user(2), result(3, "gone"), user(4)], [(1, 2), (3, 4)])
    assert seqs(newest_that_fit(tail, 2)) == [2, 4]
    assert seqs(newest_that_fit(tail, 3)) == [1, 2, 4]


def test_a_tail_cut_off_where_it_was_read_says_so() -> None:
    found = fitted(100, tail=Tail([assistant(4), user(5)], [(1, 5)]))
    assert seqs(found.tail) == [5]
    everything = fitted(100, tail=Tail([user(4), assistant(5)], [(1, 5)]))
    assert "than one read includes" in everything.omitted[0].reason
    assert (everything.omitted[0].from_seq, everything.omitted[0].through_seq) == (1, 3)


def test_adjacent_events_left_out_are_one_range() -> None:
    tail = Tail([user(seq, 50) for seq in (1, 2, 3, 7)], [(1, 2), (3, 3), (7, 7)])
    found = fitted(10, tail=tail)
    assert [(omission.from_seq, omission.through_seq) for omission in found.omitted] == [(1, 3), (7, 7)]


@dataclass(frozen=True)
class Case:
    limit: int
    fixed: int
    contributions: list[Contribution]
    tail: Tail


@st.composite
def tails(draw: st.DrawFn) -> Tail:
    """Events of whole or cut turns, with tool calls that are answered in their event."""
    messages: list[Message] = []
    ranges: list[tuple[int, int]] = []
    seq = 1
    for _ in range(draw(st.integers(0, 4))):
        seq += draw(st.integers(0, 3))
        first = seq
        for _ in range(draw(st.integers(1, 4))):
            shape = draw(st.sampled_from(["user", "assistant", "call"]))
            size = draw(st.integers(0, 9))
            if shape == "call":
                asked = [user(seq + 1)] if draw(st.booleans()) else []
                piece = [assistant(seq, size, "x"), *asked, result(seq + 1 + len(asked), "x")]
            else:
                piece = [user(seq, size) if shape == "user" else assistant(seq, size)]
            messages += piece
            seq += len(piece)
        ranges.append((first, seq - 1))
    cut_off = draw(st.integers(0, min(2, len(messages))))
    if Settled(messages[cut_off:]).changes != Settled(messages).changes:
        cut_off = 0  # a result without its call is left out for that
    return settled_tail(messages[cut_off:], ranges)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = st.sampled_from([BaseMemoryBlock, Shortening, Stubborn, Growing, Failing])
    drawn: list[Any] = draw(st.lists(st.tuples(kind, st.integers(0, 4), st.integers(1, 40)), max_size=4))
    blocks = [says(f"b{at}", size, priority=p, kind=kind) for at, (kind, p, size) in enumerate(drawn)]
    return Case(draw(st.integers(1, 120)), draw(st.integers(0, 60)), blocks, draw(tails()))


def fitted_case(case: Case) -> Choice:
    return fitted(case.limit, case.contributions, case.tail, case.fixed)


@given(case=cases())
def test_the_limit_holds_unless_what_is_never_cut_exceeds_it(case: Case) -> None:
    found = fitted_case(case)
    always = MEASURE.cost([c for c in case.contributions if c.block.priority == 0])
    tail_tokens = sum(message.tokens or 0 for message in found.tail)
    assert found.tokens == case.fixed + words(found.memory) + tail_tokens
    assert found.over_budget == (found.tokens > case.limit) == (case.fixed + always > case.limit)


@given(case=cases())
def test_each_block_and_range_that_is_left_out_is_named(case: Case) -> None:
    found = fitted_case(case)
    gone = {c.block.name for c in case.contributions} - set(sections(found))
    named = {name for kind, name in kinds(found) if kind in ("block_dropped", "block_failed")}
    assert gone == named
    shown = set(seqs(found.tail))
    ranges = [(o.from_seq or 0, o.through_seq or 0) for o in found.omitted if o.kind == "tail"]
    left_out = {seq for first, last in ranges for seq in range(first, last + 1)}
    assert left_out.isdisjoint(shown)
    assert left_out | shown == {seq for first, last in case.tail.ranges for seq in range(first, last + 1)}


@given(case=cases())
def test_what_is_cut_is_named_the_least_important_first(case: Case) -> None:
    found = fitted_case(case)
    priority = {c.block.name: c.block.priority for c in case.contributions}
    touched = [name for kind, name in kinds(found) if kind != "tail"]
    assert all(priority[name] > 0 for name in touched)
    assert all(priority[earlier] >= priority[later] for earlier, later in pairwise(touched))


@given(case=cases())
def test_what_is_cut_does_not_fit_beside_what_is_more_important(case: Case) -> None:
    found = fitted_case(case)
    reserved = reserved_tail(
        room=case.limit - case.fixed, contributions=case.contributions, tail=case.tail, measure=MEASURE
    )
    room = case.limit - case.fixed - sum(message.tokens or 0 for message in reserved)
    ranks = {c.block.name: (c.block.priority, at) for at, c in enumerate(case.contributions)}
    for victim in case.contributions:
        if victim.block.name in [name for kind, name in kinds(found) if kind != "tail"]:
            before = [c for c in found.kept if ranks[c.block.name] < ranks[victim.block.name]]
            assert MEASURE.cost([*before, victim]) > room


def test_what_is_left_out_makes_room_for_what_is_less_important_and_smaller() -> None:
    found = fitted(FRAME + TAGS + 5, [says("big", 50, priority=1), says("small", 5, priority=2)])
    assert sections(found) == ["small"]
    assert kinds(found) == [("block_dropped", "big")]


@given(case=cases())
def test_the_tail_shown_is_its_end_and_can_stand_alone(case: Case) -> None:
    shown = fitted_case(case).tail
    whole = list(case.tail.messages)
    assert list(shown) == whole[len(whole) - len(shown) :]
    starts = {first for first, _ in case.tail.ranges}
    assert not shown or shown[0].role == "user" or shown[0].seq in starts
    assert is_settled(shown)


@given(tail=tails(), room=st.integers(0, 60), more=st.integers(0, 60))
def test_more_room_never_shows_less_of_the_tail(tail: Tail, room: int, more: int) -> None:
    assert len(newest_that_fit(tail, room)) <= len(newest_that_fit(tail, room + more))
