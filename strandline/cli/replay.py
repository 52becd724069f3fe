"""``strandline replay``: derive memory again from the log, in place or as a new generation."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click

from strandline.administration.replays import check_pipelines, default_pipelines, report_of
from strandline.cli.command import Output, cli_command
from strandline.cli.servers.options import settings_alone
from strandline.cli.servers.targets import Running, opened_servers
from strandline.cli.terminal.interrupts import stops_at_signals
from strandline.cli.terminal.numbers import FiniteRange, UtcTime
from strandline.cli.terminal.output import say
from strandline.pipelines.inspect.directory import check_known
from strandline.pipelines.replay.estimate import Estimate, estimate
from strandline.pipelines.replay.in_place import InPlace, begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import Progress, begin_generation, derive_generation
from strandline.pipelines.replay.records import Replay, Selection, claim_replay, find_unfinished, replays
from strandline.retention import provide_input
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.inspection.status import StatusPipelines
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.wire.replay import EstimatesReport, ReplaysReport
from strandline.wiring.assembly import background_runner

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
@click.option("--namespace", metavar="NAME", help="Only those of this namespace.")
@click.option("--session", metavar="ID", help="Only this session.")
@click.option("--user", metavar="ID", help="Only the sessions of this user.")
@click.option(
    "--since",
    type=UtcTime(),
    metavar="TIME",
    help="Only events flushed at or after this time (UTC), such as 2026-01-31 or 2026-01-31T09:30:00.",
)
@click.option("--until", type=UtcTime(), metavar="TIME", help="Only events flushed before this time (UTC).")
@click.option("--dead-letters", "only_dead", is_flag=True, help="Only dead letters; they are retried.")
@click.option("--resume", type=int, metavar="REPLAY", help="Resume a replay that was stopped.")
@click.option("--dry-run", is_flag=True, help="Print how much work it is and what it costs; do nothing.")
def command(
    settings: Settings,
    pipelines: tuple[str, ...],
    new: bool,
    force: bool,
    hold: bool,
    from_archive: bool,
    rate: float | None,
    resume: int | None,
    dry_run: bool,
    as_json: bool,
    **chosen: Any,
) -> Output:
    """Derive long-term memory again from the log.

    By default it works in place: the serving memory is compared with the stored answers, no model is called,
    and only differences are written. Events that an overflow handler has not seen are handed to it only with
    --pipeline overflow. With --new, a new generation is derived beside the one that serves, and
    replaces it owner by owner as soon as it covers as much.

    Workers do the work; this command prepares it, watches and switches. Ctrl-C stops it, and it prints how to
    resume.
    """
    selection = _selection(**chosen)
    if new and not selection.is_everything:
        raise click.UsageError("A new generation is derived for all owners, so --new takes no selection.")
    if from_archive and not new:
        raise click.UsageError("--from-archive is for a new generation; add --new.")
    with opened_servers(settings, pool_size=4) as running:
        database = running.database
        check_known(
            database,
            namespace=selection.namespace,
            session_id=selection.session_id,
            user_id=selection.user_id,
        )
        check_pipelines(database, settings, pipelines)
        if resume is not None:
            resumed = find_unfinished(database, resume)
            pipelines, selection, new = (resumed.pipeline,), resumed.selection, resumed.kind == "new"
        names = list(pipelines) or default_pipelines(database, settings, new=new and not force)
        if dry_run:
            estimates = [estimate(database, name, selection, settings, new=new) for name in names]
            needs_force = not force and resume is None
            return Output(EstimatesReport.of(pipelines=estimates), _estimates_lines(estimates, needs_force))
        with stops_at_signals() as stop, _workers(running):
            begun: list[Replay] = []
            for replay in _begin(
                database,
                settings,
                names,
                selection,
                resume,
                new=new,
                rate=rate,
                force=force,
                hold=hold,
                from_archive=from_archive,
            ):
                begun.append(replay)
                _carry_on(database, settings, replay, stop, quiet=as_json)
                if stop.is_set():
                    break
            ended = [replays(database, replay_id=replay.replay_id)[0] for replay in begun]
        left = _count_due(database, settings, ended) if running.servers.alone else {}
    say(*_describe_left(left), err=True)
    report = ReplaysReport(replays=[report_of(replay) for replay in ended])
    return Output(report, map(_sentence, ended), code=stop.exit_code)


def _selection(
    namespace: str | None,
    session: str | None,
    user: str | None,
    since: datetime | None,
    until: datetime | None,
    only_dead: bool,
) -> Selection:
    if namespace is None and (session is not None or user is not None):
        namespace = DEFAULT_NAMESPACE
    return Selection(namespace, session, user, since, until, only_dead)


def _begin(
    database: Database,
    settings: Settings,
    names: list[str],
    selection: Selection,
    resume: int | None,
    *,
    new: bool,
    rate: float | None,
    **how: bool,
) -> Iterator[Replay]:
    if resume is not None:
        yield claim_replay(database, resume)
        return
    for name in names:
        if new:
            yield begin_generation(database, name, settings, calls_per_second=rate, **how)
        else:
            yield begin_in_place(database, name, selection)


def _carry_on(
    database: Database, settings: Settings, replay: Replay, stop: threading.Event, *, quiet: bool
) -> None:
    say = _Teller(replay, quiet=quiet)
    if replay.kind == "new":
        derive_generation(
            database,
            replay,
            on_progress=say.progress,
            stop=stop,
            provide_input=provide_input,
        )
    else:
        replay_in_place(database, replay, settings, on_progress=say.in_place, stop=stop)


class _Teller:
    def __init__(self, replay: Replay, *, quiet: bool) -> None:
        self._replay = replay
        self._quiet = quiet
        self._next = 0.0
        self._phase = ""

    def progress(self, progress: Progress) -> None:
        eta = "" if progress.eta_seconds is None else f", about {progress.eta_seconds:,.0f} s left"
        text = {
            "waiting": "waiting for transactions that began before",
            "filling": f"{quantity(progress.owners, 'owner')}, {quantity(progress.events, 'event')} made due"
            + (f", {progress.carried:,} taken over" if progress.carried else ""),
            "deriving": f"{progress.due:,} due{eta}",
            "switching": f"{progress.due:,} due{eta}; {quantity(progress.switched, 'owner')} switched,"
            f" {progress.remaining:,} not yet",
            "held": "derived; it serves when it is promoted",
            "done": "serves all owners",
        }[progress.phase]
        self._say(progress.phase, text)

    def in_place(self, result: InPlace) -> None:
        self._say(
            "checking",
            f"{quantity(result.owners, 'owner')}, {quantity(result.batches, 'batch', 'batches')},"
            f" {result.same:,} the same",
        )

    def _say(self, phase: str, text: str) -> None:
        if self._quiet or (phase == self._phase and time.monotonic() < self._next):
            return
        self._phase, self._next = phase, time.monotonic() + SAY_SECONDS
        replay = self._replay
        say(f"{replay.pipeline} (generation {replay.generation_id}): {text}", err=True)


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


def _count_due(database: Database, settings: Settings, ended: list[Replay]) -> dict[str, int]:
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


def _sentence(replay: Replay) -> str:
    what = f"replay {replay.replay_id} of {replay.pipeline}, generation {replay.generation_id}"
    if replay.state != "done":
        return f"{what}: stopped; resume with: strandline replay --resume {replay.replay_id}"
    if replay.kind == "in_place":
        return f"{what}, is done: {', '.join(_describe_counts(replay)) or 'nothing was to be checked'}"
    if replay.counts.get("phase") == "held":
        return f"{what}: derived and held; next: strandline generations promote {replay.generation_id}"
    return f"{what}: serves all owners; the earlier one is fed until it is pruned"


def _describe_counts(replay: Replay) -> list[str]:
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


def _estimates_lines(estimates: list[Estimate], needs_force: bool) -> Iterator[str]:
    for item in estimates:
        yield from _estimate_lines(item, needs_force=needs_force)


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
