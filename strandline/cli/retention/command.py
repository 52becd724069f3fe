"""``strandline retention``: how long things are kept, what has left, and where it is archived."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

import click

from strandline import retention
from strandline.cli.retention.durations import Duration, duration_text
from strandline.cli.retention.reports import (
    ArchivedRangeReport,
    ArchivedReport,
    OpenStepReport,
    PassReport,
    PastReport,
    PlanReport,
    RestoredReport,
    RetentionActReport,
    RetentionShownReport,
    RunReport,
    StatusReport,
)
from strandline.cli.servers.options import as_json, namespace_option, settings_from, target_options
from strandline.cli.servers.targets import opened_pool, servers_for_once
from strandline.cli.terminal.interrupts import stops_at_signals
from strandline.cli.terminal.output import print_json, say
from strandline.retention import ArchivedRange, Past, Removal, Retention, RetentionAct
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.message import Message
from strandline.schemas.values.retention import MAX_MESSAGES

SAY_SECONDS = 2.0

_DURATION = Duration()
# What an act sets, by the option that names it.
_DURATIONS = {
    "ttl": ("ttl_seconds", "A session ends so long after its last put, with all that it holds."),
    "max_age": ("max_age_seconds", "A message leaves so long after its time."),
    "answers": ("answers_seconds", "Age of models' answers, once their batch has ended."),
    "calls": ("calls_seconds", "Age of the ledger of model calls."),
    "traces": ("traces_seconds", "How long what a person took away is recognised in replays."),
    "ended_facts": ("ended_facts_seconds", "Age of facts that ended because of others."),
}

all_namespaces = click.option("--namespace", metavar="NAME", help="Only sessions of this namespace.")
session_option = click.option("--session", metavar="ID", help="Only this session.")


@click.group("retention")
def command() -> None:
    """Set how long things are kept; look at what leaves, and at what is archived.

    A number with a unit is a duration (s, m, h, d, w), such as 30d; `never` keeps for ever. Nothing that is
    past its time is shown by any read, also before workers have archived and removed it.
    """


@command.command("show", short_help="Show what applies to a namespace or a session.")
@namespace_option
@click.option("--session", metavar="ID", help="Of this session, instead of the namespace.")
@as_json
@target_options
def show_command(namespace: str, session: str | None, as_json: bool, **target: Any) -> int:
    """Show how long a namespace, or a session in it, keeps what it holds, and the acts that say so."""
    with _opened(**target) as database:
        _show(database, namespace, session, as_json=as_json)
    return 0


def _policy_options(function: Any) -> Any:
    for name, (_field, meaning) in reversed(_DURATIONS.items()):
        option = f"--{name.replace('_', '-')}"
        function = click.option(option, name, type=_DURATION, metavar="DURATION", help=meaning)(function)
    return function


@command.command("set", short_help="Record an act on retention.")
@namespace_option
@click.option("--session", metavar="ID", help="For this session, instead of the namespace.")
@_policy_options
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
    help="Whether facts lose what a message gave them when it leaves; by default they outlive it.",
)
@click.option(
    "--archive",
    metavar="URL",
    help="Where messages go before they are removed: file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,"
    " handler:NAME, or an empty text for nowhere.",
)
@click.option("--actor", metavar="NAME", help="The name stored with the act.")
@as_json
@target_options
def set_command(
    namespace: str,
    session: str | None,
    max_messages: int | None,
    forget_facts: bool | None,
    archive: str | None,
    actor: str | None,
    as_json: bool,
    database_url: str | None,
    broker_url: str | None,
    schema: str | None,
    **durations: int | None,
) -> int:
    """Record how long a namespace, or a session in it, keeps what it holds.

    An act is the whole choice of its level: what is not given is left open, for a session to its namespace,
    for a namespace to keeping everything. It applies at once. Messages whose metadata has `"important": true`
    stay.
    """
    chosen = Retention(
        max_messages=max_messages,
        forget_facts=forget_facts,
        archive=archive,
        **{_DURATIONS[name][0]: seconds for name, seconds in durations.items()},
    )
    with _opened(database_url, broker_url, schema) as database:
        retention.set_retention(database, chosen, namespace=namespace, session_id=session, actor=actor)
        _show(database, namespace, session, as_json=as_json)
    return 0


@command.command("plan", short_help="Show what is past its time; change nothing.")
@all_namespaces
@session_option
@as_json
@target_options
def plan_command(namespace: str | None, session: str | None, as_json: bool, **target: Any) -> int:
    """Show, session by session, what is past its time and would leave now: a dry run of `retention run`."""
    with _opened(**target) as database:
        rows = list(retention.plan(database, namespace=namespace, session_id=session))
    if as_json:
        print_json(PlanReport(sessions=[PastReport(**asdict(row)) for row in rows]))
        return 0
    say(*map(_past_line, rows))
    leaving = sum(row.expired + row.aged + row.surplus for row in rows)
    say(
        f"{quantity(leaving, 'message')} of {quantity(len(rows), 'session')} would leave"
        if rows
        else "nothing is past its time"
    )
    return 0


@command.command("run", short_help="Archive and remove what is past its time, now.")
@all_namespaces
@session_option
@click.option("--at-once", is_flag=True, help="Do not rest between steps; puts may be slower meanwhile.")
@as_json
@target_options
def run_command(
    namespace: str | None, session: str | None, at_once: bool, as_json: bool, **target: Any
) -> int:
    """Archive and remove what is past its time, now; workers do the same by themselves.

    What workers still derive stays until they have. Ctrl-C stops it between two sessions.
    """
    said = time.monotonic()

    def tell(done: Removal) -> None:
        nonlocal said
        if not as_json and time.monotonic() - said > SAY_SECONDS:
            said = time.monotonic()
            say(f"{quantity(done.removed, 'message')} removed so far", err=True)

    with _opened(**target) as database, stops_at_signals() as stop:
        done = retention.run(
            database,
            namespace=namespace,
            session_id=session,
            on_progress=tell,
            stop=stop,
            at_once=at_once,
        )
    if as_json:
        print_json(RunReport(**asdict(done)))
    else:
        say(*_run_lines(done))
    return stop.exit_code or int(bool(done.failed))


@command.command("status", short_help="Show what has left, what is under way, and what fails.")
@all_namespaces
@as_json
@target_options
def status_command(namespace: str | None, as_json: bool, **target: Any) -> int:
    """Show what has left so far, the steps under way, why one fails, and the last passes of workers."""
    with _opened(**target) as database:
        status = retention.status(database, namespace=namespace)
    report = StatusReport(
        **status.totals._asdict(),
        steps=[
            OpenStepReport(**{name: getattr(step, name) for name in OpenStepReport.model_fields})
            for step in status.steps
        ],
        passes=[
            PassReport(
                run_id=run.run_id,
                state=run.state,
                counts=json.loads(run.counts),
                started_at=run.started_at,
                ended_at=run.ended_at,
            )
            for run in status.runs
        ],
    )
    if as_json:
        print_json(report)
    else:
        say(*_status_lines(report))
    return 0


@command.command("archived", short_help="List or print what a session has in archives.")
@click.argument("session")
@namespace_option
@click.option("--messages", is_flag=True, help="Print the messages as JSON lines, read from the archive.")
@as_json
@target_options
def archived_command(session: str, namespace: str, messages: bool, as_json: bool, **target: Any) -> int:
    """List the ranges of SESSION's messages that left its log, and where they are; or print the messages."""
    with _opened(**target) as database:
        if messages:
            for message in retention.read_archived(database, session, namespace=namespace):
                click.echo(json.dumps(_message(message), ensure_ascii=False))
            return 0
        ranges = retention.archived_ranges(database, session, namespace=namespace)
    if as_json:
        reports = [ArchivedRangeReport(**_range_fields(one)) for one in ranges]
        print_json(ArchivedReport(namespace=namespace, session_id=session, ranges=reports))
    else:
        say(*(map(_range_line, ranges) if ranges else ["nothing of this session has left its log"]))
    return 0


@command.command("restore", short_help="Bring a session's archived messages back.")
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
@as_json
@target_options
def restore_command(session: str, to: str, namespace: str, ttl: int, as_json: bool, **target: Any) -> int:
    """Bring the archived messages of SESSION back, as they were, into a session TO of the same user.

    Nothing is derived from them again: what they gave is kept. A restore that was ended goes on when it is
    called again.
    """
    with _opened(**target) as database:
        restored = retention.restore(database, session, to, namespace=namespace, ttl_seconds=ttl)
    if as_json:
        print_json(RestoredReport(**asdict(restored)))
    else:
        say(
            f"{quantity(restored.messages, 'message')} of {quantity(restored.ranges, 'range')} are in session"
            f" {quote(restored.session_id)} now, kept {duration_text(restored.ttl_seconds)}"
        )
    return 0


@contextmanager
def _opened(database_url: str | None, broker_url: str | None, schema: str | None) -> Iterator[Database]:
    settings = settings_from(database_url, broker_url, schema)
    with (
        servers_for_once(settings) as servers,
        opened_pool(servers.database_url, settings) as database,
    ):
        yield database


def _show(database: Database, namespace: str, session: str | None, *, as_json: bool) -> None:
    applied = retention.get_retention(database, namespace=namespace, session_id=session)
    acts = retention.retention_acts(database, namespace=namespace, session_id=session)
    if as_json:
        print_json(
            RetentionShownReport(
                namespace=namespace,
                session_id=session,
                **asdict(applied),
                acts=[_act_report(act) for act in acts],
            )
        )
        return
    whose = f"namespace {quote(namespace)}" if session is None else f"session {quote(session)}"
    lines = list(_policy_lines(applied))
    say(f"{whose} keeps everything" if not lines else f"{whose}:", *lines)
    for act in acts:
        at = act.created_at.isoformat(sep=" ", timespec="seconds")
        say(f"act {act.number}, {at}, by {act.actor or 'an operator'}: {act.retention.to_json()}")


def _act_report(act: RetentionAct) -> RetentionActReport:
    return RetentionActReport(
        number=act.number, actor=act.actor, created_at=act.created_at, **asdict(act.retention)
    )


def _policy_lines(applied: Retention) -> Iterator[str]:
    names = {field: name.replace("_", " ") for name, (field, _meaning) in _DURATIONS.items()}
    for field in fields(applied):
        value = getattr(applied, field.name)
        if not value:
            continue
        if field.name in names:
            yield f"  {names[field.name]}: {duration_text(value)}"
        elif field.name == "max_messages":
            yield f"  max messages: {value:,}"
        elif field.name == "archive":
            yield f"  archive: {value}"
        else:
            yield "  facts lose what a message gave them when it leaves"


def _past_line(row: Past) -> str:
    parts = {
        "expired": row.expired,
        "past their age": row.aged,
        "beyond the number": row.surplus,
    }
    said = ", ".join(f"{number:,} {why}" for why, number in parts.items() if number)
    kept = f"; {row.important:,} important stay" if row.important else ""
    return f"{row.namespace}/{row.session_id}: {said}{kept}"


def _run_lines(done: Removal) -> Iterator[str]:
    yield (
        f"{quantity(done.removed, 'message')} removed in {quantity(done.steps, 'step')},"
        f" {done.archived:,} archived, {done.kept:,} important kept"
    )
    if done.waiting:
        yield f"{quantity(done.waiting, 'session')} waiting: workers still derive what is to leave"
    if done.busy:
        yield f"{quantity(done.busy, 'step')} left to another process"
    if done.failed:
        yield f"{quantity(done.failed, 'step')} failed; `strandline retention status` says why"


def _status_lines(report: StatusReport) -> Iterator[str]:
    yield (
        f"{quantity(report.removed, 'message')} removed, {report.archived:,} archived,"
        f" {report.kept:,} important kept"
    )
    yield f"{quantity(report.open_steps, 'step')} under way, {report.failing_steps:,} failing"
    if report.waiting_lives:
        yield f"{quantity(report.waiting_lives, 'session')} ended, and not removed yet"
    for step in report.steps:
        where = "without an archive" if step.archive is None else f"to {step.archive}"
        error = f": {step.last_error}" if step.last_error else ""
        yield (
            f"{step.namespace}/{step.session_id}, messages {step.from_seq} to {step.through_seq},"
            f" {where}: {step.state}, {quantity(step.attempts, 'attempt')}{error}"
        )
    for one in report.passes:
        at = one.started_at.isoformat(sep=" ", timespec="seconds")
        counts = ", ".join(f"{number:,} {name}" for name, number in sorted(one.counts.items()))
        yield f"pass {one.run_id}, {at}: {one.state}{f' ({counts})' if counts else ''}"


def _range_line(one: ArchivedRange) -> str:
    where = "removed without an archive" if one.archive is None else f"{one.archive} {one.object_name or ''}"
    kept = f", {len(one.kept_seqs)} important kept" if one.kept_seqs else ""
    return f"messages {one.from_seq} to {one.through_seq} ({one.cause}), {one.state}{kept}: {where.strip()}"


def _range_fields(one: ArchivedRange) -> dict[str, Any]:
    values = {name: getattr(one, name) for name in ArchivedRangeReport.model_fields}
    return values | {"step_id": str(one.step_id), "kept_seqs": list(one.kept_seqs)}


def _message(message: Message) -> dict[str, Any]:
    return {
        "seq": message.seq,
        "id": message.id,
        "created_at": message.created_at.isoformat() if message.created_at else None,
        **message.to_openai(),
        **({"metadata": dict(message.metadata)} if message.metadata else {}),
    }
