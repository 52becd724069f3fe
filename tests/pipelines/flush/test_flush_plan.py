"""Flush plans, as properties over random conversations and against a plain restatement of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.pipelines.flush.plan import (
    EVENT_BOUND,
    Entry,
    FlushPlan,
    Size,
    plan_delivery,
    plan_manual,
    plan_threshold,
)
from strandline.schemas.values.message import Role

CALL_IDS = ("a", "b", "call_1")
TOKENS = st.integers(0, 60) | st.just(5_000)


@dataclass(frozen=True)
class Said:
    """One message of a random conversation, before it has a seq."""

    role: Role
    tokens: int
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    bytes: int = 0

    def at(self, seq: int) -> Entry:
        return Entry(seq, self.role, self.tokens, self.calls, self.answers, self.bytes)


def _said() -> st.SearchStrategy[Said]:
    ids = st.sampled_from(CALL_IDS)
    calls = st.lists(ids, min_size=1, max_size=2, unique=True).map(tuple)
    return st.one_of(
        st.builds(Said, st.just("user"), TOKENS),
        st.builds(Said, st.just("assistant"), TOKENS),
        st.builds(Said, st.just("assistant"), TOKENS, calls),
        st.builds(Said, st.just("tool"), TOKENS, st.just(()), ids.map(lambda one: (one,))),
        st.builds(Said, st.just("user"), TOKENS, st.just(()), calls),
        st.builds(Said, st.just("system"), TOKENS),
    )


SAID = _said()
FIRST_SEQ = 3  # two pinned messages stand before the window


def conversation(said: Sequence[Said]) -> list[Entry]:
    return [one.at(FIRST_SEQ + index) for index, one in enumerate(said)]


ENTRIES = st.lists(SAID, max_size=40).map(conversation)


def parts_a_call(entries: Sequence[Entry], at: int, degree: int = 0) -> bool:
    """Whether a cut before ``entries[at]`` would part a call from its result, or leave one open behind.

    With degree 1 only from a result that came before the conversation went on, and one that still may; with
    degree 2 only from a result that came.
    """
    for index, entry in enumerate(entries[:at]):
        for call in entry.calls:
            later = range(index + 1, len(entries))
            result = next((place for place in later if call in entries[place].answers), None)
            goes_on = next((place for place in later if speaks(entries[place])), len(entries) + 1)
            if result is not None and degree and result > goes_on:
                result = None
            if result is not None:
                if at <= result:
                    return True
            elif degree < 2 and at < goes_on:
                return True
    return False


def speaks(entry: Entry) -> bool:
    return entry.role == "assistant" or is_person(entry)


def is_person(entry: Entry) -> bool:
    return entry.role == "user" and not entry.answers


def begins_step(entries: Sequence[Entry], at: int) -> bool:
    entry, before = entries[at], entries[at - 1]
    if entry.role == "assistant":
        return before.role in ("assistant", "tool") or bool(before.answers)
    return entry.role == "system" and not is_person(before)


def legal_cuts(entries: Sequence[Entry], degree: int = 2) -> list[int]:
    """Where the window may begin: before a person's message, or inside a turn before the next step."""
    return [
        at
        for at in range(1, len(entries))
        if (is_person(entries[at]) or begins_step(entries, at)) and not parts_a_call(entries, at, degree)
    ]


def remaining(entries: Sequence[Entry], plan: FlushPlan | None) -> list[Entry]:
    return [entry for entry in entries if plan is None or entry.seq >= plan.window_from]


def tokens(entries: Sequence[Entry]) -> int:
    return sum(entry.tokens for entry in entries)


def check_events(entries: Sequence[Entry], plan: FlushPlan, flushed_through: int) -> None:
    """The events are contiguous and in order, and tell the truth about what lies in them."""
    expected = flushed_through + 1
    for event in plan.events:
        inside = [entry for entry in entries if event.from_seq <= entry.seq <= event.through_seq]
        assert event.from_seq == expected
        assert event.messages == len(inside) > 0
        assert event.tokens == tokens(inside)
        expected = event.through_seq + 1
    assert plan.flushed_through == expected - 1


@given(ENTRIES, st.integers(0, 200), st.integers(0, 40), st.integers(1, 80))
@settings(max_examples=600, deadline=None)
def test_threshold_obeys_every_rule(
    entries: list[Entry], mark: int, pinned_tokens: int, flush_size: int
) -> None:
    flushed_through = FIRST_SEQ - 1
    plan = plan_threshold(
        entries,
        flushed_through=flushed_through,
        pinned_tokens=pinned_tokens,
        mark=mark,
        flush_size=flush_size,
        event_bound=Size(),
    )
    left = remaining(entries, plan)
    cuts = legal_cuts(entries)
    sufficient = [at for at in cuts if pinned_tokens + tokens(entries[at:]) <= mark]
    over = pinned_tokens + tokens(entries) > mark
    assert (plan is not None) == (over and bool(cuts))
    if plan is None:
        return
    assert FIRST_SEQ + cuts[0] <= plan.window_from
    assert plan.window_from - FIRST_SEQ in cuts
    assert left, "something always remains"
    assert plan.tokens_out == tokens(entries) - tokens(left) == sum(event.tokens for event in plan.events)
    assert plan.messages_out == len(entries) - len(left) == sum(event.messages for event in plan.events)
    assert plan.bytes_out == sum(entry.bytes for entry in entries) - sum(entry.bytes for entry in left)
    check_events(entries, plan, flushed_through)
    assert plan.flushed_through == plan.window_from - 1
    if sufficient:
        assert pinned_tokens + tokens(left) <= mark
    else:
        assert plan.window_from - FIRST_SEQ == cuts[-1], (
            "what cannot get under the mark gets as close as it can"
        )
    gentle = [at for at in legal_cuts(entries, 0) if pinned_tokens + tokens(entries[at:]) <= mark]
    if any(is_person(entries[at]) for at in gentle):
        assert is_person(left[0]), "a whole turn begins the window where whole turns suffice"
    if gentle:
        assert not parts_a_call(entries, len(entries) - len(left)), "no call is parted where that suffices"
    before_last = entries[plan.events[-1].from_seq - FIRST_SEQ :]
    assert pinned_tokens + tokens(before_last) > mark, "no event more than needed"


@given(ENTRIES, st.integers(1, 80), st.booleans())
@settings(max_examples=300, deadline=None)
def test_manual_takes_all_but_the_last_turn(entries: list[Entry], flush_size: int, everything: bool) -> None:
    plan = plan_manual(
        entries,
        flushed_through=FIRST_SEQ - 1,
        flush_size=flush_size,
        everything=everything,
        event_bound=Size(),
    )
    if everything:
        cuts = [at for at in range(1, len(entries) + 1) if not parts_a_call(entries, at)]
    else:
        cuts = [at for at in legal_cuts(entries, 0) if is_person(entries[at])]
    assert (plan is not None) == bool(cuts)
    if plan is not None:
        assert plan.window_from == FIRST_SEQ + cuts[-1]
        check_events(entries, plan, FIRST_SEQ - 1)
        for event in plan.events:
            assert not parts_a_call(entries, event.through_seq + 1 - FIRST_SEQ)
        assert all(event.tokens >= flush_size for event in plan.events[:-1])


@given(ENTRIES, st.integers(1, 80), st.integers(0, 10))
@settings(max_examples=300, deadline=None)
def test_idle_delivers_and_leaves_the_window_alone(
    entries: list[Entry], flush_size: int, already: int
) -> None:
    flushed_through = FIRST_SEQ - 1 + min(already, len(entries))
    plan = plan_delivery(
        entries, window_from=FIRST_SEQ, flushed_through=flushed_through, flush_size=flush_size
    )
    open_at = [at for at in range(1, len(entries) + 1) if not parts_a_call(entries, at)]
    deliverable = [at for at in open_at if FIRST_SEQ + at - 1 > flushed_through]
    assert (plan is not None) == bool(deliverable)
    if plan is not None:
        assert plan.window_from == FIRST_SEQ
        assert plan.tokens_out == 0
        assert plan.flushed_through == FIRST_SEQ + deliverable[-1] - 1
        check_events(entries, plan, flushed_through)


SIZED = st.lists(
    st.builds(lambda said, size: replace(said, bytes=size), SAID, st.integers(0, 50)), max_size=40
)
BOUNDS = st.builds(Size, st.integers(1, 200), st.integers(1, 8), st.integers(1, 120))


@given(SIZED.map(conversation), st.integers(1, 12), st.integers(1, 300), st.integers(1, 80))
@settings(max_examples=300, deadline=None)
def test_the_window_is_bounded_by_messages_and_bytes_too(
    entries: list[Entry], max_messages: int, max_bytes: int, flush_size: int
) -> None:
    plan = plan_threshold(
        entries,
        flushed_through=FIRST_SEQ - 1,
        pinned_tokens=0,
        mark=10**9,
        flush_size=flush_size,
        max_messages=max_messages,
        max_bytes=max_bytes,
    )

    def is_within(left: Sequence[Entry]) -> bool:
        return len(left) <= max_messages and sum(entry.bytes for entry in left) <= max_bytes

    cuts = legal_cuts(entries)
    assert (plan is not None) == (not is_within(entries) and bool(cuts))
    if plan is not None:
        left = remaining(entries, plan)
        assert plan.window_from - FIRST_SEQ in cuts
        if any(is_within(entries[at:]) for at in cuts):
            assert is_within(left)
        else:
            assert plan.window_from - FIRST_SEQ == cuts[-1]


def bounded(size: Size, bound: Size) -> bool:
    return size.tokens <= bound.tokens and size.messages <= bound.messages and size.bytes <= bound.bytes


def size_of(entries: Sequence[Entry]) -> Size:
    return Size(tokens(entries), len(entries), sum(entry.bytes for entry in entries))


@given(SIZED.map(conversation), BOUNDS, st.integers(1, 80), st.sampled_from(["mark", "all", "idle"]))
@settings(max_examples=600, deadline=None)
def test_an_event_is_within_its_bounds_and_the_window_is_cut_as_without_them(
    entries: list[Entry], bound: Size, flush_size: int, cause: str
) -> None:
    def planned(event_bound: Size) -> FlushPlan | None:
        common: dict[str, Any] = {"flushed_through": FIRST_SEQ - 1, "flush_size": flush_size}
        if cause == "mark":
            return plan_threshold(entries, pinned_tokens=0, mark=60, event_bound=event_bound, **common)
        if cause == "all":
            return plan_manual(entries, everything=True, event_bound=event_bound, **common)
        return plan_delivery(entries, window_from=FIRST_SEQ, event_bound=event_bound, **common)

    plan, whole = planned(bound), planned(Size())
    assert (plan is None) == (whole is None)
    if plan is None or whole is None:
        return
    check_events(entries, plan, FIRST_SEQ - 1)
    assert replace(plan, events=()) == replace(whole, events=()), "marks and counters move as without bounds"
    assert {event.through_seq for event in whole.events} <= {event.through_seq for event in plan.events}
    bound = replace(bound, tokens=max(bound.tokens, 2 * flush_size))
    whole_ends = {event.through_seq for event in whole.events}
    for event in plan.events:
        begin, end = event.from_seq - FIRST_SEQ, event.through_seq + 1 - FIRST_SEQ
        assert bounded(size_of(entries[begin:end]), bound) or event.messages == 1
        if event.through_seq in whole_ends:
            continue
        further = [at for at in range(begin + 1, len(entries)) if bounded(size_of(entries[begin:at]), bound)]
        if parts_a_call(entries, end):
            assert all(parts_a_call(entries, at) for at in further), (
                "between a call and its result only at need"
            )
            assert end == max(further, default=begin + 1), "as much as one event may hold"
        else:
            assert not [at for at in further if at > end and not parts_a_call(entries, at)]


def test_a_turn_of_huge_results_is_several_events() -> None:
    calls = tuple(f"c{number}" for number in range(4))
    said = [Said("user", 10), Said("assistant", 20, calls)]
    said += [Said("tool", 450_000, (), (call,), 960_000) for call in calls]
    said += [Said("assistant", 5), Said("user", 5)]
    found = plan(conversation(said), mark=21_000, flush_size=3_000)
    assert found is not None
    assert [event.messages for event in found.events] == [1, 1, 1, 1, 1, 1, 1]
    assert all(event.tokens <= EVENT_BOUND.tokens or event.messages == 1 for event in found.events)


@dataclass
class Session:
    """A session kept by the plan functions alone: what the marks and the events would be."""

    mark: int
    flush_size: int
    entries: list[Entry] = field(default_factory=list)
    window_from: int = 1
    flushed_through: int = 0
    delivered: list[int] = field(default_factory=list)

    @property
    def window(self) -> list[Entry]:
        return self.entries[self.window_from - 1 :]

    def put(self, said: Said) -> None:
        self.entries.append(said.at(len(self.entries) + 1))
        self.apply(
            plan_threshold(
                self.window,
                flushed_through=self.flushed_through,
                pinned_tokens=0,
                mark=self.mark,
                flush_size=self.flush_size,
            )
        )

    def manual(self, *, everything: bool) -> None:
        self.apply(
            plan_manual(
                self.window,
                flushed_through=self.flushed_through,
                flush_size=self.flush_size,
                everything=everything,
            )
        )

    def deliver(self, *, whole_turns: bool = False) -> None:
        self.apply(
            plan_delivery(
                self.window,
                window_from=self.window_from,
                flushed_through=self.flushed_through,
                flush_size=self.flush_size,
                whole_turns=whole_turns,
            )
        )

    def apply(self, plan: FlushPlan | None) -> None:
        if plan is None:
            return
        assert plan.window_from >= self.window_from
        assert plan.flushed_through >= max(self.flushed_through, plan.window_from - 1)
        moved = self.entries[self.window_from - 1 : plan.window_from - 1]
        assert plan.tokens_out == tokens(moved)
        check_events(self.window, plan, self.flushed_through)
        for event in plan.events:
            self.delivered.extend(range(event.from_seq, event.through_seq + 1))
        self.window_from, self.flushed_through = plan.window_from, plan.flushed_through


Move = Said | str
MOVES = st.lists(SAID | SAID | SAID | st.sampled_from(["idle", "turn", "manual", "all"]), max_size=80)


@given(MOVES, st.integers(10, 300), st.integers(1, 80))
@settings(max_examples=200, deadline=None)
def test_a_long_session_delivers_every_seq_exactly_once(
    moves: list[Move], mark: int, flush_size: int
) -> None:
    session = Session(mark, flush_size)
    for move in moves:
        if isinstance(move, Said):
            session.put(move)
        elif move in ("idle", "turn"):
            session.deliver(whole_turns=move == "turn")
        else:
            session.manual(everything=move == "all")
        assert session.delivered == list(range(1, session.flushed_through + 1))
    session.put(Said("user", 1))  # closes every open call
    session.manual(everything=True)
    assert session.delivered == [entry.seq for entry in session.entries]
    assert session.window == []


def plan(entries: Sequence[Entry], mark: int, flush_size: int = 10) -> FlushPlan | None:
    return plan_threshold(
        entries, flushed_through=FIRST_SEQ - 1, pinned_tokens=0, mark=mark, flush_size=flush_size
    )


@given(ENTRIES, st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=400, deadline=None)
def test_a_window_of_too_many_messages_gives_off_so_many_or_a_multiple(
    entries: list[Entry], most: int, size: int
) -> None:
    """The oldest of them, at the first cut behind the step, or at the last one there is."""
    found = plan_threshold(
        entries,
        flushed_through=FIRST_SEQ - 1,
        pinned_tokens=0,
        mark=10**9,
        flush_size=1,
        max_messages=most,
        message_flush_size=min(size, most),
    )
    cuts = legal_cuts(entries)
    assert (found is not None) == (len(entries) > most and bool(cuts))
    if found is None:
        return
    left = remaining(entries, found)
    check_events(entries, found, FIRST_SEQ - 1)
    step = min(size, most)
    steps = -(-(len(entries) - most) // step) * step
    turns = [at for at in legal_cuts(entries, 0) if is_person(entries[at])]
    if reaching := [at for at in turns if at >= steps]:
        assert len(entries) - len(left) == reaching[0], "one step, and a whole turn begins the window"
    elif len(left) > most:
        assert all(len(entries) - at > most for at in cuts), "no cut leaves few enough"


def test_a_lone_oversized_message_stays() -> None:
    assert plan(conversation([Said("user", 10_000)]), mark=100) is None


def test_an_oversized_message_leaves_once_another_turn_follows() -> None:
    entries = conversation([Said("user", 10_000), Said("assistant", 5), Said("user", 5)])
    found = plan(entries, mark=100)
    assert found is not None
    assert [entry.role for entry in remaining(entries, found)] == ["user"]


def test_one_turn_of_forty_steps_is_flushed_inside() -> None:
    steps = [
        step
        for number in range(40)
        for step in (Said("assistant", 20, (f"c{number}",)), Said("tool", 30, (), (f"c{number}",)))
    ]
    entries = conversation([Said("user", 10), *steps])
    found = plan(entries, mark=300, flush_size=100)
    assert found is not None
    left = remaining(entries, found)
    assert tokens(left) <= 300
    assert left[0].role == "assistant"
    assert len(left) % 2 == 0, "each result stayed with its call"


def test_a_call_without_a_result_closes_when_the_conversation_goes_on() -> None:
    dead = [Said("user", 5), Said("assistant", 50, ("lost",))]
    waits = conversation([Said("user", 5), Said("assistant", 5), *dead])
    found = plan(waits, mark=20)
    assert found is not None
    assert [entry.seq for entry in remaining(waits, found)] == [5, 6], "its own turn stays with it"
    gone_on = conversation([*dead, Said("assistant", 50, ("next",)), Said("tool", 5, (), ("next",))])
    found = plan(gone_on, mark=20)
    assert found is not None
    assert [entry.role for entry in remaining(gone_on, found)] == ["assistant", "tool"]


def test_notes_behind_a_waiting_call_leave_with_it_when_the_marks_need_it() -> None:
    said = [Said("user", 5), Said("assistant", 5), Said("assistant", 5, ("slow",)), *[Said("system", 5)] * 40]
    entries = conversation(said)
    found = plan(entries, mark=60)
    assert found is not None
    assert tokens(remaining(entries, found)) <= 60
    few = conversation(said[:8])
    found = plan(few, mark=35)
    assert found is not None
    assert remaining(few, found)[0].calls == ("slow",), "not before the rest"


def test_an_agent_by_itself_with_dead_and_late_calls_stays_within_all_marks() -> None:
    """Every call is answered one step too late, or never; and nobody else speaks."""
    session = Session(mark=200, flush_size=40)
    session.put(Said("user", 10))
    for number in range(1_000):
        session.put(Said("assistant", 10, (f"late{number}", f"dead{number}")))
        if number:
            session.put(Said("tool", 10, (), (f"late{number - 1}",)))
        assert tokens(session.window) <= 200
    assert session.delivered == list(range(1, session.flushed_through + 1))


def test_a_reused_call_id_is_paired_with_the_result_that_follows_it() -> None:
    pair = [Said("assistant", 20, ("call_1",)), Said("tool", 20, (), ("call_1",))]
    entries = conversation([Said("user", 5), *pair, *pair, *pair])
    found = plan(entries, mark=45)
    assert found is not None
    assert [entry.role for entry in remaining(entries, found)] == ["assistant", "tool"]


def test_a_late_result_is_parted_from_its_call_only_where_the_marks_need_it() -> None:
    late = [
        Said("user", 5),
        Said("assistant", 50, ("slow",)),
        Said("user", 5),
        Said("tool", 5, (), ("slow",)),
    ]
    entries = conversation(late)
    found = plan(entries, mark=20)
    assert found is not None
    assert [entry.role for entry in remaining(entries, found)] == ["user", "tool"]
    assert plan_manual(entries, flushed_through=FIRST_SEQ - 1, flush_size=1, everything=False) is None, (
        "the last turn begins between the call and its late result"
    )
    before = conversation([Said("user", 50), Said("assistant", 50), *late])
    found = plan(before, mark=80)
    assert found is not None
    assert [entry.seq for entry in remaining(before, found)] == [5, 6, 7, 8]


def test_what_an_idle_flush_delivered_is_not_delivered_again() -> None:
    said = [Said("user", 10), Said("assistant", 10)] * 6
    session = Session(mark=200, flush_size=20)
    for one in said:
        session.put(one)
    session.deliver()
    assert session.flushed_through == 12
    assert session.window_from == 1
    for one in [*said, *said]:
        session.put(one)
    assert session.window_from > 13
    assert session.delivered == list(range(1, session.flushed_through + 1))
