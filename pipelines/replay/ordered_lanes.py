"""Ordered lanes of what serves: their states are folded again, and put right under the lane's lock.

States are folded without the lock, since that may take long.  What a worker wrote meanwhile is seen when the
lock is held: it was folded onto a state that is about to change, so it is folded again after it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from uuid import UUID

from strandline.pipelines.admission import admit
from strandline.pipelines.engine.batches import read_batch, stored_answers
from strandline.pipelines.engine.stage import OrderedStage
from strandline.pipelines.generations.registry import Generation
from strandline.pipelines.replay.filling import make_due
from strandline.pipelines.replay.planning import lacks_answers
from strandline.pipelines.replay.records import Selection
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.replay import (
    LaneStates,
    LaneStatesRow,
    OpenLane,
    RewriteState,
    UnfoldFrom,
)
from strandline.schemas.queries.work.dead_letters import ReopenLane
from strandline.schemas.values.lanes import Lane


@dataclass(frozen=True, slots=True)
class Folding:
    """What became of a lane; the names are those of ``InPlace``."""

    batches: int = 0
    same: int = 0
    rewritten: int = 0
    asked_again: int = 0
    made_due: int = 0
    archived: int = 0


@dataclass(frozen=True, slots=True)
class _Refolded:
    """A state as it is stored, and as it is made now."""

    ordinal: int
    batch_id: UUID
    stored: str
    derived: str
    is_base: bool = False

    @property
    def is_same(self) -> bool:
        return bool(json.loads(self.derived) == json.loads(self.stored))

    def is_in(self, row: LaneStatesRow) -> bool:
        return (row.ordinal, row.batch_id, row.state) == (self.ordinal, self.batch_id, self.stored)


def fill_lane(database: Database, generation: Generation, lane: Lane, selection: Selection) -> Folding:
    """Make due the events that the lane has not seen, and fold it again from its beginning, in log order.

    One transaction, which locks the lane first: no worker folds later events before those made due here.

    Raises:
        ErasedError: the owner was erased.
    """
    with database.transaction() as tx:
        tx.run(admit(lane.shard_key))
        tx.fetch(OpenLane(**lane.keys))
        tx.fetch(ReopenLane(**lane.keys, seize=True))
        events, _tokens = make_due(tx, generation, lane.shard_key, selection, lane.scope_key)
        if not events:
            return Folding()
        states = tx.fetch(LaneStates(**lane.state_keys))
        tx.fetch(UnfoldFrom(**lane.keys, ordinal=states[0].ordinal if states else None))
    return Folding(batches=len(states), asked_again=len(states), made_due=events)


def put_right(database: Database, lane: Lane, stage: OrderedStage) -> Folding:
    """Fold a lane again from its first state, each batch as it was, and rewrite the states that differ.

    What was folded onto a state that differs is due again, if it was not folded again here; so is what comes
    from the first batch on whose answer is gone.
    """
    rows = database.fetch(LaneStates(**lane.state_keys))
    refolded = _fold_again(database, lane, stage, rows)
    lacking = rows[len(refolded)].batch_id if len(refolded) < len(rows) else None
    if lacking is None and all(one.is_same for one in refolded):
        bases = sum(one.is_base for one in refolded)
        return Folding(batches=len(refolded) - bases, same=len(refolded) - bases, archived=bases)
    return _settle(database, lane, refolded, lacking)


def _fold_again(
    database: Database, lane: Lane, stage: OrderedStage, rows: Sequence[LaneStatesRow]
) -> list[_Refolded]:
    """The states as they are made now, up to the first batch whose answer is gone; nothing is written."""
    refolded: list[_Refolded] = []
    state: str | None = None
    for row in rows:
        if row.is_removed:
            # Retention has removed messages of it: it is the base of what follows.
            state = row.state
            refolded.append(_Refolded(row.ordinal, row.batch_id, row.state, row.state, is_base=True))
            continue
        batch = read_batch(database, lane, row.batch_id, row.event_ids)
        work = stage.load_onto(state, database, batch)
        answers = stored_answers(database, batch)
        if lacks_answers(stage, batch, work, answers):
            break
        new_state = stage.effect(batch, work, answers)
        state = row.state if new_state is None else new_state
        refolded.append(_Refolded(row.ordinal, row.batch_id, row.state, state))
    return refolded


def _settle(database: Database, lane: Lane, refolded: Sequence[_Refolded], lacking: UUID | None) -> Folding:
    """Under the lane's lock, taken from a holder who may have begun with a state that changes now.

    What others changed since the states were read stays, and what was not folded again here is due again.
    """
    with database.transaction() as tx:
        tx.run(admit(lane.shard_key))
        tx.fetch(ReopenLane(**lane.keys, seize=True))
        rows = tx.fetch(LaneStates(**lane.state_keys))
        pairs = takewhile(lambda pair: pair[0].is_in(pair[1]), zip(refolded, rows, strict=False))
        kept = [one for one, _row in pairs]
        differing = [one for one in kept if not one.is_same]
        for one in differing:
            tx.fetch(RewriteState(**lane.state_keys, batch_id=one.batch_id, state=one.derived))
        beyond = rows[len(kept) :]
        is_lacking = bool(beyond) and beyond[0].batch_id == lacking
        is_built_on = bool(kept) and not kept[-1].is_same
        if is_lacking or is_built_on:
            tx.fetch(UnfoldFrom(**lane.keys, ordinal=beyond[0].ordinal if beyond else None))
    again = 1 if is_lacking else len(beyond) if is_built_on else 0
    counts = {"same": len(kept) - len(differing), "rewritten": len(differing), "asked_again": again}
    return Folding(batches=sum(counts.values()), **counts)
