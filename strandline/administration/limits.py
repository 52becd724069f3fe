"""A namespace's limits at once and per day, and its agents' rights."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from strandline.pipelines.audit.appending import Act, append_query
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.work.limits import (
    ClearLimits,
    CountAnew,
    ForgetCleared,
    ListLimits,
    RevokeSlices,
    RingPutOff,
    SetLimits,
)
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import check_name
from strandline.schemas.wire.operations import LimitsIn
from strandline.schemas.wire.work import NamespaceLimitsReport

# Rows that were put off are rung for in transactions of so many, since workers wait for rows that are locked.
PAGE = 1_000


def write_limits(database: Database, namespace: str, limits: LimitsIn, *, whole: bool = False) -> None:
    """Set limits of a namespace, and apply them at once; with ``whole`` remove the others."""
    values: dict[str, Any] = limits.model_dump() | {"agents_read_only": limits.agents_read_only or None}
    columns = [column for column, value in values.items() if value is not None]
    missing = [column for column, value in values.items() if value is None] if whole else []
    with database.transaction() as tx:
        tx.fetch(SetLimits(namespace=check_name("namespace", namespace), **values))
        if missing:
            tx.fetch(ClearLimits(namespace=namespace, cleared=missing))
            tx.fetch(ForgetCleared(namespace=namespace))
        tx.fetch(CountAnew(namespace=namespace))
        detail = {"set": columns} | ({"cleared": missing} if missing else {})
        tx.fetch(append_query(namespace, Act.here("limits", detail=detail)))
    _apply_at_once(database, namespace)


def clear_limits(database: Database, namespace: str, columns: list[str]) -> None:
    """Remove these limits of a namespace; work that waited for them is tried again at once."""
    with database.transaction() as tx:
        tx.fetch(ClearLimits(namespace=namespace, cleared=columns))
        tx.fetch(ForgetCleared(namespace=namespace))
        tx.fetch(CountAnew(namespace=namespace))
        tx.fetch(append_query(namespace, Act.here("limits", detail={"cleared": columns})))
    _apply_at_once(database, namespace)


def _apply_at_once(database: Database, namespace: str) -> None:
    """Have slices of the former budget returned, and notify the work that waited for it."""
    database.fetch(RevokeSlices(namespace=namespace))
    owner = UUID(int=0)
    while rows := database.fetch(RingPutOff(namespace=namespace, from_shard=owner, limit=PAGE)):
        owner = max(row.shard_key for row in rows)


def read_limits(
    database: Database, settings: Settings, namespace: str | None = None
) -> list[NamespaceLimitsReport]:
    """The limits of a namespace, or of all with limits, with today's use and the waiting work."""
    rows = database.fetch(
        ListLimits(namespace=namespace, dead_after_seconds=settings.worker_dead_after_seconds)
    )
    return [NamespaceLimitsReport(**row._asdict()) for row in rows]
