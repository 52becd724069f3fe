"""A thread that drained a lane goes on with what this gave work to, and leaves the rest to others."""

from __future__ import annotations

from uuid import UUID

from strandline.pipelines.engine.engine import Outcome
from strandline.schemas.values.lanes import Lane
from strandline.workers.following import Following


def lane(stage: str, number: int = 0) -> Lane:
    return Lane(UUID(int=1), UUID(int=number), 1, stage)


class Work:
    """Drains by name: each lane rings for the lanes given for it, once."""

    def __init__(self, rings: dict[Lane, list[Lane]], unserved: tuple[Lane, ...] = ()) -> None:
        self.rings, self.unserved = rings, unserved
        self.drained: list[Lane] = []
        self.passed_on: list[Lane] = []
        self.stopping = False
        self.following = Following(self.passed_on.extend, ("extract", "merge"), lambda: self.stopping)

    def drain(self, one: Lane) -> Outcome:
        self.drained.append(one)
        self.following.ring(self.rings.pop(one, []))
        return "unserved" if one in self.unserved else "drained"

    def begin(self, one: Lane) -> Outcome:
        return self.following.drain(one, self.drain)


def test_what_is_served_here_follows_and_the_rest_is_rung_for() -> None:
    work = Work({lane("extract"): [lane("merge"), lane("summary"), lane("merge")]})
    assert work.begin(lane("extract")) == "drained"
    assert (work.drained, work.passed_on) == ([lane("extract"), lane("merge")], [lane("summary")])


def test_a_lane_that_has_work_again_is_drained_again() -> None:
    work = Work({lane("extract"): [lane("extract"), lane("merge")], lane("merge"): [lane("merge", 2)]})
    work.begin(lane("extract"))
    assert work.drained == [lane("extract"), lane("extract"), lane("merge"), lane("merge", 2)]


def test_a_worker_that_stops_or_cannot_serve_leaves_them_to_others() -> None:
    work = Work({lane("extract"): [lane("merge"), lane("merge", 2)]}, unserved=(lane("merge"),))
    work.begin(lane("extract"))
    assert (work.drained[-1], work.passed_on) == (lane("merge", 2), [lane("merge")])
    work = Work({lane("extract"): [lane("merge")]})
    work.stopping = True
    work.begin(lane("extract"))
    assert (work.drained, work.passed_on) == ([lane("extract")], [lane("merge")])


def test_other_threads_and_times_ring() -> None:
    work = Work({})
    work.following.ring([lane("merge")])
    work.begin(lane("extract"))
    work.following.ring([lane("extract")])
    assert work.passed_on == [lane("merge"), lane("extract")]
