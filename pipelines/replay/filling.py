"""Filling: makes the events of an owner's log due that a derivation has not seen."""

from __future__ import annotations

from uuid import UUID

from strandline.pipelines.generations.registry import Generation
from strandline.pipelines.replay.records import Selection
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.derived.generations import BackfillOwner, LanesToFill
from strandline.schemas.values.lanes import pipeline_named

EVENTS_PER_PAGE = 5_000


def make_due(
    tx: Fetcher,
    generation: Generation,
    shard_key: UUID,
    selection: Selection,
    scope_key: UUID | None = None,
) -> tuple[int, int]:
    """Make matching events due, in the lane of ``scope_key`` or in all; returns their number and tokens."""
    fill = BackfillOwner(
        **selection.params,
        shard_key=shard_key,
        generation_id=generation.generation_id,
        last_stage=pipeline_named(generation.pipeline).last_stage,
        scope_key=scope_key,
        limit=EVENTS_PER_PAGE,
    )
    events = tokens = 0
    while True:
        (page,) = tx.fetch(fill)
        events, tokens = events + page.events, tokens + page.tokens
        if page.events < EVENTS_PER_PAGE:
            return events, tokens


def lanes_to_fill(
    fetcher: Fetcher, generation: Generation, shard_key: UUID, selection: Selection
) -> dict[UUID, bool]:
    """The scopes in whose lanes ``make_due`` would make events due; True if any of these is derived then."""
    lacking = LanesToFill(
        **selection.params,
        shard_key=shard_key,
        generation_id=generation.generation_id,
        last_stage=pipeline_named(generation.pipeline).last_stage,
    )
    return {row.scope_key: row.is_known for row in fetcher.fetch(lacking)}
