"""``strandline sessions``: which sessions there are, how one stands, its policy and its corrections."""

from __future__ import annotations

from collections.abc import Iterator

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.options import limit_option, user_option
from strandline.cli.servers.targets import opened_database
from strandline.cli.sessions.corrections import (
    delete_command,
    fork_command,
    replace_command,
    rewind_command,
)
from strandline.cli.sessions.policy import policy_lines, set_policy_command
from strandline.cli.terminal.output import Row, table
from strandline.pipelines.inspect.changes import change_line, correction_line
from strandline.pipelines.inspect.sessions import (
    PipelineCoverage,
    SessionFlush,
    SessionPage,
    SessionPicture,
    SessionState,
    list_sessions,
    show_session,
)
from strandline.schemas.display.shown_text import quantity, time_text
from strandline.schemas.postgres.database import Database

_HEADERS = (
    "namespace", "session", "user", "messages", "window tokens", "pinned", "flushed", "window from",
    "last put",
)  # fmt: skip


@cli_command("list", opened_database, SessionPage, short_help="List sessions by name.")
@click.option("--namespace", metavar="NAME", help="Only those of this namespace.")
@click.option(
    "--user", metavar="ID", help="Only those of this user (of namespace default, unless one is named)."
)
@limit_option()
@click.option("--after", metavar="PLACE", help="Continue after a page, with the PLACE that it printed.")
def list_command(
    database: Database, namespace: str | None, user: str | None, limit: int, after: str | None
) -> Output:
    """List sessions by name, with their marks, page by page."""
    page = list_sessions(database, namespace=namespace, user_id=user, limit=limit, after=after)
    if not page.sessions:
        return Output(page, ["no more sessions" if after else "no sessions"])
    more = [] if page.after is None else [f"there are more: add --after {page.after}"]
    return Output(page, [*table(_HEADERS, map(_row, page.sessions)), *more])


@cli_command("show", opened_database, SessionPicture, short_help="Show the state of a session.")
@click.argument("session")
@click.option("--namespace", metavar="NAME", help="Its namespace; default: default.")
@user_option
@click.option(
    "--flushes",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="Show this many of the newest flushes.",
)
def show_command(
    database: Database, session: str, namespace: str | None, user: str | None, flushes: int
) -> Output:
    """Show a session's marks, its policy, how far each pipeline is, its flushes and its dead letters."""
    picture = show_session(database, session, namespace=namespace, user_id=user, flushes=flushes)
    return Output(picture, _lines(picture))


def _row(state: SessionState) -> Row:
    return (
        state.namespace,
        state.session_id,
        state.user_id or "-",
        state.messages,
        state.window_tokens,
        state.pinned_through,
        state.flushed_through,
        state.window_from,
        time_text(state.last_put_at),
    )


def _lines(picture: SessionPicture) -> Iterator[str]:
    yield from _state_lines(picture.session)
    yield from policy_lines(picture.session.policy)
    yield from map(change_line, picture.policy_changes)
    yield from map(correction_line, picture.corrections)
    if picture.coverage:
        yield ""
        yield from table(
            ("pipeline", "generation", "covered", "due", "dead"), map(_coverage_row, picture.coverage)
        )
    yield from ("", f"{quantity(picture.flushes, 'flush', 'flushes')} so far")
    if picture.latest_flushes:
        headers = ("flush event", "cause", "from", "through", "tokens", "at")
        yield from table(headers, map(_flush_row, picture.latest_flushes))
    for letter in picture.dead_letters:
        yield f"dead letter {letter.id}: messages {letter.from_seq} to {letter.through_seq}: {letter.reason}"


def _flush_row(flush: SessionFlush) -> Row:
    at = time_text(flush.at)
    return (str(flush.event_id), flush.cause, flush.from_seq, flush.through_seq, flush.tokens, at)


def _state_lines(state: SessionState) -> Iterator[str]:
    owner = f" of {state.user_id}" if state.user_id else ""
    yield f"session {state.session_id}{owner}, namespace {state.namespace}"
    yield f"begun {time_text(state.created_at)}, last put {time_text(state.last_put_at)}"
    yield f"{quantity(state.messages, 'message')}, seq {state.log_start_seq} to {state.last_seq}"
    yield (
        f"marks: pinned through {state.pinned_through}, flushed through {state.flushed_through},"
        f" window from {state.window_from}"
    )
    yield (
        f"tokens: {state.window_tokens:,} in the window, {state.pinned_tokens:,} in the pinned head;"
        f" flushes above {state.policy.flush_at_tokens:,}"
    )


def _coverage_row(coverage: PipelineCoverage) -> Row:
    if coverage.generation is None:
        return coverage.pipeline, "not registered", "-", "-", "-"
    return (
        coverage.pipeline,
        str(coverage.generation),
        f"through {coverage.covered_through}",
        str(coverage.due),
        str(coverage.dead),
    )


@click.group(
    "sessions",
    commands=[
        list_command,
        show_command,
        set_policy_command,
        rewind_command,
        replace_command,
        fork_command,
        delete_command,
    ],
)
def command() -> None:
    """List and show the sessions of a database; set the policy of one, correct or delete it."""
