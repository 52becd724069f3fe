"""Which namespaces have their reads recorded, kept for some seconds: a read rarely asks the database."""

from __future__ import annotations

import time
from collections.abc import Callable

from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.audit.audit import LevelOfNamespace

# For so long a change of level may go unnoticed by the reads of a process.
FRESH_SECONDS = 5.0
# More namespaces than this are forgotten together, and asked for again.
MAX_NAMESPACES = 4_096


class KnownLevels:
    """The levels of namespaces that this process has read in; safe to share between threads and tasks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[bool, float]] = {}

    def records_reads(self, namespace: str) -> Operation[bool]:
        """Whether reads of a namespace are recorded, as of at most five seconds ago."""
        known = self._known.get(namespace)
        if known is not None and self._clock() - known[1] < FRESH_SECONDS:
            return known[0]
        asked_at = self._clock()
        (row,) = yield from fetch(LevelOfNamespace(namespace=namespace))
        if len(self._known) >= MAX_NAMESPACES:
            self._known.clear()
        self._known[namespace] = (row.level == "all", asked_at)
        return row.level == "all"
