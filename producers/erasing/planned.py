"""The extent of an erasure, counted by table, without changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.pipelines.upkeep.erasure.records import fence_of
from strandline.pipelines.upkeep.erasure.steps import MOVED
from strandline.pipelines.upkeep.erasure.target import ErasureTarget
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.upkeep.erasures import OwnerRows


@dataclass(frozen=True, slots=True)
class PlannedErasure:
    """The extent of an erasure.

    Attributes:
        rows: by table, how many rows there are now that would go; tables without any are left out.
        erased_by: the erasure that was done before, or is under way; None if there is none.
    """

    rows: Mapping[str, int]
    erased_by: int | None

    @property
    def is_of_nobody(self) -> bool:
        """Whether nothing is stored, and nothing was erased: of a name that never came."""
        return not self.total and self.erased_by is None

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def plan_erasure(target: ErasureTarget) -> Operation[PlannedErasure]:
    """Count the rows of a user or of a session, in the tables that the catalog has."""
    rows = yield from fetch(OwnerRows(shard_key=target.owner_key, scope_key=target.scope_key))
    erased_by = yield from fence_of(target.owner_key, target.scope_key)
    going = {row.table_name: row.rows for row in rows if row.rows and row.table_name not in MOVED}
    return PlannedErasure(going, erased_by)
