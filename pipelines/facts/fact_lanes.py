"""The lanes by which an owner's facts are locked, in every derivation that is kept."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from strandline.pipelines.admission import admit, refuse_if_erased
from strandline.schemas.postgres.operations import Operation, check_owner_keys, fetch
from strandline.schemas.queries.derived.facts_edit import FactDerivations, LockFactLanes, OpenFactLanes
from strandline.schemas.values.lanes import MERGE_STAGE, DerivationKeys


@dataclass(frozen=True, slots=True)
class FactSet:
    """One owner's facts in one generation."""

    shard_key: UUID
    generation_id: int

    @property
    def keys(self) -> DerivationKeys:
        return {"shard_key": self.shard_key, "generation_id": self.generation_id}


def lock_facts(shard_key: UUID) -> Operation[tuple[list[FactSet], FactSet | None]]:
    """Lock an owner's facts for the rest of the transaction; returns the set of each generation, and the
    one that serves.

    While this waits for the locks, another derivation may begin, or start to serve; so they are looked up
    once all locks are held.

    Raises:
        ErasedError: the owner was erased.
    """
    yield from admit(shard_key)
    while True:
        locked = yield from fetch(LockFactLanes(shard_key=shard_key, stage=MERGE_STAGE))
        rows = yield from fetch(FactDerivations(shard_key=shard_key))
        if {row.generation_id for row in rows} <= {row.generation_id for row in locked}:
            break
        yield from open_fact_lanes(shard_key)
    fact_sets = [FactSet(shard_key, row.generation_id) for row in rows]
    serving = [FactSet(shard_key, row.generation_id) for row in rows if row.serving]
    return fact_sets, serving[0] if serving else None


def open_fact_lanes(shard_key: UUID) -> Operation[None]:
    """Make the rows that ``lock_facts`` locks, in a separate transaction before the one that locks them.

    In the same transaction, an uncommitted row would block others, which may hold locks that it waits for.

    Raises:
        ErasedError: the owner was erased.
    """
    (opened,) = yield from fetch(OpenFactLanes(shard_key=shard_key, stage=MERGE_STAGE))
    refuse_if_erased(opened.erasure)
    yield from check_owner_keys(shard_key, opened.first_data_key)
