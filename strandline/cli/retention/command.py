"""``strandline retention``: how long things are kept, removals so far, and archives."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

import click

from strandline import retention
from strandline.cli.command import Output, cli_command
from strandline.cli.retention.durations import DURATIONS, Duration, duration_text
from strandline.cli.retention.lines import (
    message_fields,
    past_line,
    policy_lines,
    range_line,
    run_lines,
    status_lines,
    waiting_lines,
)
from strandline.cli.retention.reports import (
    ArchivedReport,
    PassReport,
    PastReport,
    PlanReport,
    RestoredReport,
    RetentionActReport,
    RetentionShownReport,
    RunReport,
    StatusReport,
)
from strandline.cli.servers.names import check_to_be_changed, even_if_unknown_option, opened_to_read
from strandline.cli.servers.options import actor_option, namespace_option
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.interrupts import stops_at_signals
from strandline.cli.terminal.output import print_json_line, say
from strandline.retention import Removal, Retention
from strandline.schemas.display.shown_text import quantity, quote, time_text
from strandline.schemas.errors import ArchiveError
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.acts.retention import HANDLER, MAX_MESSAGES
from strandline.wiring.archives import open_archive

SAY_SECONDS = 2.0

_DURATION = Duration()

all_namespaces = click.option("--namespace", metavar="NAME", help="Only sessions of this namespace.")
session_option = click.option("--session", metavar="ID", help="Only this session.")


@cli_command(
    "show", opened_to_read, RetentionShownReport, short_help="Show what applies to a namespace or a session."
)
@namespace_option
@click.option("--session", metavar="ID", help="Of this session, instead of the namespace.")
def show_command(database: Database, namespace: str, session: str | None) -> Output:
    """Show how long a namespace, or a session in it, keeps what it holds, and the acts that say so."""
    return _show(database, namespace, session)


def _policy_options(function: Any) -> Any:
    for name, (_field, meaning) in reversed(DURATIONS.items()):
        option = f"--{name.replace('_', '-')}"
        function = click.option(option, name, type=_DURATION, metavar="DURATION", help=meaning)(function)
    return function


@cli_command("set", opened_database, RetentionShownReport, short_help="Record an act on retention.")
@namespace_option
@click.option("--session", metavar="ID", help="For this session, instead of the namespace.")
@even_if_unknown_option
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
    session: str | None,
    max_messages: int | None,
    forget_facts: bool | None,
    keeps_important: bool | None,
    archive: str | None,
    even_if_unknown: bool,
    actor: str | None,
    **durations: int | None,
) -> Output:
    """Record how long a namespace, or a session in it, keeps what it holds.

    An act is the whole choice of its level. An option that is not given leaves its bound open: a session has
    that of its namespace then, a namespace keeps everything. It applies at once. Messages whose metadata has
    `"important": true` stay.
    """
    chosen = Retention(
        max_messages=max_messages,
        forget_facts=forget_facts,
        keeps_important=keeps_important,
        archive=archive,
        **{DURATIONS[name][0]: seconds for name, seconds in durations.items()},
    )
    check_to_be_changed(database, namespace, even_if_unknown=even_if_unknown)
    if not even_if_unknown:
        _check_handler(archive)
    retention.set_retention(database, chosen, namespace=namespace, session_id=session, actor=actor)
    return _show(database, namespace, session)


@cli_command("plan", opened_to_read, PlanReport, short_help="Show what is past its time; change nothing.")
@all_namespaces
@session_option
def plan_command(database: Database, namespace: str | None, session: str | None) -> Output:
    """Show the messages of each session that are past their time: a dry run of `retention run`."""
    rows = list(retention.plan(database, namespace=namespace, session_id=session))
    report = PlanReport(sessions=[PastReport.of(row, leaving=row.free) for row in rows])
    leaving, waiting = sum(row.free for row in rows), sum(row.waiting for row in rows)
    what = f"{quantity(leaving, 'message')} of {quantity(len(rows), 'session')} would leave"
    lines = [*map(past_line, rows), what if rows else "nothing is past its time", *waiting_lines(waiting)]
    return Output(report, lines)


@cli_command("run", opened_to_read, RunReport, short_help="Archive and remove what is past its time, now.")
@all_namespaces
@session_option
@click.option("--at-once", is_flag=True, help="Do not rest between steps; puts may be slower meanwhile.")
def run_command(
    database: Database, namespace: str | None, session: str | None, at_once: bool, as_json: bool
) -> Output:
    """Archive and remove what is past its time, now; workers do the same by themselves.

    What workers still derive stays until they have. Ctrl-C stops it between two sessions.
    """
    told_at = time.monotonic()

    def tell(done: Removal) -> None:
        nonlocal told_at
        if not as_json and time.monotonic() - told_at > SAY_SECONDS:
            told_at = time.monotonic()
            say(f"{quantity(done.removed, 'message')} removed so far", err=True)

    with stops_at_signals() as stop:
        done = retention.run(
            database,
            namespace=namespace,
            session_id=session,
            on_progress=tell,
            stop=stop,
            at_once=at_once,
        )
        rest = retention.plan(database, namespace=namespace, session_id=session)
        waiting = 0 if stop.is_set() else sum(row.waiting for row in rest)
    return Output(
        RunReport.of(done, waiting_messages=waiting),
        [*run_lines(done), *waiting_lines(waiting)],
        code=stop.exit_code or int(bool(done.failed)),
    )


@cli_command(
    "status",
    opened_to_read,
    StatusReport,
    short_help="Show how much has left, the steps under way, and failures.",
)
@all_namespaces
def status_command(database: Database, namespace: str | None) -> Output:
    """Show how much has left so far, the steps under way, why one fails, and the last passes of workers."""
    status = retention.status(database, namespace=namespace)
    passes = [PassReport.of(run, counts=json.loads(run.counts)) for run in status.runs]
    report = StatusReport.of(status.totals, steps=status.steps, passes=passes)
    return Output(report, status_lines(report))


@cli_command(
    "archived", opened_to_read, ArchivedReport, short_help="List or print what a session has in archives."
)
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


@cli_command(
    "restore", opened_to_read, RestoredReport, short_help="Bring a session's archived messages back."
)
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

    Nothing is derived from them again, and all that they gave is kept. A restore that was ended goes on
    when it is called again.
    """
    restored = retention.restore(database, session, to, namespace=namespace, ttl_seconds=ttl)
    lines = [
        f"{quantity(restored.messages, 'message')} of {quantity(restored.ranges, 'range')} are in session"
        f" {quote(restored.session_id)} now, kept {duration_text(restored.ttl_seconds)}",
        "  `get_all()` and `history()` give them; the context that `get` returns begins behind them",
    ]
    return Output(RestoredReport.of(restored), lines)


def _check_handler(archive: str | None) -> None:
    """Check that a handler is installed here, as it must be where workers run.

    Raises:
        ArchiveError: it is not.
    """
    if archive is not None and archive.startswith(f"{HANDLER}:"):
        try:
            open_archive(archive)
        except ArchiveError as error:
            raise ArchiveError(
                f"{error} If it is installed there and not here, add --even-if-unknown."
            ) from error


def _show(database: Database, namespace: str, session: str | None) -> Output:
    applied = retention.get_retention(database, namespace=namespace, session_id=session)
    acts = retention.retention_acts(database, namespace=namespace, session_id=session)
    reports = [RetentionActReport.of(act, **asdict(act.retention)) for act in acts]
    report = RetentionShownReport.of(applied, namespace=namespace, session_id=session, acts=reports)
    whose = f"namespace {quote(namespace)}" if session is None else f"session {quote(session)}"
    policy = list(policy_lines(applied))
    act_lines = [
        f"act {act.number}, {time_text(act.created_at)}, by {act.actor or 'an operator'}:"
        f" {act.retention.to_json()}"
        for act in acts
    ]
    return Output(report, [f"{whose}:" if policy else f"{whose} keeps everything", *policy, *act_lines])


@click.group(
    "retention",
    commands=[
        show_command,
        set_command,
        plan_command,
        run_command,
        status_command,
        archived_command,
        restore_command,
    ],
)
def command() -> None:
    """Set how long things are kept; look at what leaves, and at what is archived.

    A number with a unit is a duration (s, m, h, d, w), such as 30d; `never` sets no bound. No read shows
    anything that is past its time, also before workers have archived and removed it.
    """
