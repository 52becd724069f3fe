"""Merge: the second stage of facts.  Folds candidates into the known facts, on the owner's lane.

The lane is serial, so two sessions of one user never race; a model sees the candidates with the known facts
that they may concern, and sorts them into new, changing, ending and known ones.  Facts are never
replaced wholesale: each change is one revision with its provenance.  People's edits come first: candidates
that a tombstone holds back are dropped, before the model sees them or, if the person was quicker than the
model, when its answer is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import ClassVar

from strandline.pipelines.audit.appending import Act, append_owners_act
from strandline.pipelines.capture import load_capture
from strandline.pipelines.engine.parts import FURTHER, in_parts, items_of, split_name, steps_in_order
from strandline.pipelines.engine.stage import Batch, Call, RawAnswer
from strandline.pipelines.facts.condense import condense, condense_call, plan_condensing
from strandline.pipelines.facts.folding import (
    Candidate,
    Fold,
    MergeWork,
    held_back_by,
    keep_allowed,
    related_facts,
    tombstones_about,
)
from strandline.pipelines.facts.instructions import (
    CarriedOut,
    carry_out,
    instruction_call,
    load_instructions,
    read_changes,
)
from strandline.pipelines.models.answers import FEW_ITEMS, MergeOperation, ask, open_numbers, parse_merges
from strandline.pipelines.models.contract import MergeTask, NumberedFact, TextModel
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.queries.derived.capture import WithholdCandidate
from strandline.schemas.queries.derived.facts_edit import FactsAsTheyAre
from strandline.schemas.queries.derived.facts_merge import (
    DropCandidate,
    NoteFactsChange,
    PendingCandidates,
    RelatedFactsRow,
)
from strandline.schemas.values.acts.acting import WORKER
from strandline.schemas.values.lanes import MERGE_STAGE, Lane
from strandline.schemas.values.normal_form import fingerprint


@dataclass(frozen=True, slots=True)
class Decided:
    """The model's decisions on the candidates and, if facts are condensed, on those."""

    operations: tuple[MergeOperation, ...]
    condensed: RawAnswer | None
    instructed: tuple[CarriedOut, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeStage:
    """Folds all candidates of a batch into the owner's facts; condenses above ``max_facts`` (0: never)."""

    model: TextModel
    max_facts: int = 0
    name: ClassVar[str] = MERGE_STAGE

    def wait_seconds(self) -> float:
        return self.model.wait_seconds()

    def load(self, fetcher: Fetcher, batch: Batch) -> MergeWork:
        keys = batch.lane.derivation_keys
        rows = fetcher.fetch(PendingCandidates(**keys, event_ids=batch.event_ids))
        extracted = [Candidate(*row) for row in rows]
        tombstones = tombstones_about(fetcher, keys, extracted)
        numbers = [held_back_by(candidate, tombstones) for candidate in extracted]
        candidates = tuple(c for c, number in zip(extracted, numbers, strict=True) if number is None)
        return MergeWork(
            candidates=candidates,
            known=related_facts(fetcher, keys, candidates),
            dropped=tuple((c, n) for c, n in zip(extracted, numbers, strict=True) if n is not None),
            condensing=plan_condensing(fetcher, keys, batch, self.max_facts),
            capture=load_capture(fetcher, batch),
            instructions=load_instructions(fetcher, batch),
        )

    def calls(self, batch: Batch, work: MergeWork) -> Sequence[Call]:
        calls = []
        # One candidate and nothing known that has to do with it: there is nothing to decide.
        if work.candidates and len(work.candidates) + len(work.known) > 1:
            numbered = _number_facts(work.known), _number_facts(work.candidates)
            calls.append(self._call(work, _step(work), *numbered, is_alone=len(batch.events) == 1))
        if work.condensing is not None:
            calls.append(condense_call(self.model, work.condensing))
        calls += [instruction_call(self.model, instruction) for instruction in work.instructions]
        return calls

    def _call(
        self,
        work: MergeWork,
        step: str,
        known: tuple[NumberedFact, ...],
        candidates: tuple[NumberedFact, ...],
        *,
        is_alone: bool,
    ) -> Call:
        def follow(answer: RawAnswer) -> list[Call]:
            left = open_numbers(answer.body.decode())
            few = in_parts(step, [one for one in candidates if one.number in left], FEW_ITEMS, FURTHER)
            return [self._call(work, name, known, part, is_alone=is_alone) for name, part in few]

        def smaller() -> list[Call]:
            fewer = known[: -(-len(known) // 2)]
            some = in_parts(_showing(step, len(fewer)), candidates, -(-len(candidates) // 2))
            return [self._call(work, name, fewer, part, is_alone=True) for name, part in some]

        task = MergeTask(known, candidates, work.capture.switched_off)
        is_divisible = is_alone and max(len(known), len(candidates)) > 1
        return Call(step, partial(ask, self.model, task), follow, smaller if is_divisible else None)

    def effect(self, batch: Batch, work: MergeWork, answers: Mapping[str, RawAnswer]) -> Decided:
        condensing = work.condensing
        return Decided(
            _operations(work, answers),
            None if condensing is None else answers[condensing.step],
            tuple(read_changes(one, answers[one.step], work.capture.capture) for one in work.instructions),
        )

    def share(
        self, database: Database, batch: Batch, effect: Decided, check_lease: Callable[[Fetcher], None]
    ) -> None:
        """Carry out instructions: they change every derivation, so their transaction comes before."""
        if effect.instructed:
            check_lease(database)
            carry_out(database, batch.lane.shard_key, effect.instructed)

    def write(self, fetcher: Fetcher, batch: Batch, work: MergeWork, effect: Decided) -> list[Lane]:
        keys = batch.lane.derivation_keys
        fetcher.fetch(NoteFactsChange(shard_key=keys["shard_key"]))
        wordings = [op.text for op in effect.operations if op.text is not None]
        tombstones = tombstones_about(fetcher, keys, work.candidates, work.known, wordings)
        # Under the lane's lock people cannot change the known facts any more.
        rows = fetcher.fetch(FactsAsTheyAre(**keys, fact_ids=[fact.fact_id for fact in work.known]))
        as_they_are = {row.fact_id: row.fingerprint for row in rows}
        operations, dropped, refused = keep_allowed(work, effect.operations, tombstones, as_they_are)
        fold = Fold(fetcher, keys, batch.batch_id, work)
        for operation in operations:
            fold.apply(operation)
        # Which act keeps a candidate from becoming a fact is recorded, so that no merge takes it up again.
        for number in fold.withheld:
            candidate = work.candidates[number - 1]
            fetcher.fetch(WithholdCandidate(**keys, **candidate.place, number=work.capture.number))
        for candidate, number in (*work.dropped, *dropped):
            fetcher.fetch(DropCandidate(**keys, **candidate.place, number=number))
        if work.condensing is not None and effect.condensed is not None:
            condense(fetcher, keys, batch.batch_id, work.condensing, effect.condensed)
        if refused := refused + sum(one.refused for one in effect.instructed):
            act = Act.here("facts.doubt", actor=WORKER, count=refused)
            fetcher.run(append_owners_act(keys["shard_key"], act))
        return []


def _step(work: MergeWork) -> str:
    """The call's name, a digest of its inputs.

    An answer names facts by their numbers.  If facts are removed before it is applied, the numbers mean other
    facts, and a new answer is requested.
    """
    shown = blake2b(digest_size=8)
    for text in [fact.text for fact in work.known] + [candidate.text for candidate in work.candidates]:
        shown.update(fingerprint(text))
    return f"merge-{shown.hexdigest()}"


def _showing(step: str, known_count: int) -> str:
    """The name of a call that shows so many of the known facts."""
    whole, mark, numbers = split_name(step)
    return f"{whole.partition('.')[0]}.{known_count}{mark}{numbers}"


def _operations(work: MergeWork, answers: Mapping[str, RawAnswer]) -> tuple[MergeOperation, ...]:
    whole, candidates = _step(work), _number_facts(work.candidates)

    def candidates_of(step: str) -> tuple[NumberedFact, ...]:
        name, mark, numbers = split_name(step)
        if name.partition(".")[0] != whole:
            return ()
        return items_of(numbers, candidates) if mark else candidates

    def read(step: str) -> tuple[str, int, list[int]]:
        _, _, shown = split_name(step)[0].partition(".")
        numbers = [one.number for one in candidates_of(step)]
        return answers[step].body.decode(), int(shown or len(work.known)), numbers

    return parse_merges(map(read, steps_in_order(answers, candidates_of)), len(candidates))


def _number_facts(facts: Sequence[Candidate | RelatedFactsRow]) -> tuple[NumberedFact, ...]:
    return tuple(NumberedFact(number, fact.text, fact.said_at) for number, fact in enumerate(facts, 1))
