"""The statements of ``schemas/sql/workers.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import LaneRow


class Beat(Query[Never], name="beat", repeatable=True):
    """Record a heartbeat of this worker, by the database's clock."""

    worker_id: UUID
    host: str
    pid: int
    version: str
    stages: list[str]


class TellUnbuildable(Query[Never], name="tell_unbuildable"):
    """Generations that this worker cannot serve: their work is left to others."""

    generation_ids: list[int]
    worker_id: UUID


class TellCondition(Query[Never], name="tell_condition"):
    """Record a worker's condition: the broker's messages that it dropped, and the like."""

    condition: str
    worker_id: UUID


class Leave(Query[LaneRow], name="leave"):
    """Remove this worker, and release the lanes it still holds, so that they do not count as crashes, and any
    sweep rings for them at once. Wait for a lane that is being written, which is short.
    """

    worker_id: UUID


class ForgetDeadWorkers(Query[Never], name="forget_dead_workers"):
    """Delete heartbeat rows of workers that died long ago, and budget slices of days long gone."""
