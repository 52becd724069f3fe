"""Replaying in place: compares the serving memory with the effects of its stored answers, and corrects it.

Batches and answers are those of the first time, so no model is called and, if nothing differs, nothing is
written. By stage:

- *vectors*: the pieces of a batch are rewritten if they differ; a batch whose answer is gone is embedded
  again.
- *summary* and custom blocks: states are folded again from the first, and differing ones are rewritten; a
  summary whose answer is gone is folded again from there, by the model.
- *extract*: candidates that differ are counted, not replaced: facts were merged from them.
- *overflow* hands over missed events, and nothing twice.
- *merge* is not repeated: it decided on the facts known at the time. Only a new generation decides again.

A batch with messages removed by retention is left as it is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from datetime import date, datetime
from functools import partial
from itertools import takewhile
from typing import Any, Protocol, assert_never
from uuid import UUID

from strandline.pipelines.admission import admit
from strandline.pipelines.engine.batches import read_batch, stored_answers
from strandline.pipelines.engine.dead_letters import retry_dead_letter
from strandline.pipelines.engine.stage import Batch, OrderedStage, Stage
from strandline.pipelines.facts.extract import CandidateRows
from strandline.pipelines.generations.registry import Generation, find_serving, serving_generations
from strandline.pipelines.generations.stages import build
from strandline.pipelines.replay.filling import lanes_to_fill, make_due, refuse_truncated
from strandline.pipelines.replay.planning import dead_letters_of, lacks_answers
from strandline.pipelines.replay.records import OWNERS_PER_PAGE, Replay, Selection, begin, each_owner, report
from strandline.schemas.errors import ErasedError, ReplayError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.postgres.operations import Operation, fetch, find_owner_keys
from strandline.schemas.postgres.paging import query_with
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.conversation.search import InsertChunks
from strandline.schemas.queries.conversation.sessions import FindOwner
from strandline.schemas.queries.derived.generations import LockPipeline
from strandline.schemas.queries.derived.replay import (
    DeleteChunks,
    DigestChunks,
    DigestDerivedChunks,
    IsApplied,
    LaneStates,
    LaneStatesRow,
    LockLaneForReplay,
    OpenLane,
    RedoBatch,
    RewriteState,
    SelectedBatches,
    SelectedBatchesRow,
    SelectedOwners,
    StoredCandidates,
    StoredCandidatesRow,
    UnfoldFrom,
)
from strandline.schemas.queries.rows import ChunkDigestRow
from strandline.schemas.queries.work.dead_letters import ReopenLane
from strandline.schemas.sealed.values import keyed_array, keyed_tsvector
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_session, identify_user
from strandline.schemas.values.lanes import EXTRACT_STAGE, VECTORS_STAGE, DerivationKeys, Lane, pipeline_named


@dataclass(frozen=True, slots=True)
class InPlace:
    """The result of a replay in place.

    Attributes:
        batches: compared; ``same`` of them did not differ.
        rewritten: batches whose rows differed, and were rewritten.
        asked_again: batches without a stored answer, which are due again.
        kept: batches of facts without a stored answer, left as they are.
        differing: batches of facts whose candidates differ: only a new generation can follow.
        made_due: events that were neither due nor done; ``retried`` counts dead letters.
        archived: batches of messages that retention has removed, left as they are.
    """

    owners: int = 0
    batches: int = 0
    same: int = 0
    rewritten: int = 0
    asked_again: int = 0
    kept: int = 0
    differing: int = 0
    made_due: int = 0
    retried: int = 0
    archived: int = 0

    def plus(self, **counts: int) -> InPlace:
        return self + InPlace(**counts)

    def __add__(self, other: InPlace) -> InPlace:
        return InPlace(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class _Refolded:
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


def fill_lane(database: Database, generation: Generation, lane: Lane, selection: Selection) -> InPlace:
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
            return InPlace()
        states = tx.fetch(LaneStates(**lane.state_keys))
        tx.fetch(UnfoldFrom(**lane.keys, ordinal=states[0].ordinal if states else None))
    return InPlace(batches=len(states), asked_again=len(states), made_due=events)


def put_right(database: Database, lane: Lane, stage: OrderedStage) -> InPlace:
    """Fold a lane again from its first state, each batch as it was, and rewrite the states that differ.

    Events folded onto a differing state are due again, if not folded again here; so are events from the first
    batch on whose answer is gone.
    """
    rows = database.fetch(LaneStates(**lane.state_keys))
    refolded = _fold_again(database, lane, stage, rows)
    lacking = rows[len(refolded)].batch_id if len(refolded) < len(rows) else None
    if lacking is None and all(one.is_same for one in refolded):
        bases = sum(one.is_base for one in refolded)
        return InPlace(batches=len(refolded) - bases, same=len(refolded) - bases, archived=bases)
    return _settle(database, lane, refolded, lacking)


def _fold_again(
    database: Database, lane: Lane, stage: OrderedStage, rows: Sequence[LaneStatesRow]
) -> list[_Refolded]:
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


def _settle(database: Database, lane: Lane, refolded: Sequence[_Refolded], lacking: UUID | None) -> InPlace:
    """Settle under the lane's lock, taken from a holder who may have begun with a changing state.

    Others' changes since the states were read stay, and events not folded again here are due again.
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
    return InPlace(batches=sum(counts.values()), **counts)


def begin_in_place(database: Database, pipeline: str, selection: Selection) -> Replay:
    """Record a replay of what serves.

    Raises:
        ReplayError: nothing of the pipeline serves, or it would collide with another replay.
        ErasedError: the user or the session that is named was erased.
    """
    with database.transaction() as tx:
        tx.run(_admit_names(selection))
        tx.fetch(LockPipeline(pipeline=pipeline))
        generation_id = find_serving(tx, pipeline).generation_id
        return begin(tx, "in_place", pipeline, generation_id, selection)


def _admit_names(selection: Selection) -> Operation[None]:
    """Check that the named user or session was not erased: the record would keep the names."""
    namespace = selection.namespace or DEFAULT_NAMESPACE
    if selection.user_id is not None:
        yield from admit(identify_user(namespace, selection.user_id).shard_key)
    if selection.session_id is not None:
        keys = identify_session(namespace, selection.session_id, selection.user_id)
        rows = yield from fetch(FindOwner(directory_key=keys.directory_key))
        yield from admit(rows[0].owner_key if rows else keys.shard_key, keys.session_key)


def replay_in_place(
    database: Database,
    replay: Replay,
    settings: Settings,
    *,
    on_progress: Callable[[InPlace], None] = lambda _counts: None,
    stop: threading.Event | None = None,
) -> InPlace:
    """Run a replay in place to its end, or until ``stop`` is set.

    Raises:
        ReplayError: another generation serves now.
        ConfigurationError: the serving one cannot be built here.
    """
    generation = serving_generations(database).get(replay.pipeline)
    if generation is None or generation.generation_id != replay.generation_id:
        raise ReplayError(
            f"Generation {replay.generation_id} of {replay.pipeline} no longer serves. Check the one that"
            f" does: strandline replay --pipeline {replay.pipeline}."
        )
    run = _Run(database, generation, replay.selection, build(generation, settings))
    names = asdict(InPlace())
    run.counts = InPlace(**{name: replay.counts.get(name, 0) for name in names})
    try:
        ended = run.resume(replay, on_progress, stop or threading.Event())
    except BaseException:
        report(database, replay, "stopped", asdict(run.counts), None)
        raise
    report(database, replay, "done" if ended else "stopped", asdict(run.counts), None)
    return run.counts


class _Run:
    def __init__(
        self,
        database: Database,
        generation: Generation,
        selection: Selection,
        stages: Mapping[str, Stage[Any, Any]],
    ) -> None:
        self._database = database
        self._generation = generation
        self._selection = selection
        self._stages = stages
        self.counts = InPlace()

    def resume(self, replay: Replay, on_progress: Callable[[InPlace], None], stop: threading.Event) -> bool:
        if self._selection.only_dead:
            for letter in dead_letters_of(self._database, self._generation, self._selection):
                outcome = retry_dead_letter(self._database, letter).outcome
                self.counts = self.counts.plus(retried=int(outcome == "due"))
            return True
        selected = partial(SelectedOwners, **self._selection.whose, limit=OWNERS_PER_PAGE)
        owners = each_owner(self._database, lambda after: selected(after=after), replay.position)
        for shard_key in owners:
            if stop.is_set():
                return False
            with suppress(ErasedError):  # since the page was read: there is nothing left to look at
                self._owner(shard_key)
            if report(self._database, replay, "running", asdict(self.counts), shard_key):
                stop.set()
            on_progress(self.counts)
        return not stop.is_set()

    def _owner(self, shard_key: UUID) -> None:
        refuse_truncated(self._database, shard_key, "Nothing of this owner was checked.")
        match pipeline_named(self._generation.pipeline).derives:
            case "chunks":
                self._make_due(shard_key)
                for row in self._comparable(shard_key, VECTORS_STAGE):
                    self._chunks(shard_key, row)
            case "facts":
                self._make_due(shard_key)
                for row in self._comparable(shard_key, EXTRACT_STAGE):
                    self._candidates(shard_key, row)
            case "states":
                self._fill_lanes(shard_key)
                self._fold_lanes(shard_key)
            case "nothing":
                self._make_due(shard_key)
            case derived:
                assert_never(derived)
        self.counts = self.counts.plus(owners=1)

    def _make_due(self, shard_key: UUID, scope_key: UUID | None = None) -> None:
        """Make events due that were skipped, or flushed before the session fed the pipeline."""
        with self._database.transaction() as tx:
            tx.run(admit(shard_key))  # before it locks events, which an erasure deletes behind the fence
            events, _tokens = make_due(tx, self._generation, shard_key, self._selection, scope_key)
        self.counts = self.counts.plus(made_due=events)

    def _fill_lanes(self, shard_key: UUID) -> None:
        """The same for ordered lanes: a lane in which earlier events become due is folded again."""
        lanes = lanes_to_fill(self._database, self._generation, shard_key, self._selection)
        for scope_key, is_derived in lanes.items():
            if not is_derived:
                self._make_due(shard_key, scope_key)
                continue
            lane = self._lane(shard_key, scope_key, self._entry_stage)
            self.counts += fill_lane(self._database, self._generation, lane, self._selection)

    def _fold_lanes(self, shard_key: UUID) -> None:
        name = self._entry_stage
        stage = self._stages[name]
        if not isinstance(stage, OrderedStage):
            raise TypeError(f"stage {name!r} of an ordered pipeline does not fold its batches")
        for scope_key in dict.fromkeys(row.scope_key for row in self._batches(shard_key, name)):
            self.counts += put_right(self._database, self._lane(shard_key, scope_key, name), stage)

    def _comparable(self, shard_key: UUID, stage: str) -> Iterator[SelectedBatchesRow]:
        """The batches whose messages all exist; of the others, only the derived memory is left."""
        for row in self._batches(shard_key, stage):
            if row.is_removed:
                self.counts = self.counts.plus(archived=1)
            else:
                yield row

    def _batches(self, shard_key: UUID, stage: str) -> list[SelectedBatchesRow]:
        return self._database.fetch(
            SelectedBatches(
                **self._selection.params,
                shard_key=shard_key,
                generation_id=self._generation.generation_id,
                stage=stage,
            )
        )

    def _chunks(self, shard_key: UUID, row: SelectedBatchesRow) -> None:
        batch = self._batch(shard_key, row, VECTORS_STAGE)
        stage = self._stages[VECTORS_STAGE]
        work = stage.load(self._database, batch)
        answers = stored_answers(self._database, batch)
        if lacks_answers(stage, batch, work, answers):
            with self._database.transaction() as tx:
                redo = RedoBatch(**batch.lane.keys, batch_id=batch.batch_id)
                redone = tx.fetch(redo) if _lock_applied(tx, batch) else []
            self.counts = self.counts.plus(batches=1, asked_again=int(bool(redone)))
            return
        effect = stage.effect(batch, work, answers)
        keys = self._database.run(find_owner_keys(shard_key))
        with self._database.transaction() as tx:
            derived = _derived_chunks(effect, keys) if effect else None
            same = _is_same(tx, batch, DigestChunks(**_made_by(batch)), derived)
            if not same:
                tx.fetch(DeleteChunks(**_made_by(batch)))
                stage.write(tx, batch, work, effect)
        self.counts = self.counts.plus(batches=1, same=int(same), rewritten=int(not same))

    def _candidates(self, shard_key: UUID, row: SelectedBatchesRow) -> None:
        batch = self._batch(shard_key, row, EXTRACT_STAGE)
        stage = self._stages[EXTRACT_STAGE]
        work = stage.load(self._database, batch)
        answers = stored_answers(self._database, batch)
        if lacks_answers(stage, batch, work, answers):
            self.counts = self.counts.plus(batches=1, kept=1)
            return
        rows = stage.effect(batch, work, answers).rows
        derived = [] if rows is None else _derived_candidates(rows)
        with self._database.transaction() as tx:
            # A reset may have deleted its sources since it was read.
            same = not _lock_applied(tx, batch) or tx.fetch(StoredCandidates(**_made_by(batch))) == derived
        self.counts = self.counts.plus(batches=1, same=int(same), differing=int(not same))

    @property
    def _entry_stage(self) -> str:
        return pipeline_named(self._generation.pipeline).entry_stage

    def _lane(self, shard_key: UUID, scope_key: UUID, stage: str) -> Lane:
        return Lane(shard_key, scope_key, self._generation.generation_id, stage)

    def _batch(self, shard_key: UUID, row: SelectedBatchesRow, stage: str) -> Batch:
        lane = self._lane(shard_key, row.scope_key, stage)
        return read_batch(self._database, lane, row.batch_id, row.event_ids)


def _derived_chunks(chunks: InsertChunks, keys: OwnerKeys | None) -> Query[ChunkDigestRow]:
    values = dict(chunks.params)
    if keys is not None:
        values["lexemes"] = [keyed_tsvector(keys, text) for text in values["lexemes"]]
        values["speakers"] = [keyed_array(keys, text) for text in values["speakers"]]
    return query_with(DigestDerivedChunks, values)


def _derived_candidates(rows: CandidateRows) -> list[StoredCandidatesRow]:
    candidates = [
        StoredCandidatesRow(
            event_id=UUID(one["event_id"]),
            ordinal=one["ordinal"],
            session_key=UUID(one["session_key"]),
            text=one["text"],
            seqs=one["seqs"],
            topics=one["topics"],
            said_by=one["said_by"],
            about_date=None if one["about_date"] is None else date.fromisoformat(one["about_date"]),
            said_at=datetime.fromisoformat(one["said_at"]),
            model=rows["model"],
            prompt_hash=rows["prompt_hash"],
        )
        for one in json.loads(rows["candidates"])
    ]
    return sorted(candidates, key=lambda one: (one.event_id, one.ordinal))


class _Digest(Protocol):
    @property
    def pieces(self) -> int: ...
    @property
    def digest(self) -> str: ...


class _MadeBy(DerivationKeys):
    batch_id: UUID


def _made_by(batch: Batch) -> _MadeBy:
    return {**batch.lane.derivation_keys, "batch_id": batch.batch_id}


def _lock_applied(tx: Fetcher, batch: Batch) -> bool:
    """Keep others from writing in the batch's lane; False if the batch no longer counts as applied."""
    applied = IsApplied(shard_key=batch.lane.shard_key, batch_id=batch.batch_id)
    return bool(tx.fetch(LockLaneForReplay(**batch.lane.keys)) and tx.fetch(applied))


def _is_same(tx: Fetcher, batch: Batch, of_stored: Query[_Digest], of_derived: Query[_Digest] | None) -> bool:
    """Whether the stored rows of a batch equal its answers' present rows; only read.

    Postgres digests both, so that its own conversions (half floats, word vectors) make no difference.
    """
    if not _lock_applied(tx, batch):
        # A reset has deleted its sources since it was read.
        return True
    (stored,) = tx.fetch(of_stored)
    if of_derived is None:
        return stored.pieces == 0
    return tx.fetch(of_derived) == [stored]
