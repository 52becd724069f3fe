"""Two installations on one broker take each other's hints: the loss is made up for, and counted.

A lane that a worker's sweep finds again a few seconds after it rang for it was rung for in vain, as where
another installation's worker took the hint.  A worker that has free threads then drains it itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.work.lanes import FindLane
from strandline.schemas.values.lanes import Lane
from strandline.workers.condition import Condition

# Longer than any wait between two rings of a sweep for the same lane.
IN_VAIN_SECONDS = 12.0
# Between two looks whether a hint that led to no work names a lane of this database.
LOOK_SECONDS = 1.0

FOREIGN = "it names a lane that this database does not have: another installation may use this broker"


class LostRings:
    """The lanes that were rung for a moment ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rung_at: dict[Lane, float] = {}

    def split(self, lanes: Sequence[Lane]) -> tuple[list[Lane], list[Lane]]:
        """The lanes to notify now, and the lanes notified in vain."""
        now = self._clock()
        while self._rung_at and now - next(iter(self._rung_at.values())) > IN_VAIN_SECONDS:
            del self._rung_at[next(iter(self._rung_at))]
        in_vain = [lane for lane in lanes if self._rung_at.pop(lane, None) is not None]
        new = [lane for lane in lanes if lane not in in_vain]
        self._rung_at |= dict.fromkeys(new, now)
        return new, in_vain


class ForeignHints:
    """Counts hints of other installations, as a sample, among a worker's dropped ones."""

    def __init__(self, database: Database, condition: Condition) -> None:
        self._database = database
        self._condition = condition
        self._looked_at = -LOOK_SECONDS

    def look(self, hint: Lane) -> None:
        """Look whether this database has the lane, at most once a second; never for doctor's own."""
        now = time.monotonic()
        if not hint.shard_key.int or now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        if not self._database.fetch(FindLane(**hint.keys)):
            self._condition.drop_hint(FOREIGN)
