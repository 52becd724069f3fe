"""Which lanes this process is draining right now."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from strandline.schemas.lanes import Lane


class ActiveLanes:
    """The lanes that threads of this process drain; safe to share between them.

    Keeps a second hint for the same lane from asking Postgres at all, and tells which leases of this
    worker are left over because their release did not get through.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: set[Lane] = set()

    @contextmanager
    def enter(self, lane: Lane) -> Iterator[bool]:
        """Mark a lane as being drained; yields False if another thread of this process is at it."""
        with self._lock:
            entered = lane not in self._lanes
            self._lanes.add(lane)
        try:
            yield entered
        finally:
            if entered:
                with self._lock:
                    self._lanes.discard(lane)

    def lanes(self) -> list[Lane]:
        """The lanes that are being drained right now."""
        with self._lock:
            return list(self._lanes)

    def params(self) -> dict[str, Any]:
        """The lanes as parallel arrays, for ``hand_back_lanes``."""
        lanes = self.lanes()
        return {
            "shard_keys": [lane.shard_key for lane in lanes],
            "scope_keys": [lane.scope_key for lane in lanes],
            "generation_ids": [lane.generation_id for lane in lanes],
            "stages": [lane.stage for lane in lanes],
        }

    def __len__(self) -> int:
        return len(self._lanes)
