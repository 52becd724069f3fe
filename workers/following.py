"""Following: a thread that has drained a lane continues with the lanes that this gave work to.

The thread that ran extract also merges its result, if its process serves both stages: a hint through the
broker would cost both sides about a millisecond and arrive later.  Another thread that holds such a lane sees
the work before it releases the lane, so nothing is missed.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.pipelines.engine.drain import Turn
from strandline.schemas.values.lanes import Lane, Ring


def follow(first: Turn, drain: Callable[[Lane], Turn], ring: Ring, stopping: Callable[[], bool]) -> None:
    """Drain the lanes that a turn gave work to, and so on.

    Args:
        first: the turn that was taken.
        ring: called with the lanes that are left to others: all waiting lanes once ``stopping``, lanes whose
            generation is not served here, and the rest if ``drain`` raises.
    """
    waiting = dict.fromkeys(first.next_lanes)
    unserved: list[Lane] = []
    try:
        while waiting and not stopping():
            lane = next(iter(waiting))
            turn = drain(lane)
            del waiting[lane]
            if turn.outcome == "unserved":
                unserved.append(lane)
            waiting |= dict.fromkeys(turn.next_lanes)
    finally:
        if left := [*unserved, *waiting]:
            ring(left)
