"""Optimizing: an owner's facts in fewer sentences, shown before it is done, and done only if nothing changed.

The rules are those of condensing in the background: an answer accounts for each fact that it was shown, a
sentence holds most words and all numbers of its parts, and facts that people worded or judged stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID, uuid4, uuid5

from strandline.pipelines.facts.condense import MAX_LOADED_FACTS, may_condense, most_alike, put_in_place
from strandline.pipelines.facts.recording import lock_registered
from strandline.pipelines.models.answers import CondensedFact, parse_condense
from strandline.pipelines.models.contract import CondenseTask, ModelAnswer, NumberedFact, TextModel
from strandline.producers.model_calls import PaidCall, Payer, ask_model
from strandline.schemas.errors import ConflictError, UnknownPipelineError
from strandline.schemas.postgres.operations import Operation, Run, fetch
from strandline.schemas.queries.conversation.read import ServingGeneration
from strandline.schemas.queries.derived.capture import NewestFacts, NewestFactsRow
from strandline.schemas.queries.derived.facts_merge import (
    CondensableFacts,
    CondensableFactsRow,
    RecordCondensation,
)
from strandline.schemas.queries.derived.generations import FindGeneration
from strandline.schemas.values.lanes import FACTS, DerivationKeys

# How many live facts are counted and compared; far more than workers let an owner have.
MAX_COMPARED_FACTS = 10_000

# The text model of a derivation, from the config and the prompts of its recipe.
BuildModel = Callable[[Mapping[str, Any], Mapping[str, str]], TextModel]


@dataclass(frozen=True, slots=True)
class MergedFacts:
    """One sentence in place of several facts: their ids and texts are its parts."""

    text: str
    topics: tuple[str, ...]
    fact_ids: tuple[UUID, ...]
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Optimization:
    """A proposal to say an owner's facts in fewer sentences; nothing has changed yet.

    Attributes:
        merged: the sentences, with the facts that each replaces; empty if nothing can be merged.
        facts_before, facts_after: how many live facts there are, and how many there would be.
        tokens_before, tokens_after: the tokens of their texts.
        model: the model that proposed it.
    """

    merged: tuple[MergedFacts, ...]
    facts_before: int
    facts_after: int
    tokens_before: int
    tokens_after: int
    model: str
    prompt_hash: str = field(repr=False)
    id: UUID = field(repr=False)
    keys: DerivationKeys = field(repr=False)
    compared: frozenset[tuple[UUID, bytes]] = field(repr=False)


def propose_optimization(
    payer: Payer, build_model: BuildModel, count_text: Callable[[str], int]
) -> Operation[Optimization]:
    """Ask the model of the derivation that serves for sentences that hold several facts.

    Raises:
        UnknownPipelineError: no worker has registered facts in this database.
        BudgetError: the namespace has used up its budget.
        ModelError: the model failed, or its answer would lose facts.
    """
    shard_key, proposal_id = payer.shard_key, uuid4()
    serving = yield from fetch(ServingGeneration(shard_key=shard_key, pipeline=FACTS))
    if not serving:
        raise UnknownPipelineError("No worker has registered the pipeline 'facts' in this database.")
    keys = DerivationKeys(shard_key=shard_key, generation_id=serving[0].generation_id)
    live = yield from fetch(NewestFacts(**keys, limit=MAX_COMPARED_FACTS))
    facts = most_alike((yield from fetch(CondensableFacts(**keys, limit=MAX_LOADED_FACTS))))
    (generation,) = yield from fetch(FindGeneration(generation_id=keys["generation_id"]))
    answer: ModelAnswer | None = None
    if len(facts) > 1:
        numbered = tuple(NumberedFact(n, fact.text, fact.said_at) for n, fact in enumerate(facts, 1))
        model = yield Run(lambda: build_model(json.loads(generation.config), json.loads(generation.prompts)))
        task, characters = CondenseTask(numbered, max(1, len(live) // 2)), sum(len(f.text) for f in numbered)
        call = PaidCall("optimize", "condense", partial(model.answer, task), characters, proposal_id)
        answer = yield from ask_model(payer, call)
    proposed = () if answer is None else parse_condense(answer.text, len(facts))
    merged = tuple(one for one in (_merge(sentence, facts) for sentence in proposed) if one is not None)
    before = sum(count_text(fact.text) for fact in live)
    saved = sum(sum(map(count_text, one.parts)) - count_text(one.text) for one in merged)
    return Optimization(
        merged=merged,
        facts_before=len(live),
        facts_after=len(live) - sum(len(one.fact_ids) - 1 for one in merged),
        tokens_before=before,
        tokens_after=before - saved,
        model="" if answer is None else answer.model,
        prompt_hash="" if answer is None else answer.prompt_hash,
        id=proposal_id,
        keys=keys,
        compared=_snapshot(live),
    )


def apply_optimization(optimization: Optimization) -> Operation[None]:
    """Put the sentences in the place of their parts, all or none; the caller has a transaction.

    Raises:
        ConflictError: a fact was added, changed or removed since, or another derivation serves.
    """
    keys = optimization.keys
    facts = yield from lock_registered(keys["shard_key"])
    live = yield from fetch(NewestFacts(**keys, limit=MAX_COMPARED_FACTS))
    condensable = yield from fetch(CondensableFacts(**keys, limit=MAX_LOADED_FACTS))
    parts = {fact_id for one in optimization.merged for fact_id in one.fact_ids}
    is_unchanged = _snapshot(live) == optimization.compared and parts <= {row.fact_id for row in condensable}
    if facts.serving.keys != keys or not is_unchanged:
        raise _change_error()
    for place, one in enumerate(optimization.merged, 1):
        fact_id = uuid5(optimization.id, f"condense-{place}")
        sentence = CondensedFact(text=one.text, facts=(), topics=one.topics)
        answered = optimization.model, optimization.prompt_hash
        if not (yield from put_in_place(keys, fact_id, optimization.id, sentence, one.fact_ids, answered)):
            raise _change_error()
    yield from fetch(
        RecordCondensation(
            **keys,
            batch_id=optimization.id,
            outcome="applied" if optimization.merged else "unchanged",
            facts_before=optimization.facts_before,
            facts_after=optimization.facts_after,
            reason=None,
        )
    )


def _merge(sentence: CondensedFact, facts: list[CondensableFactsRow]) -> MergedFacts | None:
    parts = [facts[number - 1] for number in sentence.facts]
    if not may_condense(sentence.text, parts):
        return None
    return MergedFacts(
        sentence.text,
        sentence.topics,
        tuple(part.fact_id for part in parts),
        tuple(part.text for part in parts),
    )


def _snapshot(live: list[NewestFactsRow]) -> frozenset[tuple[UUID, bytes]]:
    return frozenset((fact.fact_id, fact.fingerprint) for fact in live)


def _change_error() -> ConflictError:
    return ConflictError(
        "The facts have changed since the proposal was made; nothing was changed. Ask for a new one with"
        " optimize().",
        for_clients="The facts have changed since the proposal was made; nothing was changed. Ask again.",
    )
