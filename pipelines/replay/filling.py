"""Filling a derivation: makes events due that it has not seen, and takes over what retention has removed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from strandline.pipelines.generations.registry import Generation, find
from strandline.pipelines.replay.records import OWNERS_PER_PAGE, Selection, each_owner
from strandline.schemas.errors import ReplayError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.queries.conversation.read import ServingGeneration
from strandline.schemas.queries.conversation.retention import (
    CarryBase,
    ForgetArchivedInput,
    OwnersWithInput,
    RemovedEvents,
)
from strandline.schemas.queries.derived.generations import BackfillOwner, LanesToFill, TruncatedEvent
from strandline.schemas.values.lanes import pipeline_named


def refuse_truncated(fetcher: Fetcher, shard_key: UUID, way_out: str) -> None:
    """Make sure that every message that an owner's events deliver still exists.

    Args:
        way_out: what to do now, as a sentence.

    Raises:
        ReplayError: some messages are gone.
    """
    for event in fetcher.fetch(TruncatedEvent(shard_key=shard_key)):
        raise ReplayError(
            f"The log of session {event.session_id!r} was truncated: of its messages {event.from_seq} to"
            f" {event.through_seq}, {event.remaining} of {event.message_count} are left, and memory derived"
            f" from them would forget the others. The memory that serves stays as it is. {way_out}",
            for_clients="The log of a session was truncated, and memory derived from what is left would"
            f" forget the rest. The memory that serves stays as it is. {way_out}",
        )


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


ProvideInput = Callable[[Fetcher, UUID, int], int]
"""Gives an owner's archived messages to a generation; returns how many."""


def carry_base(tx: Fetcher, generation: Generation, shard_key: UUID) -> int:
    """Take over the serving generation's memory of removed messages; returns their events.

    Raises:
        ReplayError: the states of a custom block would be given to another version of its code.
    """
    for serving in tx.fetch(ServingGeneration(shard_key=shard_key, pipeline=generation.pipeline)):
        old_id = serving.generation_id
        if old_id == generation.generation_id:
            return 0
        (removed,) = tx.fetch(RemovedEvents(shard_key=shard_key, generation_id=old_id))
        if not removed.events:
            return 0
        _refuse_other_code(tx, generation, old_id)
        (carried,) = tx.fetch(
            CarryBase(
                shard_key=shard_key,
                generation_id=generation.generation_id,
                old_id=old_id,
                stages=list(pipeline_named(generation.pipeline).stages),
            )
        )
        return carried.events
    return 0


def _refuse_other_code(tx: Fetcher, generation: Generation, old_id: int) -> None:
    """Only the code that made a state can continue or read it."""
    old = find(tx, old_id)
    if pipeline_named(generation.pipeline).derives != "states" or old is None:
        return
    before, after = old.recipe, generation.recipe
    if (before.version, before.entry_scope) != (after.version, after.entry_scope):
        raise ReplayError(
            f"Retention has removed messages that generation {old_id} of {generation.pipeline} was made of,"
            f" and version {after.version} cannot use states of version {before.version}."
            f" Give up the new one (strandline generations prune {generation.generation_id}), and derive it"
            " from the archive: strandline replay --new --from-archive."
        )


def forget_input(database: Database, generation_id: int) -> None:
    """Delete the messages that a generation was given from the archive, once it is made."""
    asked = partial(OwnersWithInput, generation_id=generation_id, limit=OWNERS_PER_PAGE)
    for shard_key in each_owner(database, lambda after: asked(after=after)):
        database.fetch(ForgetArchivedInput(shard_key=shard_key, generation_id=generation_id))
