"""Decides which generation serves an owner: switching owner by owner, promoting, rolling back, pruning."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from strandline.pipelines.admission import admit
from strandline.pipelines.audit.appending import Act, append_query
from strandline.pipelines.facts.edits import apply_fact_events, open_fact_lanes
from strandline.pipelines.generations.registry import Generation, find
from strandline.pipelines.older_transactions import older_have_ended
from strandline.pipelines.replay.records import OWNERS_PER_PAGE, each_owner, replays, report
from strandline.schemas.errors import ErasedError, ReplayError, UnknownReplayError
from strandline.schemas.postgres.database import Database, Transaction
from strandline.schemas.queries.audit.audit import AppendAct
from strandline.schemas.queries.derived.generations import (
    BeginServing,
    EndServing,
    ForgetOwnersGenerations,
    LockPipeline,
    LoneFacts,
    NoteFormer,
    OwnersWithRows,
    PauseOwner,
    PruneLanes,
    PruneOwner,
    RetireGeneration,
    RingGeneration,
    RingOwner,
    SwitchOwner,
)
from strandline.schemas.values.identity import ALL_NAMESPACES
from strandline.schemas.values.lanes import FACTS, pipeline_named

logger = logging.getLogger("strandline.generations")

PAUSE_SECONDS = 10.0


def switch_owner(database: Database, generation: Generation, shard_key: UUID) -> bool:
    """Let a generation serve one owner, if it covers everything that the current one does; False if not.

    People's edits of facts are applied once more first, under the locks that keep new ones out.  An owner who
    was erased has nothing that is to be switched.
    """
    generation_id, last_stage = generation.generation_id, pipeline_named(generation.pipeline).last_stage
    is_switched = False
    with suppress(ErasedError):
        if generation.pipeline == FACTS:
            database.run(open_fact_lanes(shard_key))
        with database.transaction() as tx:
            tx.run(admit(shard_key))
            if generation.pipeline == FACTS:
                tx.run(apply_fact_events(shard_key, generation_id))
            switch = SwitchOwner(shard_key=shard_key, generation_id=generation_id, last_stage=last_stage)
            is_switched = bool(tx.fetch(switch))
            if is_switched:
                tx.fetch(RingOwner(shard_key=shard_key, generation_id=generation_id))
    return is_switched


def pause_owner(database: Database, pipeline: str, shard_key: UUID) -> None:
    """Let an owner who talks all the time catch up in another generation: only live work is still missing."""
    with suppress(ErasedError), database.transaction() as tx:
        tx.run(admit(shard_key))
        # A concurrent promotion or roll-back would miss this owner.
        tx.fetch(LockPipeline(pipeline=pipeline))
        tx.fetch(PauseOwner(shard_key=shard_key, pipeline=pipeline, seconds=PAUSE_SECONDS))


def serve_everybody(database: Database, generation: Generation) -> None:
    """Let a generation serve all owners, in one transaction; the previous one is still fed.

    Raises:
        ReplayError: it is not fed, or serves already.
    """
    with database.transaction() as tx:
        tx.fetch(LockPipeline(pipeline=generation.pipeline))
        _serve(tx, generation)
        tx.fetch(_act("generations.serve", generation))
    logger.info("generation serves", extra={"action": "generation_serves", **_where(generation)})


def roll_back(database: Database, pipeline: str) -> Generation:
    """Return to the generation that served before, for all owners at once; returns that generation.

    While owners are still being switched, the switched ones go back.

    Raises:
        ReplayError: no earlier generation is kept.
    """
    with database.transaction() as tx:
        rows = tx.fetch(LockPipeline(pipeline=pipeline))
        serving = [row.generation_id for row in rows if row.state == "serving"]
        switched = tx.fetch(ForgetOwnersGenerations(pipeline=pipeline))
        if serving and any(row.generation_id not in serving for row in switched):
            generation = find(tx, serving[0])
        else:
            before = {
                row.served_until: row.generation_id
                for row in rows
                if row.state == "feeding" and row.served_until is not None
            }
            if not before:
                raise ReplayError(
                    f"No generation of {pipeline} that served before is kept, so there is nothing to roll"
                    " back to."
                    f" {_derive_anew(pipeline)}"
                )
            generation = find(tx, before[max(before)])
            if generation is not None:
                _serve(tx, generation)
        if generation is not None:
            tx.fetch(_act("generations.rollback", generation))
    if generation is None:
        raise ReplayError(
            f"The generation of {pipeline} that served before is gone. {_derive_anew(pipeline)}"
        )
    logger.info("rolled back", extra={"action": "generation_rolled_back", **_where(generation)})
    return generation


def prune(
    database: Database, generation_id: int, *, on_owners: Callable[[int], None] = lambda _owners: None
) -> int:
    """Delete a generation that does not serve, owner by owner; return how many events it had applied.

    Its row stays, as retired. If it was interrupted, prune again.

    Raises:
        ReplayError: it does not exist, it serves an owner, or its replay is running.
    """
    generation = find(database, generation_id)
    if generation is None:
        raise UnknownReplayError(
            f"Generation {generation_id} does not exist; `strandline generations list` lists them."
        )
    with database.transaction() as tx:
        tx.fetch(LockPipeline(pipeline=generation.pipeline))
        for replay in replays(tx, pipeline=generation.pipeline, unfinished=True):
            if replay.generation_id == generation_id and replay.kind == "new":
                if replay.is_alive:
                    raise ReplayError(
                        f"Replay {replay.replay_id} is deriving generation {generation_id}; stop it first."
                    )
                report(tx, replay, "done", {"phase": "given up"}, None)
        if not tx.fetch(RetireGeneration(generation_id=generation_id)):
            raise ReplayError(
                f"Generation {generation_id} of {generation.pipeline} serves; promote another one first, or"
                f" go back: strandline generations rollback --pipeline {generation.pipeline}."
            )
        tx.fetch(_act("generations.prune", generation))
    # Earlier flushes may still use it; most end in milliseconds.
    if not older_have_ended(database):
        raise ReplayError(
            "An older transaction has not ended; the generation is retired. Prune it again later."
        )
    applied = owners = 0
    for shard_key in each_owner(database, lambda after: OwnersWithRows(after=after, limit=OWNERS_PER_PAGE)):
        applied, owners = applied + prune_owner(database, shard_key, generation_id), owners + 1
        on_owners(owners)
    logger.info("generation pruned", extra={"action": "generation_pruned", **_where(generation)})
    return applied


def prune_owner(database: Database, shard_key: UUID, generation_id: int) -> int:
    """Delete everything that one owner has in a generation; returns how many receipts there were."""
    with database.transaction() as tx:
        # Apart, so that the other statements see a worker's writes until then.
        tx.fetch(PruneLanes(shard_key=shard_key, generation_id=generation_id))
        lone = tx.fetch(LoneFacts(shard_key=shard_key, generation_id=generation_id))
        fact_ids = [row.fact_id for row in lone]
        tx.fetch(NoteFormer(shard_key=shard_key, generation_id=generation_id, fact_ids=fact_ids))
        (receipts,) = tx.fetch(PruneOwner(shard_key=shard_key, generation_id=generation_id))
    return receipts.events


def _derive_anew(pipeline: str) -> str:
    return f"Derive a new one: strandline replay --new --pipeline {pipeline}."


def _serve(tx: Transaction, generation: Generation) -> None:
    pipeline, generation_id = generation.pipeline, generation.generation_id
    tx.fetch(EndServing(pipeline=pipeline, generation_id=generation_id))
    if not tx.fetch(BeginServing(generation_id=generation_id)):
        raise ReplayError(
            f"Generation {generation_id} of {pipeline} cannot serve: it is not fed. {_derive_anew(pipeline)}"
        )
    tx.fetch(ForgetOwnersGenerations(pipeline=pipeline))
    tx.fetch(RingGeneration(generation_id=generation_id, stages=list(pipeline_named(pipeline).stages)))


def _act(kind: str, generation: Generation) -> AppendAct:
    return append_query(ALL_NAMESPACES, Act.here(kind, detail=_where(generation)))


def _where(generation: Generation) -> dict[str, object]:
    return {"generation": generation.generation_id, "pipeline": generation.pipeline}
