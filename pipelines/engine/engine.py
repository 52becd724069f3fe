"""The engine of a worker process: everything that draining needs, and the names of its outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from strandline.pipelines.engine.active_lanes import ActiveLanes
from strandline.pipelines.engine.budgets import Budgets
from strandline.pipelines.engine.failures import RetryPolicy, Troubles
from strandline.pipelines.engine.leases import LeaseTerms
from strandline.pipelines.engine.stage import Stages
from strandline.pipelines.engine.turns import Turns
from strandline.pipelines.engine.watch import Watch
from strandline.schemas.postgres.database import Database
from strandline.schemas.prices import ModelPrice
from strandline.schemas.values.lanes import Lane, Ring

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
