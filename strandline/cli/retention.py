"""``strandline retention``: how long things are kept, removals so far, and archives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from strandline import retention
from strandline.cli.command import CommandGroup, Output
from strandline.cli.servers.options import actor_option, namespace_option
from strandline.cli.servers.targets import (
    check_to_be_changed,
    even_if_unknown_option,
    opened_database,
    opened_to_read,
)
from strandline.cli.terminal.interrupts import stops_at_signals
from strandline.cli.terminal.output import print_json_line
from strandline.cli.terminal.progress import shown_progress
from strandline.retention import ArchivedRange, Past, Removal, Retention
from strandline.schemas.display.shown_text import quantity, quote, time_text
from strandline.schemas.errors import ArchiveError
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.acts.retention import HANDLER, MAX_MESSAGES, MAX_SECONDS
from strandline.schemas.values.message import Message
from strandline.schemas.wire.report import Key, Report
from strandline.schemas.wire.sessions import RetentionOut
from strandline.wiring.archives import open_archive


@click.group("retention", cls=CommandGroup)
def command() -> None:
    """Set how long things are kept; look at what leaves, and at the archive.

    A number with a unit is a duration (s, m, h, d, w), such as 30d; `never` sets no bound. No read shows
    anything that is past its time, also before workers have archived and removed it.
    """


class RetentionReport(RetentionOut, Report):
    """How long things are kept; a null field was never set. Times are in seconds, 0 is for ever."""

    keeps_important: bool | None
    archive: str | None
    answers_seconds: int | None
    calls_seconds: int | None
    traces_seconds: int | None
    ended_facts_seconds: int | None


class RetentionActReport(RetentionReport):
    """One act."""

    number: int
    actor: str | None
    created_at: datetime


class RetentionShownReport(RetentionReport):
    """``retention show`` and ``set``: what applies now, and the acts of the level, newest first."""

    namespace: str
    session_id: str | None
    acts: list[RetentionActReport]


class PastReport(Report):
    """One session's expired messages, by reason; ``important`` ones stay.

    ``waiting`` of them leave once their whole flush has expired, ``leaving`` can leave now.
    """

    namespace: str
    session_id: str
    expired: int
    aged: int
    surplus: int
    waiting: int
    leaving: int
    important: int


class PlanReport(Report):
    """``retention plan``."""

    sessions: list[PastReport]


class RunReport(Report):
    """``retention run``: messages that left, important ones that stay, and waiting or failed ones.

    ``waiting`` are sessions that workers still derive; ``waiting_messages`` wait for their flush.
    """

    removed: int
    kept: int
    archived: int
    steps: int
    waiting: int
    failed: int
    busy: int
    given_up: int
    waiting_messages: int


class OpenStepReport(Report):
    """A range of messages on its way out; ``last_error`` says why its last attempt ended."""

    namespace: str
    session_id: str
    from_seq: int
    through_seq: int
    state: str
    archive: str | None
    attempts: int
    last_error: str | None
    planned_at: datetime
    attempted_at: datetime | None


class PassReport(Report):
    """One pass of workers over all sessions."""

    run_id: int
    state: str
    counts: dict[str, Any]
    started_at: datetime
    ended_at: datetime | None


class StatusReport(Report):
    """``retention status``: totals since the beginning, running steps, and the last passes.

    ``waiting_lives`` are sessions that ended for lack of puts, and are not wholly removed.
    """

    removed: int
    kept: int
    archived: int
    open_steps: int
    failing_steps: int
    waiting_lives: int
    steps: list[OpenStepReport]
    passes: list[PassReport]


class ArchivedRangeReport(Report):
    """A range of a session's messages that left its log, or is on its way."""

    from_seq: int
    through_seq: int
    step_id: Key
    cause: str
    state: str
    archive: str | None
    object_name: str | None
    object_digest: str | None
    messages: int
    removed: int
    kept_seqs: list[int]
    last_error: str | None
    planned_at: datetime
    removed_at: datetime | None


class ArchivedReport(Report):
    """``retention archived``."""

    namespace: str
    session_id: str
    ranges: list[ArchivedRangeReport]


class RestoredReport(Report):
    """``retention restore``."""

    session_id: str
    messages: int
    ranges: int
    ttl_seconds: int


class AdoptedReport(Report):
    """``retention adopt``: the adopted archives."""

    archives: list[str]


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_FORM = re.compile(r"(\d{1,12})([smhdw])")
NEVER = "never"

# Fields of an act, each with an option of its name without the unit.
DURATIONS = {
    "ttl_seconds": "A session ends so long after its last put, with all that it holds.",
    "max_age_seconds": "A message leaves so long after its time.",
    "answers_seconds": "Age of models' answers, once their batch has ended.",
    "calls_seconds": "Age of the ledger of model calls.",
    "traces_seconds": "How long replays recognise facts that a person took away.",
    "ended_facts_seconds": "Age of facts that ended because of others.",
}


class Duration(click.ParamType[int]):
    """A number with a unit (s, m, h, d, w), in seconds; ``never`` is 0."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value == NEVER:
            return 0
        parts = _FORM.fullmatch(str(value).strip())
        seconds = int(parts[1]) * _UNITS[parts[2]] if parts else 0
        if not 1 <= seconds <= MAX_SECONDS:
            self.fail(
                f"{value!r} is not a duration: give a number with s, m, h, d or w, such as 30d, or {NEVER}.",
                param,
                ctx,
            )
        return seconds


def duration_text(seconds: int) -> str:
    """Seconds as the command line takes them."""
    if not seconds:
        return NEVER
    unit, size = next(
        (unit, size) for unit, size in reversed(_UNITS.items()) if unit != "w" and seconds % size == 0
    )
    return f"{seconds // size}{unit}"


def policy_lines(applied: Retention) -> Iterator[str]:
    for name, value in asdict(applied).items():
        if not value:
            continue
        if name in DURATIONS:
            yield f"  {name.removesuffix('_seconds').replace('_', ' ')}: {duration_text(value)}"
        elif name == "max_messages":
            yield f"  max messages: {value:,}"
        elif name == "archive":
            yield f"  archive: {value}"
        elif name == "forget_facts":
            yield "  facts lose a message's part when it leaves"
    if applied.keeps_important is False:
        yield "  important messages leave like others"


def past_line(row: Past) -> str:
    parts = {
        "expired": row.expired,
        "past their age": row.aged,
        "beyond the number": row.surplus,
    }
    reasons = ", ".join(f"{number:,} {why}" for why, number in parts.items() if number)
    reasons += f"; {row.waiting:,} of them wait for their flush" if row.waiting else ""
    kept = f"; {row.important:,} important stay" if row.important else ""
    return f"{row.namespace}/{row.session_id}: {reasons}{kept}"


def run_lines(done: Removal) -> Iterator[str]:
    yield (
        f"{quantity(done.removed, 'message')} removed in {quantity(done.steps, 'step')},"
        f" {done.archived:,} archived, {done.kept:,} important kept"
    )
    if done.waiting:
        yield f"{quantity(done.waiting, 'session')} waiting: workers still derive from messages to remove"
    if done.busy:
        yield f"{quantity(done.busy, 'step')} left to another process"
    if done.given_up:
        yield f"{quantity(done.given_up, 'step')} given up: the retention was changed since"
    if done.failed:
        yield f"{quantity(done.failed, 'step')} failed; `strandline retention status` says why"


def waiting_lines(waiting: int) -> Iterator[str]:
    if waiting:
        yield f"{quantity(waiting, 'message')} waiting: a flush leaves once all of it is past its time"


def status_lines(report: StatusReport) -> Iterator[str]:
    yield (
        f"{quantity(report.removed, 'message')} removed, {report.archived:,} archived,"
        f" {report.kept:,} important kept"
    )
    yield f"{quantity(report.open_steps, 'step')} under way, {report.failing_steps:,} failing"
    if report.waiting_lives:
        yield f"{quantity(report.waiting_lives, 'session')} ended, and not removed yet"
    yield "`strandline retention plan` counts what to remove, and what waits for its flush"
    for step in report.steps:
        where = "without an archive" if step.archive is None else f"to {step.archive}"
        error = f": {step.last_error}" if step.last_error else ""
        yield (
            f"{step.namespace}/{step.session_id}, messages {step.from_seq} to {step.through_seq},"
            f" {where}: {step.state}, {quantity(step.attempts, 'attempt')}{error}"
        )
    for one in report.passes:
        at = time_text(one.started_at)
        counts = ", ".join(f"{number:,} {name}" for name, number in sorted(one.counts.items()))
        yield f"pass {one.run_id}, {at}: {one.state}{f' ({counts})' if counts else ''}"


def range_line(one: ArchivedRange) -> str:
    where = "removed without an archive" if one.archive is None else f"{one.archive} {one.object_name or ''}"
    kept = f", {len(one.kept_seqs)} important kept" if one.kept_seqs else ""
    return f"messages {one.from_seq} to {one.through_seq} ({one.cause}), {one.state}{kept}: {where.strip()}"


def message_fields(message: Message) -> dict[str, Any]:
    return {
        "seq": message.seq,
        "id": message.id,
        "created_at": message.created_at.isoformat() if message.created_at else None,
        **message.to_dict(),
        **({"metadata": dict(message.metadata)} if message.metadata else {}),
    }


_DURATION = Duration()

all_namespaces = click.option("--namespace", metavar="NAME", help="Only sessions of this namespace.")
session_option = click.option("--session", "session_id", metavar="ID", help="Only this session.")


@command.add("show", opened_to_read, RetentionShownReport)
@namespace_option
@click.option("--session", "session_id", metavar="ID", help="Of this session, instead of the namespace.")
def show_command(database: Database, **level: Any) -> Output:
    """Show how long a namespace, or a session in it, keeps what it holds, and the acts that say so."""
    return _show(database, level)


def _duration_options(function: Any) -> Any:
    for field, meaning in reversed(DURATIONS.items()):
        option = f"--{field.removesuffix('_seconds').replace('_', '-')}"
        function = click.option(option, field, type=_DURATION, metavar="DURATION", help=meaning)(function)
    return function


@command.add("set", opened_database, RetentionShownReport)
@namespace_option
@click.option("--session", "session_id", metavar="ID", help="For this session, instead of the namespace.")
@even_if_unknown_option
@_duration_options
@click.option(
    "--max-messages",
    type=click.IntRange(0, MAX_MESSAGES),
    metavar="N",
    help="How many of a session's newest messages stay; 0: all.",
)
@click.option(
    "--forget-facts/--keep-facts",
    "forget_facts",
    default=None,
    help="Whether facts lose a message's part when it leaves; by default they outlive it.",
)
@click.option(
    "--keep-important/--ignore-important",
    "keeps_important",
    default=None,
    help="Whether messages that say that they are important stay; by default they do. Of a namespace alone.",
)
@click.option(
    "--archive",
    metavar="URL",
    help="Where messages go before they are removed: file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,"
    " handler:NAME, or an empty text for nowhere.",
)
@actor_option
def set_command(
    database: Database,
    namespace: str,
    session_id: str | None,
    even_if_unknown: bool,
    actor: str | None,
    **chosen: Any,
) -> Output:
    """Record how long a namespace, or a session in it, keeps what it holds.

    An act is the whole choice of its level. An option that is not given leaves its bound open: a session has
    that of its namespace then, a namespace keeps everything. It applies at once. Messages whose metadata has
    `"important": true` stay.
    """
    check_to_be_changed(database, namespace, even_if_unknown=even_if_unknown)
    if not even_if_unknown:
        _check_handler(chosen["archive"])
    level: dict[str, Any] = {"namespace": namespace, "session_id": session_id}
    retention.set_retention(database, Retention(**chosen), actor=actor, **level)
    return _show(database, level)


@command.add("plan", opened_to_read, PlanReport)
@all_namespaces
@session_option
def plan_command(database: Database, **which: Any) -> Output:
    """Show the messages of each session that are past their time: a dry run of `retention run`."""
    rows = list(retention.plan(database, **which))
    report = PlanReport(sessions=[PastReport.of(row, leaving=row.free) for row in rows])
    leaving, waiting = sum(row.free for row in rows), sum(row.waiting for row in rows)
    what = f"{quantity(leaving, 'message')} of {quantity(len(rows), 'session')} would leave"
    lines = [*map(past_line, rows), what if rows else "nothing is past its time", *waiting_lines(waiting)]
    return Output(report, lines)


@command.add("run", opened_to_read, RunReport)
@all_namespaces
@session_option
@click.option("--at-once", is_flag=True, help="Do not rest between steps; puts may be slower during them.")
def run_command(database: Database, at_once: bool, **which: Any) -> Output:
    """Archive and remove everything past its time, now; workers do the same by themselves.

    What workers still derive stays until they have. Ctrl-C stops it between two sessions.
    """
    leaving = sum(row.free for row in retention.plan(database, **which))
    with stops_at_signals() as stop, shown_progress("removing", "message") as show:
        done = retention.run(
            database,
            on_progress=lambda done: show(done.removed, leaving, f"{done.removed:,} removed"),
            stop=stop,
            at_once=at_once,
            **which,
        )
        rest = retention.plan(database, **which)
        waiting = 0 if stop.is_set() else sum(row.waiting for row in rest)
    return Output(
        RunReport.of(done, waiting_messages=waiting),
        [*run_lines(done), *waiting_lines(waiting)],
        code=stop.exit_code or int(bool(done.failed)),
    )


@command.add("status", opened_to_read, StatusReport)
@all_namespaces
def status_command(database: Database, namespace: str | None) -> Output:
    """Show how much has left so far, the steps under way, why one fails, and the last passes of workers."""
    status = retention.status(database, namespace=namespace)
    passes = [PassReport.of(run, counts=json.loads(run.counts)) for run in status.runs]
    report = StatusReport.of(status.totals, steps=status.steps, passes=passes)
    return Output(report, status_lines(report))


@command.add("archived", opened_to_read, ArchivedReport)
@click.argument("session")
@namespace_option
@click.option("--messages", is_flag=True, help="Print the messages as JSON lines, read from the archive.")
def archived_command(database: Database, session: str, namespace: str, messages: bool) -> Output | None:
    """List the ranges of SESSION's messages that left its log, and where they are; or print the messages."""
    if messages:
        for message in retention.read_archived(database, session, namespace=namespace):
            print_json_line(json.dumps(message_fields(message), ensure_ascii=False))
        return None
    ranges = retention.archived_ranges(database, session, namespace=namespace)
    report = ArchivedReport.of(namespace=namespace, session_id=session, ranges=ranges)
    return Output(report, map(range_line, ranges) if ranges else ["nothing of this session has left its log"])


@command.add("restore", opened_to_read, RestoredReport)
@click.argument("session")
@click.argument("to")
@namespace_option
@click.option(
    "--ttl",
    type=_DURATION,
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="How long the restored session is kept.",
)
def restore_command(database: Database, session: str, to: str, namespace: str, ttl: int) -> Output:
    """Bring the archived messages of SESSION back, as they were, into a session TO of the same user.

    Nothing is derived from them again, and all that they gave is kept. A restore that was stopped resumes
    when it is called again.
    """
    restored = retention.restore(database, session, to, namespace=namespace, ttl_seconds=ttl)
    lines = [
        f"{quantity(restored.messages, 'message')} of {quantity(restored.ranges, 'range')} are in session"
        f" {quote(restored.session_id)} now, kept {duration_text(restored.ttl_seconds)}",
        "  `get_all()` and `history()` give them; the context that `get` returns begins behind them",
    ]
    return Output(RestoredReport.of(restored), lines)


@command.add("adopt", opened_database, AdoptedReport)
def adopt_command(database: Database) -> Output:
    """Take over the archives of the database that this one replaces, with the right to delete there.

    A database deletes only what it put there itself, so a restored copy leaves its original's objects alone.
    """
    archives = retention.adopt(database)
    return Output(AdoptedReport(archives=archives), archives or ["no archive has objects of this database"])


def _check_handler(archive: str | None) -> None:
    """Raise ArchiveError without the handler here that workers need."""
    if archive is not None and archive.startswith(f"{HANDLER}:"):
        try:
            open_archive(archive)
        except ArchiveError as error:
            raise ArchiveError(
                f"{error} If it is installed there and not here, add --even-if-unknown."
            ) from error


def _show(database: Database, level: dict[str, Any]) -> Output:
    applied = retention.get_retention(database, **level)
    acts = retention.retention_acts(database, **level)
    reports = [RetentionActReport.of(act, **asdict(act.retention)) for act in acts]
    report = RetentionShownReport.of(applied, acts=reports, **level)
    session_id = level["session_id"]
    whose = f"namespace {quote(level['namespace'])}" if session_id is None else f"session {quote(session_id)}"
    policy = list(policy_lines(applied))
    act_lines = [
        f"act {act.number}, {time_text(act.created_at)}, by {act.actor or 'an operator'}:"
        f" {act.retention.to_json()}"
        for act in acts
    ]
    return Output(report, [f"{whose}:" if policy else f"{whose} keeps everything", *policy, *act_lines])
