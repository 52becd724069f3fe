"""Following: a thread that has drained a lane goes on with the lanes that this gave work to.

What extract found is merged by the same thread, if its process serves both: no hint has to travel by way of
the broker, which would cost both sides about a millisecond and come some later.  Somebody else who holds
such a lane sees the work before he lets go of it, so nothing is missed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from strandline.pipelines.engine.engine import Outcome
from strandline.schemas.values.lanes import Lane, Ring


class Following:
    """Keeps the lanes that a thread is to go on with; those of stages that are not ``served`` are rung for.

    Args:
        ring: passes hints on to whoever serves their stages.
        stopping: True leaves the lanes to others.
    """

    def __init__(self, ring: Ring, served: Iterable[str], stopping: Callable[[], bool]) -> None:
        self._pass_on = ring
        self._served = frozenset(served)
        self._stopping = stopping
        self._thread = threading.local()

    def ring(self, lanes: Iterable[Lane]) -> None:
        """What the engine is told to call: keep the lanes for this thread if it is one that follows."""
        own: dict[Lane, None] | None = getattr(self._thread, "lanes", None)
        others = []
        for lane in lanes:
            if own is not None and lane.stage in self._served:
                own[lane] = None
            else:
                others.append(lane)
        if others:
            self._pass_on(others)

    def drain(
        self, lane: Lane, drain: Callable[[Lane], Outcome], begin: Callable[[Lane], Outcome] | None = None
    ) -> Outcome:
        """Drain a lane (with ``begin``, where it is given), and then what was rung for meanwhile.

        Gives the outcome of the first.
        """
        own: dict[Lane, None] = {}
        left: list[Lane] = []
        self._thread.lanes = own
        try:
            outcome = (begin or drain)(lane)
            while own and not self._stopping():
                following = next(iter(own))
                del own[following]
                if drain(following) == "unserved":
                    left.append(following)
            return outcome
        finally:
            self._thread.lanes = None
            if left or own:
                self._pass_on([*left, *own])
