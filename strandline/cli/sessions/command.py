"""``strandline sessions``: which sessions there are, how one stands, its policy and its corrections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from strandline.cli.servers.options import json_options, limit_option, settings_from, target_options
from strandline.cli.servers.targets import opened_database
from strandline.cli.sessions.corrections import (
    delete_command,
    fork_command,
    replace_command,
    rewind_command,
)
from strandline.cli.sessions.policy import policy_lines, set_policy_command
from strandline.cli.terminal.output import print_json, print_table, say
from strandline.pipelines.inspect.corrections import correction_line
from strandline.pipelines.inspect.policy_history import change_line
from strandline.pipelines.inspect.sessions import (
    PipelineCoverage,
    SessionPage,
    SessionPicture,
    SessionState,
    list_sessions,
    show_session,
)
from strandline.schemas.display.shown_text import quantity, time_text

_HEADERS = (
    "namespace", "session", "user", "messages", "window tokens", "pinned", "flushed", "window from",
    "last put",
)  # fmt: skip


@click.group("sessions")
def command() -> None:
    """List and show the sessions of a database; set the policy of one, correct or delete it."""


command.add_command(set_policy_command)
command.add_command(rewind_command)
command.add_command(replace_command)
command.add_command(fork_command)
command.add_command(delete_command)


@command.command("list", short_help="List sessions by name.")
@click.option("--namespace", metavar="NAME", help="Only those of this namespace.")
@click.option(
    "--user", metavar="ID", help="Only those of this user (of namespace default, unless one is named)."
)
@limit_option()
@click.option("--after", metavar="PLACE", help="Continue after a page, with the PLACE that it printed.")
@json_options(SessionPage)
@target_options
def list_command(
    namespace: str | None,
    user: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
    **target: Any,
) -> None:
    """List sessions by name, with their marks, page by page."""
    with opened_database(settings_from(**target)) as database:
        page = list_sessions(database, namespace=namespace, user_id=user, limit=limit, after=after)
    if as_json:
        print_json(page)
    elif not page.sessions:
        say("no more sessions" if after else "no sessions")
    else:
        print_table(_HEADERS, [_row(state) for state in page.sessions])
        if page.after is not None:
            say(f"there are more: add --after {page.after}")


@command.command("show", short_help="Show the state of a session.")
@click.argument("session")
@click.option("--namespace", metavar="NAME", help="Its namespace; default: default.")
@click.option("--user", metavar="ID", help="The user that must own it; default: any.")
@click.option(
    "--flushes",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="Show this many of the newest flushes.",
)
@json_options(SessionPicture)
@target_options
def show_command(
    session: str,
    namespace: str | None,
    user: str | None,
    flushes: int,
    as_json: bool,
    **target: Any,
) -> None:
    """Show a session's marks, its policy, how far each pipeline is, its flushes and its dead letters."""
    with opened_database(settings_from(**target)) as database:
        picture = show_session(database, session, namespace=namespace, user_id=user, flushes=flushes)
    if as_json:
        print_json(picture)
    else:
        _print(picture)


def _row(state: SessionState) -> tuple[str | int, ...]:
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


def _print(picture: SessionPicture) -> None:
    say(*_state_lines(picture.session), *policy_lines(picture.session.policy))
    say(*map(change_line, picture.policy_changes), *map(correction_line, picture.corrections))
    if picture.coverage:
        say("")
        print_table(
            ("pipeline", "generation", "covered", "due", "dead"), [*map(_coverage_row, picture.coverage)]
        )
    say("", f"{quantity(picture.flushes, 'flush', 'flushes')} so far")
    if picture.latest_flushes:
        flushes = [
            (
                str(flush.event_id),
                flush.cause,
                flush.from_seq,
                flush.through_seq,
                flush.tokens,
                time_text(flush.at),
            )
            for flush in picture.latest_flushes
        ]
        print_table(("flush event", "cause", "from", "through", "tokens", "at"), flushes)
    for letter in picture.dead_letters:
        say(f"dead letter {letter.id}: messages {letter.from_seq} to {letter.through_seq}: {letter.reason}")


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


def _coverage_row(coverage: PipelineCoverage) -> tuple[str | int, ...]:
    if coverage.generation is None:
        return coverage.pipeline, "not registered", "-", "-", "-"
    return (
        coverage.pipeline,
        str(coverage.generation),
        f"through {coverage.covered_through}",
        str(coverage.due),
        str(coverage.dead),
    )
