"""Estimates the work and the cost of a replay before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.generations.recipe import Recipe, differences
from strandline.pipelines.generations.registry import Generation, find_serving
from strandline.pipelines.generations.stages import build
from strandline.pipelines.replay.planning import Plan, Planner
from strandline.pipelines.replay.records import Selection
from strandline.schemas.postgres.database import Database
from strandline.schemas.prices import ModelPrice, cost_usd
from strandline.schemas.queries.derived.replay import LedgerAverages, ReplaySize
from strandline.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class Estimate:
    """A dry run of one pipeline.

    Attributes:
        generation: the serving one.
        differences: of the settings from its recipe.
        events, tokens: that fit the selection.
        batches: that a replay in place compares, or that a new generation makes.
        stored_batches: with stored answers; in place these cost nothing.
        model_calls: that the batches need; of a new generation's merges as many as the serving one's
            candidates need, and none to condense.
        input_tokens, output_tokens: of these calls, by the averages of the pipeline's latest calls; None
            without such calls.
        cost_usd: by STRANDLINE_MODEL_PRICES; None where the model has no price there.
    """

    pipeline: str
    generation: int
    new: bool
    differences: tuple[str, ...]
    events: int
    tokens: int
    batches: int
    stored_batches: int
    model_calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


def estimate(
    database: Database, pipeline: str, selection: Selection, settings: Settings, *, new: bool
) -> Estimate:
    """Count the work of a replay.

    Raises:
        ReplayError: nothing of the pipeline serves.
        ConfigurationError: a stage cannot be built here.
    """
    generation = find_serving(database, pipeline)
    recipe = recipe_for(pipeline, settings)
    if new:
        future = Generation(0, pipeline, "preparing", recipe, is_filled=False)
        plan = _planner(database, future, settings).anew()
        events, tokens = plan.events, plan.tokens
    else:
        plan = _planner(database, generation, settings).in_place(selection)
        (size,) = database.fetch(
            ReplaySize(
                **selection.params,
                only_dead=selection.only_dead,
                pipeline=pipeline,
                generation_id=generation.generation_id,
            )
        )
        events, tokens = size.events, size.tokens
    sizes = _sizes(database, pipeline, plan)
    made_with = recipe if new else generation.recipe
    return Estimate(
        pipeline=pipeline,
        generation=generation.generation_id,
        new=new,
        differences=tuple(differences(generation.recipe, recipe)),
        events=events,
        tokens=tokens,
        batches=plan.batches,
        stored_batches=plan.stored,
        model_calls=plan.calls.total(),
        input_tokens=None if sizes is None else sizes[0],
        output_tokens=None if sizes is None else sizes[1],
        cost_usd=None if sizes is None else _cost(settings.model_prices, made_with, *sizes),
    )


def _planner(database: Database, generation: Generation, settings: Settings) -> Planner:
    return Planner(database, generation, build(generation, settings), settings.batch_token_budget)


def _sizes(database: Database, pipeline: str, plan: Plan) -> tuple[int, int] | None:
    if not plan.calls.total():
        return 0, 0
    averages = database.fetch(LedgerAverages(pipeline=pipeline))
    tokens_in = tokens_out = 0.0
    for row in averages:
        share = row.calls * plan.asked_tokens[row.stage] / row.tokens if row.tokens else 0.0
        tokens_in, tokens_out = tokens_in + share * row.input_tokens, tokens_out + share * row.output_tokens
    return (round(tokens_in), round(tokens_out)) if averages else None


def _cost(prices: Sequence[ModelPrice], made_with: Recipe, tokens_in: int, tokens_out: int) -> float | None:
    config: Mapping[str, object] = made_with.config
    model = str(config.get("model") or config.get("embedder") or "")
    cost = cost_usd(tuple(prices), model, input_tokens=tokens_in, output_tokens=tokens_out)
    return None if cost is None else float(cost)
