"""Pacing: no lane passes more often than it may, and none is forgotten."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from strandline.producers.doorbell.pacing import Pacer
from strandline.schemas.values.lanes import Lane

SECONDS = 1.0
LANES = [Lane(UUID(int=number), UUID(int=number), 1, "summary") for number in range(4)]


def test_the_first_hint_passes_at_once_and_its_repetitions_as_one() -> None:
    pacer, lane, other = Pacer(SECONDS), LANES[0], LANES[1]
    assert pacer.wait_seconds(0.0) is None
    assert pacer.pass_on([lane, lane], 0.0) == [lane]
    assert pacer.wait_seconds(0.0) is None
    assert pacer.pass_on([lane, other], 0.25) == [other]
    assert pacer.wait_seconds(0.5) == 0.5
    assert pacer.pass_on([lane], 0.5) == []
    assert pacer.pass_on([], 1.0) == [lane]
    assert pacer.wait_seconds(1.0) is None


def test_hints_that_a_pacer_keeps_can_be_taken_once() -> None:
    pacer = Pacer(SECONDS)
    pacer.pass_on(LANES, 0.0)
    pacer.pass_on(LANES[:2], 0.5)
    assert pacer.take_kept() == LANES[:2]
    assert pacer.take_kept() == []
    assert pacer.pass_on([], 2.0) == []


@given(st.lists(st.tuples(st.floats(0.0, 0.7), st.lists(st.sampled_from(LANES), max_size=3)), max_size=40))
def test_each_hint_is_followed_by_one_in_time(rung: list[tuple[float, list[Lane]]]) -> None:
    """Rung for at any times, and looked at as it asks to be."""
    pacer, now = Pacer(SECONDS), 0.0
    passed: dict[Lane, list[float]] = {lane: [] for lane in LANES}
    asked: dict[Lane, float] = {}

    def look(lanes: list[Lane]) -> None:
        asked.update(dict.fromkeys(lanes, now))
        for lane in pacer.pass_on(lanes, now):
            passed[lane].append(now)

    for pause, lanes in [*rung, (2 * SECONDS, [])]:
        until = now + pause
        while (wait := pacer.wait_seconds(now)) is not None and now + wait <= until:
            now += wait
            look([])
        now = until
        look(lanes)
    for lane, times in passed.items():
        assert all(later - earlier >= SECONDS - 1e-9 for earlier, later in pairwise(times))
        if lane in asked:
            assert asked[lane] <= times[-1] <= asked[lane] + SECONDS + 1e-9
    assert pacer.wait_seconds(now) is None
