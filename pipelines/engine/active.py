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
    worker are left over because their release did not get through.  A worker that leaves closes it, so
    that it takes no lane after it gave all of them back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: set[Lane] = set()
        self._claims = 0
        self._closed = False
        self._no_claims = threading.Condition(self._lock)

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

    @contextmanager
    def claiming(self) -> Iterator[bool]:
        """Hold ``close`` up while a lane is being claimed; yields False once closed: then claim none."""
        with self._lock:
            admitted = not self._closed
            self._claims += admitted
        try:
            yield admitted
        finally:
            if admitted:
                with self._lock:
                    self._claims -= 1
                    self._no_claims.notify_all()

    def close(self, timeout_seconds: float) -> bool:
        """Let no lane be claimed any more, and wait for the claims under way; False when time ran out."""
        with self._lock:
            self._closed = True
            return self._no_claims.wait_for(lambda: not self._claims, timeout_seconds)

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
