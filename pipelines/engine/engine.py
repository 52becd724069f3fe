"""The engine of a worker process: all that draining needs, its lanes in hand, the names of its outcomes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, TypedDict
from uuid import UUID

from strandline.pipelines.engine.budgets import Budgets
from strandline.pipelines.engine.failures import RetryPolicy, Troubles
from strandline.pipelines.engine.leases import LeaseTerms
from strandline.pipelines.engine.stage import Batch, RawAnswer, Stages
from strandline.pipelines.engine.turns import Turns
from strandline.schemas.postgres.database import Database
from strandline.schemas.prices import ModelPrice
from strandline.schemas.values.lanes import Lane, Ring

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


class Watch:
    """Drops everything; a process with metrics has another one."""

    def note_batch(self, batch: Batch) -> None:
        """A batch's effect is committed, and can be read."""

    def note_call(self, stage: str, answer: RawAnswer, seconds: float, cost_usd: Decimal | None) -> None:
        """A model answered a call, and the answer is stored."""

    def note_failure(self, stage: str, error: Exception) -> None:
        """A lane was given back after an error."""

    def note_dead_letter(self, batch: Batch) -> None:
        """The event of a batch became a dead letter."""


StopPoint = Literal["loaded", "called", "stored", "applying", "applied"]

# How a turn ended.  Without a claimed lane: "unserved" (not by this process), "postponed" (its provider is
# down), "in_hand" (another thread here drains it), "stopped" (this process ends), or "nothing_to_claim". With
# one: "drained", "gave_way" (others waited), "stopped", "postponed" (after a failure, or for a budget),
# "lost" (another worker has the lease, or Postgres is away).
Outcome = Literal[
    "drained", "gave_way", "in_hand", "nothing_to_claim", "postponed", "lost", "stopped", "unserved"
]


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything that draining needs; one per worker process, shared by its threads.

    Attributes:
        ring: called with lanes that have work for stages of other processes, once that is committed.
        ring_later: called with lanes that gave way.
        active: the lanes that threads of this process drain.
        stopping: asked between batches; True means release the lane and leave.
        reach: called at each stop point (tests kill or pause a process exactly there).
        prices: the prices of models, from which the ledger computes costs.
        turns: the owners that this process served last.
        troubles: the reasons why the work of a stage waits for its provider.
        budgets: how much namespaces may use models per day; None: as much as they need.
        admit: called before each model call; an error that it raises puts the lane off.
        watch: counts the work for metrics.
    """

    database: Database
    stages: Stages
    worker_id: UUID
    terms: LeaseTerms
    retry: RetryPolicy
    batch_token_budget: int
    ring: Ring
    ring_later: Ring = field(default=lambda _lanes: None)
    turns: Turns = field(default_factory=Turns)
    budgets: Budgets | None = None
    active: ActiveLanes = field(default_factory=ActiveLanes)
    stopping: Callable[[], bool] = field(default=lambda: False)
    reach: Callable[[StopPoint], None] = field(default=lambda _point: None)
    prices: tuple[ModelPrice, ...] = ()
    troubles: Troubles = field(default_factory=Troubles)
    admit: Callable[[Lane], None] = field(default=lambda _lane: None)
    watch: Watch = field(default_factory=Watch)

    def pass_on(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Ring for the lanes whose stages other processes serve; return the others."""
        served = set(self.stages)
        if elsewhere := [lane for lane in lanes if lane.stage not in served]:
            self.ring(elsewhere)
        return [lane for lane in lanes if lane.stage in served]
