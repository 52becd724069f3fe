"""A thread that drained a lane goes on with what this gave work to, and leaves the rest to others."""

from __future__ import annotations

from uuid import UUID

import pytest

from strandline import DatabaseUnavailableError
from strandline.pipelines.engine.drain import Turn
from strandline.schemas.values.lanes import Lane
from strandline.workers.following import follow


def lane(stage: str, number: int = 0) -> Lane:
    return Lane(UUID(int=1), UUID(int=number), 1, stage)


class Work:
    """Drains by name: each lane gives work to the lanes given for it, once."""

    def __init__(self, next_lanes: dict[Lane, list[Lane]], unserved: tuple[Lane, ...] = ()) -> None:
        self.next_lanes, self.unserved = next_lanes, unserved
        self.drained: list[Lane] = []
        self.rung: list[Lane] = []
        self.stopping = False

    def drain(self, one: Lane) -> Turn:
        self.drained.append(one)
        outcome = "unserved" if one in self.unserved else "drained"
        return Turn(one, outcome, tuple(self.next_lanes.pop(one, [])))  # type: ignore[arg-type]

    def follow(self) -> None:
        follow(self.drain(lane("extract")), self.drain, self.rung.extend, lambda: self.stopping)


def test_each_lane_that_was_given_work_is_drained_once() -> None:
    work = Work({lane("extract"): [lane("merge"), lane("summary"), lane("merge")]})
    work.follow()
    assert (work.drained, work.rung) == ([lane("extract"), lane("merge"), lane("summary")], [])


def test_a_lane_that_has_work_again_is_drained_again() -> None:
    work = Work({lane("extract"): [lane("extract"), lane("merge")], lane("merge"): [lane("merge", 2)]})
    work.follow()
    assert work.drained == [lane("extract"), lane("extract"), lane("merge"), lane("merge", 2)]


def test_a_worker_that_stops_or_cannot_serve_leaves_them_to_others() -> None:
    work = Work({lane("extract"): [lane("merge"), lane("merge", 2)]}, unserved=(lane("merge"),))
    work.follow()
    assert (work.drained[-1], work.rung) == (lane("merge", 2), [lane("merge")])
    work = Work({lane("extract"): [lane("merge")]})
    work.stopping = True
    work.follow()
    assert (work.drained, work.rung) == ([lane("extract")], [lane("merge")])


def test_following_lanes_that_could_not_be_drained_are_rung_for() -> None:
    work = Work({lane("extract"): [lane("merge"), lane("merge", 2)]})
    first = work.drain(lane("extract"))

    def fail(_lane: Lane) -> Turn:
        raise DatabaseUnavailableError("Postgres does not answer.")

    with pytest.raises(DatabaseUnavailableError):
        follow(first, fail, work.rung.extend, lambda: False)
    assert work.rung == [lane("merge"), lane("merge", 2)]
