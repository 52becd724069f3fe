"""``strandline facts figures`` and ``users``: how much there is of an owner, and of each user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.reports import OwnerFiguresReport, UsersReport
from strandline.cli.servers.memories import opened_facts, opened_namespace
from strandline.cli.servers.options import limit_option, namespace_option, owner_options
from strandline.cli.terminal.output import Row, table
from strandline.facts import Facts
from strandline.producers.facts.figures import UserFigures
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.schemas.display.shown_text import quantity, time_text
from strandline.schemas.wire.facts import FiguresOut, TopicOut

_HEADERS = ("user", "facts", "sessions", "messages", "tokens", "first session", "last put")


@cli_command(
    "figures",
    opened_facts,
    OwnerFiguresReport,
    short_help="Show how much there is of a user, and the topics.",
)
@owner_options
@click.option(
    "--topics",
    "most_topics",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="Show this many of the most frequent topics.",
)
def figures_command(
    facts: Facts, namespace: str, user: str | None, session: str | None, most_topics: int
) -> Output:
    """Show the number of facts, sessions, messages and tokens of an owner, their age, and the topics."""
    report = OwnerFiguresReport.of(
        namespace=namespace,
        user_id=user,
        session_id=session,
        figures=facts.figures(),
        topics=facts.topics(limit=most_topics),
    )
    return Output(report, _lines(report.figures, report.topics))


@cli_command("users", opened_namespace, UsersReport, short_help="List users with how much there is of each.")
@namespace_option
@limit_option(most=200)
@click.option("--after", metavar="ID", help="Continue after this user.")
def users_command(facts: NamespaceFacts, namespace: str, limit: int, after: str | None) -> Output:
    """List the users of a namespace who have a session or were given facts, by name, page by page."""
    page = facts.users(limit=limit, after=after)
    report = UsersReport.of(page, namespace=namespace, users=list(page))
    if not page:
        return Output(report, ["no users" if after is None else "no more users"])
    more = [] if page.after is None else [f"there are more: add --after {page.after}"]
    return Output(report, [*table(_HEADERS, map(_row, page)), *more])


def _lines(figures: FiguresOut, topics: Sequence[TopicOut]) -> Iterator[str]:
    since = "" if figures.oldest_fact_at is None else f", said {_at(figures.oldest_fact_at)} to"
    since += "" if figures.newest_fact_at is None else f" {_at(figures.newest_fact_at)}"
    yield f"{quantity(figures.facts, 'live fact')}{since}"
    put = "" if figures.last_put_at is None else f", the last put to {_at(figures.last_put_at)}"
    yield (
        f"{quantity(figures.sessions, 'session')}{put}: {quantity(figures.messages, 'message')},"
        f" {quantity(figures.tokens, 'token')}"
    )
    if topics:
        yield ""
        yield from table(("topic", "facts"), [(one.topic, one.facts) for one in topics])


def _row(user: UserFigures) -> Row:
    figures = user.figures
    return (
        user.user_id,
        figures.facts,
        figures.sessions,
        figures.messages,
        figures.tokens,
        _at(figures.first_session_at),
        _at(figures.last_put_at),
    )


def _at(moment: datetime | None) -> str:
    return "-" if moment is None else time_text(moment)
