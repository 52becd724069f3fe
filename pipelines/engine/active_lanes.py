"""The lanes that this process is draining right now."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict
from uuid import UUID

from strandline.schemas.values.lanes import Lane

# Lanes that were taken less long ago are not left over: whoever took them is about to say so.
SETTLED_SECONDS = 1.0


class ActiveParams(TypedDict):
    """Lanes as parallel arrays, as parameters of ``release_undrained_lanes``."""

    older_than_seconds: float
    shard_keys: list[UUID]
    scope_keys: list[UUID]
    generation_ids: list[int]
    stages: list[str]


class ActiveLanes:
    """The lanes that threads of this process drain; safe to share between them.

    A second hint for the same lane then costs no query, and the worker can tell which of its leases are left
    over because their release was lost.  A worker that leaves closes it, so that it claims no lane after it
    released all of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: Counter[Lane] = Counter()
        self._claims: dict[object, float] = {}
        self._closed = False
        self._no_claims = threading.Condition(self._lock)

    @contextmanager
    def enter(self, lane: Lane, *, anyway: bool = False) -> Iterator[bool]:
        """Mark a lane as being drained; yields False if another thread of this process is draining it.

        ``anyway``: the lane is held already, even if another thread still drains it under an older lease.
        """
        with self._lock:
            entered = anyway or lane not in self._lanes
            self._lanes[lane] += entered
        try:
            yield entered
        finally:
            if entered:
                with self._lock:
                    self._lanes[lane] -= 1
                    if not self._lanes[lane]:
                        del self._lanes[lane]

    @contextmanager
    def permit_claim(self) -> Iterator[bool]:
        """Hold up ``close`` while a lane is being claimed; yields False once closed: then claim no lane."""
        claim = object()
        with self._lock:
            admitted = not self._closed
            if admitted:
                self._claims[claim] = time.monotonic()
        try:
            yield admitted
        finally:
            if admitted:
                with self._lock:
                    del self._claims[claim]
                    self._no_claims.notify_all()

    def close(self, timeout_seconds: float) -> bool:
        """Stop all claims from now on, and wait for those under way; False if the time ran out."""
        with self._lock:
            self._closed = True
            return self._no_claims.wait_for(lambda: not self._claims, timeout_seconds)

    def lanes(self) -> list[Lane]:
        """The lanes that are being drained right now."""
        with self._lock:
            return list(self._lanes)

    def params(self) -> ActiveParams:
        """The lanes as parallel arrays, for ``release_undrained_lanes``.

        A turn learns its lane only when the claim is made, so lanes claimed since the oldest claim under way
        began may be missing here.
        """
        with self._lock:
            lanes = list(self._lanes)
            oldest = min(self._claims.values(), default=None)
        claiming_seconds = 0.0 if oldest is None else time.monotonic() - oldest
        return {
            "older_than_seconds": SETTLED_SECONDS + claiming_seconds,
            "shard_keys": [lane.shard_key for lane in lanes],
            "scope_keys": [lane.scope_key for lane in lanes],
            "generation_ids": [lane.generation_id for lane in lanes],
            "stages": [lane.stage for lane in lanes],
        }

    def __len__(self) -> int:
        return len(self._lanes)
