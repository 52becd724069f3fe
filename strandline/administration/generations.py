"""The generations of each pipeline, and which one serves."""

from __future__ import annotations

import json
from uuid import UUID

from strandline.administration.replays import report_of
from strandline.pipelines.generations.registry import (
    Generation,
    find,
    find_kept,
    serving_generations,
    settings_differing,
)
from strandline.pipelines.inspect.directory import check_known
from strandline.pipelines.replay.comparison import compare_generations
from strandline.pipelines.replay.records import replays
from strandline.pipelines.replay.switching import prune, roll_back, serve_everybody, switch_owner
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.generations import ListGenerations
from strandline.schemas.queries.derived.replay import GenerationBacklog
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_session, identify_user
from strandline.schemas.wire.operations import Promotion
from strandline.schemas.wire.replay import DiffTotals, GenerationReport, GenerationsReport, SwitchReport


def promote(database: Database, generation: int, whom: Promotion) -> SwitchReport:
    """Let a generation serve all owners that it covers, or the named owner.

    Raises:
        ReplayError: it does not cover the serving one yet.
        NotFoundError: there is no such generation, user or session.
    """
    chosen = find_kept(database, generation)
    if whom.user_id is None and whom.session_id is None:
        _refuse_uncovered(database, chosen)
        serve_everybody(database, chosen)
        done = "serves all owners"
    elif switch_owner(database, chosen, _shard_key(database, whom)):
        done = "serves this owner"
    else:
        raise ReplayError(
            f"Generation {generation} does not yet cover what serves this owner, or serves it already;"
            " `strandline generations list` shows how far it is."
            " Promote again when workers have caught up."
        )
    return SwitchReport(pipeline=chosen.pipeline, generation=generation, done=done)


def compare_totals(database: Database, generation: int, against: int | None) -> DiffTotals:
    """How much differs between two generations of a pipeline; ``against`` None: the serving one."""
    diff = compare_generations(database, generation, against, max_owners=0)
    return DiffTotals(pipeline=diff.pipeline, old=diff.old, new=diff.new, totals=diff.totals)


def serve_earlier(database: Database, pipeline: str) -> SwitchReport:
    """Roll back to the generation that served before; raises ReplayError if there is none."""
    generation = roll_back(database, pipeline)
    return SwitchReport(
        pipeline=pipeline, generation=generation.generation_id, done="serves all owners again"
    )


def delete_generation(database: Database, generation: int) -> SwitchReport:
    """Prune a generation; raises ReplayError if it serves, or does not exist."""
    applied = prune(database, generation)
    record = find(database, generation)
    done = f"pruned, with what it had made of {quantity(applied, 'receipt')}"
    return SwitchReport(pipeline="" if record is None else record.pipeline, generation=generation, done=done)


def _shard_key(database: Database, whom: Promotion) -> UUID:
    namespace = whom.namespace or DEFAULT_NAMESPACE
    check_known(database, session_id=whom.session_id, user_id=whom.user_id, namespace=namespace)
    if whom.user_id is not None:
        return identify_user(namespace, whom.user_id).shard_key
    return identify_session(namespace, whom.session_id or "", None).shard_key


def _refuse_uncovered(database: Database, generation: Generation) -> None:
    """Promote only a generation that covers the serving one; a replay without --hold goes owner by owner."""
    backlog = database.fetch(GenerationBacklog(generation_id=generation.generation_id))
    due = sum(row.due for row in backlog)
    rows = database.fetch(ListGenerations(pipeline=generation.pipeline))
    if not all(row.is_filled for row in rows if row.generation_id == generation.generation_id):
        raise ReplayError(
            f"The replay of generation {generation.generation_id} of {generation.pipeline} has not gone"
            " through what was flushed before it, so it cannot serve all owners yet."
            " Wait for it, or resume it. Let workers catch up, then promote again."
        )
    if generation.state != "feeding" or due:
        raise ReplayError(
            f"Generation {generation.generation_id} of {generation.pipeline} is {generation.state}, with"
            f" {quantity(due, 'event')} due, so it cannot serve all owners yet."
            " Let workers catch up, then promote again."
        )


def generations_report(database: Database, settings: Settings, pipeline: str | None) -> GenerationsReport:
    """The generations of a pipeline, or of all, and the replays that are not finished."""
    differing = settings_differing(serving_generations(database), settings)
    listed = []
    for row in database.fetch(ListGenerations(pipeline=pipeline)):
        listed.append(
            GenerationReport.of(
                row,
                generation=row.generation_id,
                made_with=json.loads(row.config),
                created_at=row.created_at.isoformat(),
                served_until=None if row.served_until is None else row.served_until.isoformat(),
                filled=row.is_filled,
                differences=differing.get(row.pipeline, []) if row.state == "serving" else [],
            )
        )
    unfinished = [report_of(replay) for replay in replays(database, pipeline=pipeline, unfinished=True)]
    return GenerationsReport(generations=listed, replays=unfinished)
