"""Plans a replay with the code that carries it out: the batches it covers, and their model calls.

In place, only batches without a stored answer call the model again; a new generation calls it for everything.
Batches are formed as in a lane with all of its work due at once. The output of extract is not known before;
the candidates of the serving generation take its place.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never
from uuid import UUID, uuid4

from strandline.pipelines.engine.batches import MAX_BATCH_EVENTS, read_batch, stored_answers
from strandline.pipelines.engine.dead_letters import DeadLetter, list_dead_letters
from strandline.pipelines.engine.stage import Batch, RawAnswer, Stage
from strandline.pipelines.generations.registry import Generation
from strandline.pipelines.replay.records import OWNERS_PER_PAGE, Selection, each_owner
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.generations import OwnersAfter
from strandline.schemas.queries.derived.replay import (
    DerivableEvents,
    DerivedCandidates,
    EventSizes,
    LaneStates,
    SelectedBatches,
    SelectedBatchesRow,
    SelectedOwners,
)
from strandline.schemas.values.lanes import MERGE_STAGE, Lane, pipeline_named

Stages = Mapping[str, Stage[Any, Any]]


@dataclass(slots=True)
class Plan:
    """The work of a replay: events derived or batches compared, and model calls and their tokens by stage."""

    events: int = 0
    tokens: int = 0
    batches: int = 0
    stored: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    asked_tokens: Counter[str] = field(default_factory=Counter)

    def ask(self, stage: str, calls: int, tokens: int) -> None:
        self.calls[stage] += calls
        self.asked_tokens[stage] += tokens if calls else 0


@dataclass(frozen=True, slots=True)
class _Due:
    event_id: UUID
    tokens: int


def lacks_answers(stage: Stage[Any, Any], batch: Batch, work: Any, answers: Mapping[str, RawAnswer]) -> bool:
    """Whether a batch cannot be derived again from stored answers."""
    return len(answers) < len(stage.calls(batch, work))


def fits(letter: DeadLetter, selection: Selection) -> bool:
    """Whether a dead letter is of the user and the time that are selected."""
    return (
        (selection.user_id is None or letter.user_id == selection.user_id)
        and (selection.since is None or letter.flushed_at >= selection.since)
        and (selection.until is None or letter.flushed_at < selection.until)
    )


def dead_letters_of(database: Database, generation: Generation, selection: Selection) -> list[DeadLetter]:
    letters = list_dead_letters(
        database,
        namespace=selection.namespace,
        session_id=selection.session_id,
        pipeline=generation.pipeline,
    )
    return [
        letter
        for letter in letters
        if letter.generation_id == generation.generation_id and fits(letter, selection)
    ]


class Planner:
    """Plans replays of one generation, with its stages, in batches of the workers' token budget."""

    def __init__(self, database: Database, generation: Generation, stages: Stages, token_budget: int) -> None:
        self._database = database
        self._generation = generation
        self._pipeline = pipeline_named(generation.pipeline)
        self._stages = stages
        self._token_budget = token_budget
        self.plan = Plan()

    def in_place(self, selection: Selection) -> Plan:
        """Plan a replay in place: the batches it compares, and the model calls it repeats."""
        if selection.only_dead:
            for letter in dead_letters_of(self._database, self._generation, selection):
                lane = Lane(letter.shard_key, letter.scope_key, letter.generation_id, letter.stage)
                self._ask(lane, [_Due(letter.event_id, letter.tokens)])
            return self.plan
        selected = partial(SelectedOwners, **selection.whose, limit=OWNERS_PER_PAGE)
        for shard_key in each_owner(self._database, lambda after: selected(after=after)):
            self._compare(shard_key, selection)
        return self.plan

    def anew(self) -> Plan:
        """Plan a new generation, with the settings that its stages are made with."""
        for shard_key in each_owner(
            self._database, lambda after: OwnersAfter(after=after, limit=OWNERS_PER_PAGE)
        ):
            self._derive(shard_key)
        return self.plan

    def _compare(self, shard_key: UUID, selection: Selection) -> None:
        generation_id, stage = self._generation.generation_id, self._pipeline.entry_stage
        rows = self._database.fetch(
            SelectedBatches(**selection.params, shard_key=shard_key, generation_id=generation_id, stage=stage)
        )
        # Owners whose messages retention removed are not compared.
        rows = [row for row in rows if not row.is_removed]
        match self._pipeline.derives:
            case "states":
                for scope_key in dict.fromkeys(row.scope_key for row in rows):
                    self._compare_states(Lane(shard_key, scope_key, generation_id, stage))
            case "chunks":
                for lane, event_ids in self._events_without_answers(shard_key, stage, rows).items():
                    self._ask(lane, self._due(shard_key, event_ids))
            case "facts":
                # They are only compared: facts merged from a lost answer stay.
                self._events_without_answers(shard_key, stage, rows)
            case "nothing":
                pass  # nothing is handed over twice
            case derived:
                assert_never(derived)

    def _events_without_answers(
        self, shard_key: UUID, stage: str, rows: Sequence[SelectedBatchesRow]
    ) -> Mapping[Lane, list[UUID]]:
        """Count the batches, and give the events of those whose answers are gone, by lane."""
        events: dict[Lane, list[UUID]] = defaultdict(list)
        for row in rows:
            lane = Lane(shard_key, row.scope_key, self._generation.generation_id, stage)
            if not self._is_stored(lane, row.batch_id, row.event_ids):
                events[lane] += row.event_ids
        return events

    def _compare_states(self, lane: Lane) -> None:
        rows = self._database.fetch(LaneStates(**lane.state_keys))
        for place, row in enumerate(rows):
            if not row.is_removed and not self._is_stored(lane, row.batch_id, row.event_ids):
                later = [event_id for folded in rows[place:] for event_id in folded.event_ids]
                self._ask(lane, self._due(lane.shard_key, later))
                return

    def _is_stored(self, lane: Lane, batch_id: UUID, event_ids: Sequence[UUID]) -> bool:
        batch = Batch(lane, batch_id, ())
        answers = stored_answers(self._database, batch)
        stored = bool(answers)
        if not stored:
            batch = read_batch(self._database, lane, batch_id, list(event_ids))
            stage = self._stages[lane.stage]
            stored = not lacks_answers(stage, batch, stage.load(self._database, batch), answers)
        self.plan.batches += 1
        self.plan.stored += stored
        return stored

    def _due(self, shard_key: UUID, event_ids: Sequence[UUID]) -> list[_Due]:
        rows = self._database.fetch(EventSizes(shard_key=shard_key, event_ids=list(event_ids)))
        return [_Due(row.event_id, row.tokens) for row in rows]

    def _derive(self, shard_key: UUID) -> None:
        pipeline = self._pipeline
        lanes: dict[UUID, list[_Due]] = defaultdict(list)
        owned = self._generation.recipe.entry_scope == "owner"
        derivable = DerivableEvents(
            shard_key=shard_key, pipeline=pipeline.name, last_stage=pipeline.last_stage, by_owner=owned
        )
        for row in self._database.fetch(derivable):
            lanes[shard_key if owned else row.session_key].append(_Due(row.event_id, row.tokens))
            self.plan.events += 1
            self.plan.tokens += row.tokens
        for scope_key, due in lanes.items():
            lane = Lane(shard_key, scope_key, self._generation.generation_id, pipeline.entry_stage)
            self.plan.batches += self._ask(lane, due)
        if pipeline.derives == "facts":
            self._merge(shard_key)

    def _ask(self, lane: Lane, due: Sequence[_Due]) -> int:
        stage = self._stages[lane.stage]
        batches = list(_batches(due, self._token_budget))
        for events in batches:
            batch = read_batch(self._database, lane, uuid4(), [event.event_id for event in events])
            calls = len(stage.calls(batch, stage.load(self._database, batch)))
            self.plan.ask(lane.stage, calls, sum(event.tokens for event in batch.events))
        return len(batches)

    def _merge(self, shard_key: UUID) -> None:
        rows = self._database.fetch(DerivedCandidates(shard_key=shard_key))
        by_event = {row.event_id: row for row in rows}
        known: set[str] = set()
        due = [_Due(row.event_id, max(1, sum(map(len, row.all_texts)) // 4)) for row in rows]
        for events in _batches(due, self._token_budget):
            texts = [text for event in events for text in by_event[event.event_id].texts]
            words = {word for text in texts for word in query_lexemes(text)}
            calls = int(len(texts) > 1 or bool(words & known))
            self.plan.batches += 1
            self.plan.ask(MERGE_STAGE, calls, sum(by_event[event.event_id].tokens for event in events))
            known |= words


def _batches(due: Iterable[_Due], token_budget: int) -> Iterator[list[_Due]]:
    batch: list[_Due] = []
    for event in due:
        spent = sum(other.tokens for other in batch)
        if batch and (len(batch) == MAX_BATCH_EVENTS or spent + event.tokens > token_budget):
            yield batch
            batch = []
        batch.append(event)
    if batch:
        yield batch
