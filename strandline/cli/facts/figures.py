"""``strandline facts figures`` and ``users``: how much there is of an owner, and of each user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from strandline.cli.reports.memory import (
    FiguresReport,
    OwnerFiguresReport,
    TopicReport,
    UserReport,
    UsersReport,
)
from strandline.cli.servers.memories import opened_facts, opened_namespace
from strandline.cli.servers.options import (
    json_options,
    limit_option,
    namespace_option,
    settings_from,
    target_options,
)
from strandline.cli.terminal.output import print_json, print_table, say
from strandline.producers.facts.figures import OwnerFigures, TopicCount, UserPage
from strandline.schemas.display.shown_text import quantity, time_text

_HEADERS = ("user", "facts", "sessions", "messages", "tokens", "first session", "last put")


@click.command("figures", short_help="Show how much there is of a user, and the topics.")
@namespace_option
@click.option("--user", metavar="ID", help="The user whose figures are shown.")
@click.option("--session", metavar="ID", help="The session whose owner's figures are shown.")
@click.option(
    "--topics",
    "most_topics",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="Show this many of the most frequent topics.",
)
@json_options(OwnerFiguresReport)
@target_options
def figures_command(
    namespace: str,
    user: str | None,
    session: str | None,
    most_topics: int,
    as_json: bool,
    **target: Any,
) -> None:
    """Show the number of facts, sessions, messages and tokens of an owner, their age, and the topics."""
    settings = settings_from(**target)
    with opened_facts(settings, namespace=namespace, user_id=user, session_id=session) as facts:
        figures, topics = facts.figures(), facts.topics(limit=most_topics)
    if as_json:
        print_json(
            OwnerFiguresReport(
                namespace=namespace,
                user_id=user,
                session_id=session,
                figures=_report(figures),
                topics=[TopicReport(topic=one.topic, facts=one.facts) for one in topics],
            )
        )
    else:
        _print(figures, topics)


@click.command("users", short_help="List users with how much there is of each.")
@namespace_option
@limit_option(most=200)
@click.option("--after", metavar="ID", help="Continue after this user.")
@json_options(UsersReport)
@target_options
def users_command(namespace: str, limit: int, after: str | None, as_json: bool, **target: Any) -> None:
    """List the users of a namespace who have a session or were given facts, by name, page by page."""
    with opened_namespace(settings_from(**target), namespace) as facts:
        page = facts.users(limit=limit, after=after)
    if as_json:
        users = [UserReport(user_id=one.user_id, figures=_report(one.figures)) for one in page]
        print_json(UsersReport(namespace=namespace, users=users, after=page.after))
    else:
        _print_users(page, is_first=after is None)


def _print(figures: OwnerFigures, topics: Sequence[TopicCount]) -> None:
    since = "" if figures.oldest_fact_at is None else f", said {_at(figures.oldest_fact_at)} to"
    since += "" if figures.newest_fact_at is None else f" {_at(figures.newest_fact_at)}"
    say(f"{quantity(figures.facts, 'live fact')}{since}")
    put = "" if figures.last_put_at is None else f", the last put to {_at(figures.last_put_at)}"
    say(
        f"{quantity(figures.sessions, 'session')}{put}: {quantity(figures.messages, 'message')},"
        f" {quantity(figures.tokens, 'token')}"
    )
    if topics:
        say("")
        print_table(("topic", "facts"), [(one.topic, one.facts) for one in topics])


def _print_users(page: UserPage, *, is_first: bool) -> None:
    if not page:
        say("no users" if is_first else "no more users")
        return
    print_table(_HEADERS, [_row(one.user_id, one.figures) for one in page])
    if page.after is not None:
        say(f"there are more: add --after {page.after}")


def _row(user_id: str, figures: OwnerFigures) -> tuple[str | int, ...]:
    return (
        user_id,
        figures.facts,
        figures.sessions,
        figures.messages,
        figures.tokens,
        _at(figures.first_session_at),
        _at(figures.last_put_at),
    )


def _report(figures: OwnerFigures) -> FiguresReport:
    return FiguresReport(**asdict(figures))


def _at(moment: datetime | None) -> str:
    return "-" if moment is None else time_text(moment)
