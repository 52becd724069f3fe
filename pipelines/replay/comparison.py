"""Compares two generations of a pipeline, owner by owner, before one replaces the other."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never
from uuid import UUID

from strandline.pipelines.generations.registry import Generation, find_kept, find_serving
from strandline.pipelines.replay.records import OWNERS_PER_PAGE, Selection, each_owner
from strandline.schemas.errors import ReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.replay import CompareFacts, CompareStates, OwnerNames, SelectedOwners
from strandline.schemas.values.lanes import pipeline_named


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that only one derivation has (``added``, ``gone``), or that differs (``changed``)."""

    change: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class StateChange:
    """The state of one lane in both; of a summary, its text.  ``session_id`` is empty for an owner's."""

    session_id: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class OwnerDiff:
    """The differences of one owner; ``same`` counts the pieces that agree."""

    namespace: str
    user_id: str | None
    session_id: str
    same: int
    facts: tuple[FactChange, ...] = ()
    states: tuple[StateChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Diff:
    """Two generations of a pipeline: totals, and the owners for whom something differs."""

    pipeline: str
    old: int
    new: int
    totals: dict[str, int] = field(default_factory=dict)
    owners: tuple[OwnerDiff, ...] = ()


def compare_generations(
    database: Database,
    new_id: int,
    old_id: int | None = None,
    *,
    namespace: str | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
    max_owners: int = 100,
) -> Diff:
    """Compare one generation with another: the serving one, unless another is named.

    ``max_owners`` bounds how many owners are listed; the totals cover all.

    Raises:
        ReplayError: there is no such generation, they are of two pipelines, or nothing can be compared.
    """
    old, new = _pair(database, new_id, old_id)
    totals: Counter[str] = Counter()
    owner_diffs: list[OwnerDiff] = []
    selection = Selection(namespace=namespace, user_id=user_id, session_id=session_id)
    asked = partial(SelectedOwners, **selection.whose, limit=OWNERS_PER_PAGE)
    for shard_key in each_owner(database, lambda after: asked(after=after)):
        owner = _owner(database, new.pipeline, old.generation_id, new.generation_id, shard_key)
        totals.update(change.change for change in owner.facts)
        totals.update("changed" for _state in owner.states)
        totals["same"] += owner.same
        if (owner.facts or owner.states) and len(owner_diffs) < max_owners:
            owner_diffs.append(owner)
    return Diff(new.pipeline, old.generation_id, new.generation_id, dict(totals), tuple(owner_diffs))


def _pair(database: Database, new_id: int, old_id: int | None) -> tuple[Generation, Generation]:
    new = find_kept(database, new_id)
    old = find_serving(database, new.pipeline) if old_id is None else find_kept(database, old_id)
    if old.generation_id == new.generation_id:
        why = "serves, so it would be" if old_id is None else "would be"
        raise ReplayError(
            f"Generation {new_id} of {new.pipeline} {why} compared with itself. Name another one of that"
            f" pipeline: strandline generations diff {new_id} --against GENERATION;"
            " `strandline generations list` lists them.",
            for_clients="It would be compared with itself; name another of its pipeline in `against`.",
        )
    if old.pipeline != new.pipeline:
        raise ReplayError(
            f"Generation {new_id} belongs to {new.pipeline}, and {old_id} to {old.pipeline};"
            " only generations of one pipeline can be compared.",
            for_clients="The two generations are not of one pipeline, so they cannot be compared.",
        )
    return old, new


def _owner(database: Database, pipeline: str, old: int, new: int, shard_key: UUID) -> OwnerDiff:
    name = database.fetch(OwnerNames(shard_keys=[shard_key]))[0]
    whose = OwnerDiff(name.namespace, name.user_id, name.session_id, 0)
    match pipeline_named(pipeline).derives:
        case "chunks" | "nothing":
            # Chunks hold the same messages; the hits of questions differ.
            return whose
        case "facts":
            rows = database.fetch(CompareFacts(shard_key=shard_key, old=old, new=new))
            changes = tuple(FactChange(**row._asdict()) for row in rows if row.change != "same")
            return replace(whose, same=len(rows) - len(changes), facts=changes)
        case "states":
            states = [
                StateChange(row.session_id, _text(row.before), _text(row.after))
                for row in database.fetch(CompareStates(shard_key=shard_key, old=old, new=new))
            ]
            differing = tuple(state for state in states if state.before != state.after)
            return replace(whose, same=len(states) - len(differing), states=differing)
        case derived:
            assert_never(derived)


def _text(state: str | None) -> str | None:
    if state is None:
        return None
    value = json.loads(state)
    return str(value["text"]) if isinstance(value, dict) and "prompt_hash" in value else state
