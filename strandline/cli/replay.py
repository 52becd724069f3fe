"""``strandline replay``: derive memory again from the log, in place or as a new generation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from strandline.administration.replays import (
    begin_replay,
    check_pipelines,
    default_pipelines,
    find_replay,
    report_of,
    run_replay,
    selection_of,
)
from strandline.cli.command import Output, cli_command
from strandline.cli.servers.options import FiniteRange, UtcTime, namespace_filter, settings_alone
from strandline.cli.servers.targets import Running, opened_servers
from strandline.cli.terminal.interrupts import stops_at_signals
from strandline.cli.terminal.output import say
from strandline.cli.terminal.progress import NowAndThen
from strandline.pipelines.replay.estimate import Estimate, estimate
from strandline.pipelines.replay.in_place import InPlace
from strandline.pipelines.replay.new_generation import Progress
from strandline.pipelines.replay.records import find_unfinished
from strandline.retention import provide_input
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.inspection.status import StatusPipelines
from strandline.schemas.settings import Settings
from strandline.schemas.wire.operations import ReplayIn
from strandline.schemas.wire.replay import EstimatesReport, ReplaysReport
from strandline.schemas.wire.work import ReplayReport
from strandline.wiring.assembly import background_runner

_SELECTION = ("namespace", "session_id", "user_id", "since", "until", "dead_letters")
SAY_SECONDS = 5.0


@cli_command("replay", settings_alone, ReplaysReport, EstimatesReport)
@click.option(
    "--pipeline", "pipelines", multiple=True, metavar="NAME", help="Only this pipeline; repeatable."
)
@click.option("--new", is_flag=True, help="Derive a new generation with the current settings.")
@click.option("--force", is_flag=True, help="With --new: even if the settings have not changed.")
@click.option("--hold", is_flag=True, help="With --new: leave it to `generations promote` to let it serve.")
@click.option(
    "--from-archive",
    is_flag=True,
    help="With --new: derive what retention has removed from the archive, too.",
)
@click.option("--rate", type=FiniteRange(0, min_open=True), help="Model calls per second and namespace.")
@namespace_filter
@click.option("--session", "session_id", metavar="ID", help="Only this session.")
@click.option("--user", "user_id", metavar="ID", help="Only the sessions of this user.")
@click.option(
    "--since",
    type=UtcTime(),
    metavar="TIME",
    help="Only events flushed at or after this time (UTC), such as 2026-01-31 or 2026-01-31T09:30:00.",
)
@click.option("--until", type=UtcTime(), metavar="TIME", help="Only events flushed before this time (UTC).")
@click.option("--dead-letters", is_flag=True, help="Only dead letters; they are retried.")
@click.option("--resume", type=int, metavar="REPLAY", help="Resume a replay that was stopped.")
@click.option("--dry-run", is_flag=True, help="Print the amount of work and its cost; do nothing.")
def command(
    settings: Settings,
    pipelines: tuple[str, ...],
    from_archive: bool,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> Output:
    """Derive long-term memory again from the log.

    By default it works in place: the serving memory is compared with the stored answers, no model is called,
    and only differences are written. Events that an overflow handler has not seen are handed to it only with
    --pipeline overflow. With --new, a new generation is derived while the old one serves, and
    replaces it owner by owner as soon as it covers as much.

    Workers do the work; this command prepares it, watches and switches. Ctrl-C stops it, and it prints how to
    resume.
    """
    asked = ReplayIn.model_construct(**options)
    if asked.new and any(options[name] for name in _SELECTION):
        raise click.UsageError("A new generation is derived for all owners, so --new takes no selection.")
    if from_archive and not asked.new:
        raise click.UsageError("--from-archive is for a new generation; add --new.")
    with opened_servers(settings, pool_size=4) as running:
        database = running.database
        selection, new = selection_of(database, asked), asked.new
        check_pipelines(database, settings, pipelines)
        if asked.resume is not None:
            resumed = find_unfinished(database, asked.resume)
            pipelines, selection, new = (resumed.pipeline,), resumed.selection, resumed.kind == "new"
        names = list(pipelines) or default_pipelines(database, settings, new=new and not asked.force)
        if dry_run:
            estimates = [estimate(database, name, selection, settings, new=new) for name in names]
            needs_force = not asked.force and asked.resume is None
            texts = [line for item in estimates for line in _estimate_lines(item, needs_force=needs_force)]
            return Output(EstimatesReport.of(pipelines=estimates), texts)
        begun: list[int] = []
        with stops_at_signals() as stop, _workers(running):
            for name in names:
                of_one = asked.model_copy(update={"pipeline": name})
                replay = begin_replay(database, settings, of_one, from_archive=from_archive)
                begun.append(replay.replay_id)
                lines = None if as_json else NowAndThen(SAY_SECONDS)
                run_replay(
                    database,
                    settings,
                    replay.replay_id,
                    stop,
                    on_progress=partial(_tell, lines, replay),
                    provide_input=provide_input,
                )
                if stop.is_set():
                    break
            ended = [report_of(find_replay(database, number)) for number in begun]
        left = _count_due(database, settings, ended) if running.servers.alone else {}
    say(*_describe_left(left), err=True)
    return Output(ReplaysReport(replays=ended), map(_sentence, ended), code=stop.exit_code)


def _tell(lines: NowAndThen | None, replay: ReplayReport, progress: Progress | InPlace) -> None:
    """Print a line now and then, and one at each new phase."""
    if lines is None:
        return
    phase = progress.phase if isinstance(progress, Progress) else "checking"
    text = _describe(progress) if isinstance(progress, Progress) else _describe_in_place(progress)
    lines.say(f"{replay.pipeline} (generation {replay.generation}): {text}", phase)


def _describe(progress: Progress) -> str:
    eta = ""
    if progress.eta_seconds:
        share = 100 * (progress.events - progress.due) // max(1, progress.events)
        rate = progress.due / progress.eta_seconds
        eta = f"; {max(0, share)} %, {rate:,.1f} events a second, about {progress.eta_seconds:,.0f} s left"
    return {
        "waiting": "waiting for transactions that began before",
        "filling": f"{quantity(progress.owners, 'owner')}, {quantity(progress.events, 'event')} made due"
        + (f", {progress.carried:,} taken over" if progress.carried else ""),
        "deriving": f"{progress.due:,} due{eta}",
        "switching": f"{progress.due:,} due{eta}; {quantity(progress.switched, 'owner')} switched,"
        f" {progress.remaining:,} not yet",
        "held": "derived; it serves when it is promoted",
        "done": "serves all owners",
    }[progress.phase]


def _describe_in_place(result: InPlace) -> str:
    return (
        f"{quantity(result.owners, 'owner')}, {quantity(result.batches, 'batch', 'batches')},"
        f" {result.same:,} the same"
    )


@contextmanager
def _workers(running: Running) -> Iterator[None]:
    """Workers of this process, where no other could be at work: a new generation would never be derived."""
    if not running.servers.alone:
        yield
        return
    runner = background_runner(running.database, running.settings)
    runner.start()
    try:
        yield
    finally:
        runner.stop()


def _count_due(database: Database, settings: Settings, ended: list[ReplayReport]) -> dict[str, int]:
    names = {replay.pipeline for replay in ended}
    rows = database.fetch(StatusPipelines(dead_after_seconds=settings.worker_dead_after_seconds))
    return {
        row.pipeline: sum(stage["due"] for stage in json.loads(row.due))
        for row in rows
        if row.pipeline in names and row.state == "serving"
    }


def _describe_left(left: Mapping[str, int]) -> list[str]:
    return [
        f"{name}: {quantity(due, 'event')} {'is' if due == 1 else 'are'} due and not derived yet;"
        f" `strandline up` derives {'it' if due == 1 else 'them'}"
        for name, due in left.items()
        if due
    ]


def _sentence(replay: ReplayReport) -> str:
    what = f"replay {replay.replay_id} of {replay.pipeline}, generation {replay.generation}"
    if replay.state != "done":
        return f"{what}: stopped; resume with: strandline replay --resume {replay.replay_id}"
    if replay.kind == "in_place":
        return f"{what}, is done: {', '.join(_describe_counts(replay)) or 'nothing was to be checked'}"
    if replay.counts.get("phase") == "held":
        return f"{what}: derived and held; next: strandline generations promote {replay.generation}"
    return f"{what}: serves all owners; the earlier one is fed until it is pruned"


def _describe_counts(replay: ReplayReport) -> list[str]:
    counts = {name: count for name, count in replay.counts.items() if count}
    phrases = {
        "owners": ("1 owner", "{:,} owners"),
        "batches": ("1 batch", "{:,} batches"),
        "same": ("1 the same", "{:,} the same"),
        "rewritten": ("1 rewritten", "{:,} rewritten"),
        "asked_again": ("1 due again, without a stored answer", "{:,} due again, without stored answers"),
        "kept": ("1 kept, without a stored answer", "{:,} kept, without stored answers"),
        "differing": ("1 with other facts", "{:,} with other facts"),
        "made_due": ("1 event made due", "{:,} events made due"),
        "retried": ("1 dead letter retried", "{:,} dead letters retried"),
        "archived": ("1 kept, its messages were removed", "{:,} kept, their messages were removed"),
    }
    return [
        phrases[name][0] if counts[name] == 1 else phrases[name][1].format(counts[name])
        for name in phrases
        if name in counts
    ]


def _estimate_lines(item: Estimate, *, needs_force: bool) -> Iterator[str]:
    how = "as a new generation" if item.new else f"generation {item.generation} in place"
    yield f"{item.pipeline}, {how}: {quantity(item.events, 'event')}, {quantity(item.tokens, 'token')}"
    if item.new:
        changes = "; ".join(item.differences) or ("none: --force is needed" if needs_force else "none")
        yield f"  what changes: {changes}"
    else:
        batches = quantity(item.batches, "batch", "batches")
        yield f"  from stored answers: {item.stored_batches:,} of {batches}"
    if not item.model_calls:
        yield "  model calls: none"
        return
    cost = "no price is set (STRANDLINE_MODEL_PRICES)" if item.cost_usd is None else f"${item.cost_usd:,.2f}"
    size = (
        "how large is unknown: the ledger has no call of this pipeline"
        if item.input_tokens is None
        else f"about {quantity(item.input_tokens, 'token')} in, {item.output_tokens:,} out"
    )
    yield f"  model calls: {item.model_calls:,} ({size}; {cost})"
