"""The statements of ``schemas/sql/workers.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query


class Beat(Query[Never]):
    """Record a heartbeat of this worker, by the database's clock."""

    __slots__ = ()
    name = "beat"
    repeatable = True

    def __init__(self, *, worker_id: UUID, host: str, pid: int, version: str, stages: list[str]) -> None:
        self.values = (worker_id, host, pid, version, stages)


class TellUnbuildable(Query[Never]):
    """Generations that this worker cannot serve: their work is left to others."""

    __slots__ = ()
    name = "tell_unbuildable"

    def __init__(self, *, generation_ids: list[int], worker_id: UUID) -> None:
        self.values = (generation_ids, worker_id)


class TellCondition(Query[Never]):
    """Record a worker's condition: the broker's messages that it dropped, and the like."""

    __slots__ = ()
    name = "tell_condition"

    def __init__(self, *, condition: str, worker_id: UUID) -> None:
        self.values = (condition, worker_id)


class LeaveRow(NamedTuple):
    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str


class Leave(Query[LeaveRow]):
    """Remove this worker, and release the lanes it still holds, so that they do not count as crashes, and any
    sweep rings for them at once. Wait for a lane that is being written, which is short.
    """

    __slots__ = ()
    name = "leave"
    row = LeaveRow

    def __init__(self, *, worker_id: UUID) -> None:
        self.values = (worker_id,)


class ForgetDeadWorkers(Query[Never]):
    """Delete heartbeat rows of workers that died long ago, and budget slices of days long gone."""

    __slots__ = ()
    name = "forget_dead_workers"
