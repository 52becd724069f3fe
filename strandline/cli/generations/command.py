"""``strandline generations``: which derivations there are, which one serves, and changing that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from uuid import UUID

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.generations.question_recall import (
    Question,
    QuestionFinds,
    coverage,
    find_answers,
    read_questions,
    recall,
)
from strandline.cli.replay import report_of
from strandline.cli.servers.targets import Running, opened_database, opened_servers
from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.generations.registry import (
    Generation,
    find,
    find_kept,
    serving_generations,
    settings_differing,
)
from strandline.pipelines.inspect.directory import check_known
from strandline.pipelines.replay.comparison import Diff, OwnerDiff, compare_generations
from strandline.pipelines.replay.records import replays
from strandline.pipelines.replay.switching import prune, roll_back, serve_everybody, switch_owner
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.generations import ListGenerations
from strandline.schemas.queries.derived.replay import GenerationBacklog
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_session, identify_user
from strandline.schemas.wire.replay import (
    DiffReport,
    GenerationReport,
    GenerationsReport,
    QuestionReport,
    SwitchReport,
)


@cli_command(
    "list",
    opened_servers,
    GenerationsReport,
    short_help="List generations, and replays that are not finished.",
)
@click.option("--pipeline", metavar="NAME", help="Only those of this pipeline.")
def list_command(running: Running, pipeline: str | None) -> Output:
    """List generations, and replays that are not finished."""
    report = generations_report(running.database, running.settings, pipeline)
    if pipeline is not None and not report.generations:
        recipe_for(pipeline, running.settings)  # refuses a pipeline that is not known here
    return Output(report, list(_lines(report)) or ["no generations"])


@cli_command("diff", opened_servers, DiffReport, short_help="Compare a generation with the one that serves.")
@click.argument("generation", type=int)
@click.option(
    "--against", type=int, metavar="GENERATION", help="Compare with this one, not the one that serves."
)
@click.option("--namespace", metavar="NAME", help="Only owners of this namespace.")
@click.option("--user", metavar="ID", help="Only this user.")
@click.option("--session", metavar="ID", help="Only the owner of this session.")
@click.option(
    "--owners", type=click.IntRange(0), default=100, show_default=True, help="Show at most this many."
)
@click.option(
    "--questions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show what a search finds for these, too: JSON lines with question, user or session, and perhaps"
    " expect or evidence.",
)
def diff_command(
    running: Running,
    generation: int,
    against: int | None,
    namespace: str | None,
    user: str | None,
    session: str | None,
    owners: int,
    questions: Path | None,
) -> Output:
    """Show how the memory of GENERATION differs from that of the one that serves its pipeline.

    GENERATION is a number, as `strandline generations list` shows it. To compare two others, name the first
    with --against.
    """
    if namespace is None and (user is not None or session is not None):
        namespace = DEFAULT_NAMESPACE
    database = running.database
    check_known(database, namespace=namespace, session_id=session, user_id=user)
    diff = compare_generations(
        database,
        generation,
        against,
        namespace=namespace,
        user_id=user,
        session_id=session,
        max_owners=owners,
    )
    asked = [] if questions is None else read_questions(questions)
    old, new = (
        find_answers(database, find_kept(database, number), asked, running.settings) if asked else []
        for number in (diff.old, diff.new)
    )
    report = DiffReport.model_validate(
        asdict(diff)
        | {"recall_old": recall(old), "recall_new": recall(new)}
        | {"coverage_old": coverage(old), "coverage_new": coverage(new)}
        | {"questions": [_question(*one) for one in zip(asked, old, new, strict=True)]}
    )
    return Output(report, [*_diff_lines(diff), *_question_lines(report)])


@cli_command("promote", opened_database, SwitchReport, short_help="Let a generation serve.")
@click.argument("generation", type=int)
@click.option(
    "--namespace", metavar="NAME", default=DEFAULT_NAMESPACE, help="The namespace of the user or session."
)
@click.option("--user", metavar="ID", help="Only for this user.")
@click.option("--session", metavar="ID", help="Only for the owner of this session, if it has no user.")
def promote_command(
    database: Database, generation: int, namespace: str, user: str | None, session: str | None
) -> Output:
    """Let a generation serve all owners that it covers, or one owner.

    The earlier generation stays fed, so that `rollback` takes effect at once; its model calls cost money
    until `prune`.
    """
    return _show_switch(promote(database, generation, namespace=namespace, user=user, session=session))


@cli_command(
    "rollback", opened_database, SwitchReport, short_help="Roll back to the generation that served before."
)
@click.option("--pipeline", required=True, metavar="NAME")
def rollback_command(database: Database, pipeline: str) -> Output:
    """Roll back to the generation that served before, for all owners at once."""
    return _show_switch(serve_earlier(database, pipeline))


@cli_command("prune", opened_database, SwitchReport, short_help="Delete a generation that does not serve.")
@click.argument("generation", type=int)
def prune_command(database: Database, generation: int) -> Output:
    """Delete a generation that does not serve; the cost of its model calls stays on record."""
    return _show_switch(delete_generation(database, generation))


def promote(
    database: Database, generation: int, *, namespace: str, user: str | None, session: str | None
) -> SwitchReport:
    """Let a generation serve all owners that it covers, or the owner that is named.

    Raises:
        ReplayError: it does not cover yet what serves.
        NotFoundError: there is no such generation, user or session.
    """
    chosen = find_kept(database, generation)
    check_known(database, session_id=session, user_id=user, namespace=namespace if user or session else None)
    if user is None and session is None:
        _refuse_uncovered(database, chosen)
        serve_everybody(database, chosen)
        whom = "serves all owners"
    elif switch_owner(database, chosen, _shard_key(namespace, user, session)):
        whom = "serves this owner"
    else:
        raise ReplayError(
            f"Generation {generation} does not yet cover what serves this owner, or serves it already;"
            " `strandline generations list` shows how far it is."
            " Promote again when workers have caught up."
        )
    return SwitchReport(pipeline=chosen.pipeline, generation=generation, done=whom)


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


def _shard_key(namespace: str, user: str | None, session: str | None) -> UUID:
    if user is not None:
        return identify_user(namespace, user).shard_key
    return identify_session(namespace, session or "", None).shard_key


def _refuse_uncovered(database: Database, generation: Generation) -> None:
    """Promote only what covers what serves; owner by owner is what a replay without --hold does."""
    backlog = database.fetch(GenerationBacklog(generation_id=generation.generation_id))
    due = sum(row.due for row in backlog)
    rows = database.fetch(ListGenerations(pipeline=generation.pipeline))
    if not all(row.is_filled for row in rows if row.generation_id == generation.generation_id):
        raise ReplayError(
            f"The replay of generation {generation.generation_id} of {generation.pipeline} has not gone"
            " through what was flushed before it, so it cannot serve all owners yet."
            " Let it go on, or resume it. Let workers catch up, then promote again."
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


def _lines(report: GenerationsReport) -> Iterator[str]:
    for item in report.generations:
        made_with = item.made_with.get("model") or item.made_with.get("embedder") or f"version {item.version}"
        size = f" {item.made_with['dimensions']}" if "dimensions" in item.made_with else ""
        owners = f", serves {quantity(item.owners, 'owner')}" if item.owners else ""
        yield (
            f"{item.pipeline} {item.generation}: {item.state}, {made_with}{size}, due {item.due:,},"
            f" dead {item.dead:,}{owners}"
        )
        if item.differences:
            yield (
                f"  the settings differ ({'; '.join(item.differences)});"
                f" derive with them: strandline replay --new --pipeline {item.pipeline}"
            )
    for replay in report.replays:
        yield (
            f"replay {replay.replay_id} ({replay.kind}) of {replay.pipeline}, generation"
            f" {replay.generation}: {replay.state}, {replay.counts.get('phase', 'under way')}"
        )


def _diff_lines(diff: Diff) -> Iterator[str]:
    totals = ", ".join(
        f"{name} {diff.totals.get(name, 0):,}" for name in ("added", "changed", "gone", "same")
    )
    yield f"{diff.pipeline}, generation {diff.new} against {diff.old}: {totals}"
    for owner in diff.owners:
        yield f"{owner.user_id or owner.session_id} ({owner.namespace})"
        yield from _owner_lines(owner)


def _owner_lines(owner: OwnerDiff) -> Iterator[str]:
    signs = {"added": "+", "gone": "-", "changed": "~"}
    for fact in owner.facts:
        both = f"{fact.before} -> {fact.after}" if fact.change == "changed" else fact.after or fact.before
        yield f"  {signs[fact.change]} {both}"
    for state in owner.states:
        yield f"  {state.session_id or 'owner'}"
        yield f"    before: {state.before}"
        yield f"    after:  {state.after}"


def _question(question: Question, old: QuestionFinds, new: QuestionFinds) -> QuestionReport:
    return QuestionReport(
        question=question.question,
        found_old=list(old.texts),
        found_new=list(new.texts),
        expected_old=old.is_found,
        expected_new=new.is_found,
        coverage_old=old.coverage,
        coverage_new=new.coverage,
    )


def _question_lines(report: DiffReport) -> Iterator[str]:
    """The questions for which the two find different things, and the averages."""
    for one in report.questions:
        gone = [text for text in one.found_old if text not in one.found_new]
        added = [text for text in one.found_new if text not in one.found_old]
        if gone or added or one.coverage_old != one.coverage_new:
            yield f"question: {one.question}{_change(', coverage', one.coverage_old, one.coverage_new)}"
            yield from (f"  - {text}" for text in gone)
            yield from (f"  + {text}" for text in added)
    for name, old, new in (
        ("recall on the questions:", report.recall_old, report.recall_new),
        ("coverage of their evidence:", report.coverage_old, report.coverage_new),
    ):
        if line := _change(name, old, new):
            yield line


def _change(name: str, old: float | None, new: float | None) -> str:
    return "" if old is None or new is None else f"{name} {old:.1%} before, {new:.1%} after"


def _show_switch(report: SwitchReport) -> Output:
    return Output(report, [f"generation {report.generation} of {report.pipeline}: {report.done}"])


@click.group(
    "generations",
    commands=[list_command, diff_command, promote_command, rollback_command, prune_command],
)
def command() -> None:
    """Manage the generations of each pipeline: their recipes, and which one serves."""
