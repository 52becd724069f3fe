"""What a replay would go through and cost, told before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strandline.pipelines.recipe import Recipe, differences, recipe_for
from strandline.pipelines.registry import serving
from strandline.pipelines.replay.records import Selection
from strandline.schemas.database import Database
from strandline.schemas.errors import ReplayError
from strandline.schemas.prices import ModelPrice, cost_usd
from strandline.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class Estimate:
    """A dry run of one pipeline.

    Attributes:
        generation: that serves now.
        differences: of the settings from what it was made with.
        events, tokens: that fit the selection.
        stored_batches: batches whose answers are stored, out of ``batches``; in place these cost nothing.
        model_calls, input_tokens, output_tokens: expected, by the averages of the latest calls of the
            pipeline; None where there are none to go by.
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
    model_calls: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


def estimate(
    database: Database, pipeline: str, selection: Selection, settings: Settings, *, new: bool
) -> Estimate:
    """Count what a replay would do.

    Raises:
        ReplayError: nothing of the pipeline serves.
    """
    generation = serving(database).get(pipeline)
    if generation is None:
        raise ReplayError(f"Nothing of pipeline {pipeline!r} serves yet; start a worker once.")
    wanted = recipe_for(pipeline, settings)
    params = selection.params | {"pipeline": pipeline, "generation_id": generation.generation_id}
    ((events, tokens, stored, batches),) = database.fetch("replay_size", params)
    calls, sizes = _expected(database, pipeline, tokens, batches, stored, new=new)
    made_with = wanted if new else generation.recipe
    return Estimate(
        pipeline=pipeline,
        generation=generation.generation_id,
        new=new,
        differences=tuple(differences(generation.recipe, wanted)),
        events=events,
        tokens=tokens,
        batches=batches,
        stored_batches=0 if new else stored,
        model_calls=calls,
        input_tokens=None if sizes is None else sizes[0],
        output_tokens=None if sizes is None else sizes[1],
        cost_usd=None if sizes is None else _cost(settings.model_prices, made_with, *sizes),
    )


def _expected(
    database: Database, pipeline: str, tokens: int, batches: int, stored: int, *, new: bool
) -> tuple[int | None, tuple[int, int] | None]:
    """Calls, and their tokens in and out: as many per token of events as the latest calls were."""
    if not new and stored == batches:
        return 0, (0, 0)
    averages = database.fetch("ledger_averages", {"pipeline": pipeline})
    share = 1.0 if new else (batches - stored) / max(1, batches)
    calls = given = answered = 0.0
    for _stage, seen, input_tokens, output_tokens, of_tokens in averages:
        expected = share * seen * tokens / of_tokens if of_tokens else 0.0
        calls, given, answered = (
            calls + expected,
            given + expected * input_tokens,
            answered + expected * output_tokens,
        )
    if not averages:
        return None, None
    return round(calls), (round(given), round(answered))


def _cost(prices: Sequence[ModelPrice], made_with: Recipe, given: int, answered: int) -> float | None:
    config: Mapping[str, object] = made_with.config
    model = str(config.get("model") or config.get("embedder") or "")
    cost = cost_usd(tuple(prices), model, input_tokens=given, output_tokens=answered)
    return None if cost is None else float(cost)
