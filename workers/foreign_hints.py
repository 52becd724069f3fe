"""Two installations on one broker take each other's hints, which is counted; the sweep makes up for it."""

from __future__ import annotations

import time

from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.work.lanes import FindLane
from strandline.schemas.values.lanes import Lane
from strandline.workers.condition import Condition

# Between two looks whether a hint that led to no work names a lane of this database.
LOOK_SECONDS = 1.0

FOREIGN = "it names a lane that this database does not have: another installation may use this broker"


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
