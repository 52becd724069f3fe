"""The pipelines that run, as data: registered by workers and commands, read by every flush."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypedDict, cast

from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.generations.recipe import Recipe, differences
from strandline.pipelines.models.factory import REDACTION_KEYS
from strandline.schemas.errors import ReplayError, UnknownReplayError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.derived.generations import (
    FindGeneration,
    KeptGenerations,
    RegisterGeneration,
    ServingGenerations,
)
from strandline.schemas.queries.rows import GenerationRow
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import PIPELINES, VECTORS, Scope, pipeline_named
from strandline.schemas.values.policy import MAX_INTEGER

GenerationState = Literal["preparing", "feeding", "serving", "retired"]


@dataclass(frozen=True, slots=True)
class Generation:
    """One derivation of a pipeline, and its recipe.

    ``state`` is ``preparing`` (fed, but flushes that began earlier may miss it), ``feeding`` (fed, and
    filled up from the log), ``serving``, or ``retired`` (pruned: only this row is left).

    Attributes:
        is_filled: whether all of the log is due in it, or derived.
    """

    generation_id: int
    pipeline: str
    state: GenerationState
    recipe: Recipe
    is_filled: bool

    @classmethod
    def read(cls, row: GenerationRow) -> Generation:
        recipe = Recipe(
            row.version, cast(Scope, row.entry_scope), json.loads(row.config), json.loads(row.prompts)
        )
        return cls(row.generation_id, row.pipeline, cast(GenerationState, row.state), recipe, row.is_filled)


def serving_generations(database: Fetcher) -> dict[str, Generation]:
    """The default serving generations, by pipeline; an owner may have another one."""
    generations = [Generation.read(row) for row in database.fetch(ServingGenerations())]
    return {generation.pipeline: generation for generation in generations}


def kept_generations(database: Fetcher) -> list[Generation]:
    """The generations that are fed, by pipeline and age."""
    return [Generation.read(row) for row in database.fetch(KeptGenerations())]


def find(database: Fetcher, generation_id: int) -> Generation | None:
    """One generation by its number, or None."""
    if not 0 < generation_id <= MAX_INTEGER:
        return None
    rows = database.fetch(FindGeneration(generation_id=generation_id))
    return Generation.read(rows[0]) if rows else None


def find_serving(database: Fetcher, pipeline: str) -> Generation:
    """The generation of a pipeline that serves; raises ReplayError if none does."""
    generation = serving_generations(database).get(pipeline)
    if generation is None:
        raise ReplayError(f"No generation of pipeline {pipeline!r} serves yet; start a worker once.")
    return generation


def find_kept(database: Fetcher, generation_id: int) -> Generation:
    """One generation by its number.

    Raises:
        UnknownReplayError: it does not exist, or it was pruned.
    """
    generation = find(database, generation_id)
    if generation is None or generation.state == "retired":
        raise UnknownReplayError(
            f"Generation {generation_id} does not exist, or was pruned;"
            " `strandline generations list` lists them."
        )
    return generation


def register(database: Fetcher, recipes: Mapping[str, Recipe]) -> dict[str, Generation]:
    """See that each named pipeline has a serving generation; without derived rows it adopts the recipe."""
    for pipeline, recipe in recipes.items():
        database.fetch(RegisterGeneration(**recipe_params(pipeline, recipe)))
    return serving_generations(database)


def wanted_recipes(
    pipelines: Iterable[str], settings: Settings, before: Mapping[str, Generation]
) -> dict[str, Recipe]:
    """The recipes that these settings ask for; an embedder on ``auto`` is that of the stored vectors."""
    recipes = {pipeline: recipe_for(pipeline, settings) for pipeline in sorted(pipelines)}
    if VECTORS in recipes and VECTORS in before and settings.embedding_backend == "auto":
        recipe = before[VECTORS].recipe
        hooks = {key: value for key, value in recipes[VECTORS].config.items() if key in REDACTION_KEYS}
        rest = {key: value for key, value in recipe.config.items() if key not in REDACTION_KEYS}
        recipes[VECTORS] = replace(recipe, config=rest | hooks)
    return recipes


def settings_differing(generations: Mapping[str, Generation], settings: Settings) -> dict[str, list[str]]:
    """The differences of the settings from the serving generations, for each pipeline that differs.

    Blocks that are not loaded here are skipped: this process knows nothing of them.
    """
    here = [name for name in generations if name in PIPELINES or name in load_blocks(settings.blocks)]
    recipes = wanted_recipes(here, settings, generations)
    changes = {name: list(differences(generations[name].recipe, recipe)) for name, recipe in recipes.items()}
    return {name: differing for name, differing in changes.items() if differing}


class RecipeParams(TypedDict):
    """A recipe as the statements that insert a generation take it."""

    pipeline: str
    version: str
    entry_stage: str
    entry_scope: str
    config: str
    prompts: str


def recipe_params(pipeline: str, recipe: Recipe) -> RecipeParams:
    """A recipe as the statements that insert a generation take it."""
    return {
        "pipeline": pipeline,
        "version": recipe.version,
        "entry_stage": pipeline_named(pipeline).entry_stage,
        "entry_scope": recipe.entry_scope,
        "config": json.dumps(dict(recipe.config)),
        "prompts": json.dumps(dict(recipe.prompts)),
    }
