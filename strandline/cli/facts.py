"""``strandline facts``: lists and figures of an owner, capture, and clearing a namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import date, datetime
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import click

from strandline.cli.command import CommandGroup, Output
from strandline.cli.explain import gone_line, successor_lines
from strandline.cli.servers.memories import opened_facts, opened_namespace, opened_new_facts
from strandline.cli.servers.options import (
    Command,
    actor_option,
    limit_option,
    list_or_none,
    namespace_option,
    owner_options,
    settings_alone,
    time_options,
)
from strandline.cli.servers.targets import opened_database, opened_servers
from strandline.cli.terminal.output import Row, table
from strandline.cli.terminal.progress import shown_progress
from strandline.facts import Facts
from strandline.pipelines.inspect.explain_message import explain_fact_alone
from strandline.producers.facts.capturing import CaptureAct
from strandline.producers.facts.figures import UserFigures
from strandline.producers.facts.listing import Fact, FactPage
from strandline.producers.namespace_facts import Clearing, NamespaceFacts
from strandline.producers.owner_facts import CaptureFace
from strandline.schemas.display.shown_text import quantity, quote, time_text
from strandline.schemas.errors import NotFoundError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.acts.capture import MAX_INSTRUCTIONS_CHARACTERS, Capture
from strandline.schemas.values.doubts import Settlement
from strandline.schemas.wire.base import WaitingOut
from strandline.schemas.wire.explanations import (
    FactEventTrace,
    FactExplanation,
    RemovedFactExplanation,
    SuccessorTrace,
)
from strandline.schemas.wire.facts import CaptureOut, DoubtOut, FiguresOut, TopicOut, UserOut
from strandline.schemas.wire.report import Report
from strandline.schemas.wire.work import ClearFactsReport


@click.group("facts", cls=CommandGroup)
def command() -> None:
    """List and change facts, show their history and figures, choose what to capture, clear a namespace."""


class FactReport(Report):
    """A fact; ``strandline.Fact`` explains the times."""

    fact_id: UUID
    text: str
    topics: list[str]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    valid_from: datetime
    valid_until: datetime | None
    live: bool
    invalidated_by: UUID | None
    condensed_into: UUID | None
    doubt: DoubtOut | None
    feedback: str | None
    message_ids: list[str]


class FactsReport(Report):
    """``strandline facts list``: a page, and how many there are; ``next_offset`` null at the end.

    ``waiting``: if there are none, the messages that no flush has delivered yet.
    """

    namespace: str
    user_id: str | None
    session_id: str | None
    total: int
    next_offset: int | None
    facts: list[FactReport]
    waiting: WaitingOut | None


class DeletedFactReport(Report):
    """``strandline facts delete``: the fact that is gone."""

    fact_id: UUID


class FactStep(Report):
    """One step of a fact's history: derived from messages, or done by a person (``actor``)."""

    number: int
    operation: str
    at: datetime
    text: str
    session_id: str | None
    message_ids: list[str]
    model: str | None
    actor: str | None
    by_a_person: bool


class FactHistoryReport(Report):
    """``strandline facts history``: oldest first; of a removed fact only people's acts.

    ``successors`` are the live facts of its messages, if the serving derivation has not this one.
    """

    fact_id: UUID
    gone: bool
    live: bool
    text: str | None
    steps: list[FactStep]
    deeds: list[FactEventTrace]
    successors: list[SuccessorTrace]


class CaptureActReport(CaptureOut):
    """One act: the choice of a namespace or an owner, its actor and its time."""

    number: int
    actor: str | None
    created_at: datetime


class CaptureReport(CaptureOut):
    """``strandline facts capture``: what applies now, and the acts of this level, newest first."""

    namespace: str
    user_id: str | None
    session_id: str | None
    acts: list[CaptureActReport]


class OwnerFiguresReport(Report):
    """``strandline facts figures``: of a user or the owner of a session; the most frequent topics first."""

    namespace: str
    user_id: str | None
    session_id: str | None
    figures: FiguresOut
    topics: list[TopicOut]


class UsersReport(Report):
    """``strandline facts users``: a page by name; ``after`` is what ``--after`` takes, null at the end."""

    namespace: str
    users: list[UserOut]
    after: str | None


_OPERATIONS = ("add", "update", "delete")


def _text_option(name: str, help_text: str) -> Callable[[Command], Command]:
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option(name, type=file, metavar="FILE", callback=_text_of, help=help_text)


def _text_of(_context: click.Context, _option: click.Parameter, path: Path | None) -> str | None:
    """A file's text, read only far enough to tell that it is too long."""
    if path is None:
        return None
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_INSTRUCTIONS_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError):
        raise click.UsageError(f"{path} cannot be read as UTF-8 text.") from None


@command.add("capture", settings_alone, CaptureReport)
@namespace_option
@click.option("--user", metavar="ID", help="Of this user; without --user and --session, of the namespace.")
@click.option("--session", metavar="ID", help="Of the owner of this session, which has no user.")
@click.option("--set", "is_set", is_flag=True, help="Record an act with the options below.")
@click.option(
    "--on", "on", type=click.Choice(_OPERATIONS), multiple=True, help="Switch an operation on; repeatable."
)
@click.option(
    "--off", "off", type=click.Choice(_OPERATIONS), multiple=True, help="Switch an operation off; repeatable."
)
@_text_option("--instructions", "What to keep, in place of the prompt's own words.")
@_text_option("--more-instructions", "Further instructions, added to those on what to keep.")
@_text_option("--summary-instructions", "How to write summaries, in place of the prompt's own words.")
@actor_option
def capture_command(
    settings: Settings,
    namespace: str,
    user: str | None,
    session: str | None,
    is_set: bool,
    on: tuple[str, ...],
    off: tuple[str, ...],
    actor: str | None,
    **texts: str | None,
) -> Output:
    """Show the choice of a namespace or an owner on capturing facts, and all acts; --set records an act.

    An act is the whole choice of its level, and applies to later flushes. A choice that it
    leaves open is the namespace's, and then the prompt's; `--set` alone leaves everything open.
    """
    is_chosen = bool(on or off or actor) or any(text is not None for text in texts.values())
    if is_chosen and not is_set:
        raise click.UsageError("Nothing would be set. Add --set to record an act.")
    if both := set(on) & set(off):
        raise click.UsageError(f"--on and --off both name {', '.join(sorted(both))}. Choose one of the two.")
    with _open_face(settings, namespace, user, session) as face:
        if is_set:
            add, update, delete = (name in on if name in on + off else None for name in _OPERATIONS)
            face.set_capture(Capture(add, update, delete, **texts), actor=actor)
        applied, acts = face.get_capture(), face.capture_acts()
    acts_done = [
        CaptureActReport(number=act.number, actor=act.actor, created_at=act.created_at, **asdict(act.capture))
        for act in acts
    ]
    report = CaptureReport(
        namespace=namespace, user_id=user, session_id=session, acts=acts_done, **asdict(applied)
    )
    return Output(report, _capture_lines(applied, acts))


@contextmanager
def _open_face(
    settings: Settings, namespace: str, user: str | None, session: str | None
) -> Iterator[CaptureFace]:
    if user is not None or session is not None:
        with opened_facts(settings, namespace, user, session) as facts:
            yield facts
        return
    with (
        opened_servers(settings) as running,
        closing(Facts.of_namespace(namespace, **running.urls)) as facts_of_all,
    ):
        yield facts_of_all


def _capture_lines(applied: Capture, acts: list[CaptureAct]) -> Iterator[str]:
    for name in _OPERATIONS:
        is_off = getattr(applied, f"may_{name}") is False
        yield f"{name}: {'off' if is_off else 'on'}"
    yield f"instructions: {applied.instructions or 'those of the prompt'}"
    yield f"more instructions: {applied.more_instructions or 'none'}"
    yield f"summaries: {applied.summary_instructions or 'as the prompt says'}"
    for act in acts:
        at = time_text(act.created_at)
        yield f"act {act.number}, {at}, by {act.actor or 'an operator'}: {act.capture.to_json()}"


_USERS_HEADERS = ("user", "facts", "sessions", "messages", "tokens", "first session", "last put")


@command.add("figures", opened_facts, OwnerFiguresReport)
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
    return Output(report, _figures_lines(report.figures, report.topics))


@command.add("users", opened_namespace, UsersReport)
@limit_option(most=200)
@click.option("--after", metavar="ID", help="Continue after this user.")
def users_command(facts: NamespaceFacts, namespace: str, limit: int, after: str | None) -> Output:
    """List the users of a namespace who have a session or were given facts, by name, page by page."""
    page = facts.users(limit=limit, after=after)
    report = UsersReport.of(page, namespace=namespace, users=list(page))
    if not page:
        return Output(report, ["no users" if after is None else "no more users"])
    more = [] if page.after is None else [f"there are more: add --after {page.after}"]
    return Output(report, [*table(_USERS_HEADERS, map(_user_row, page)), *more])


def _figures_lines(figures: FiguresOut, topics: Sequence[TopicOut]) -> Iterator[str]:
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


def _user_row(user: UserFigures) -> Row:
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


def _topics_option(help_text: str) -> Callable[[Command], Command]:
    return click.option(
        "--topic", "topics", metavar="TOPIC", multiple=True, callback=list_or_none, help=help_text
    )


def _at(moment: datetime | None) -> str:
    return "-" if moment is None else time_text(moment)


@command.add("list", opened_facts, FactsReport)
@click.option(
    "--sort", type=click.Choice(["newest", "oldest", "updated"]), default="newest", show_default=True
)
@click.option("--contains", metavar="TEXT", help="Only facts whose text contains TEXT.")
@_topics_option("Only facts with one of these topics; repeatable.")
@click.option("--all", "with_invalidated", is_flag=True, help="Include facts that ended or were condensed.")
@click.option("--doubtful", is_flag=True, help="Only facts that may contradict another one.")
@limit_option()
@click.option("--offset", type=click.IntRange(0), default=0, help="How many to skip, for the next page.")
@time_options("facts last said")
def list_command(
    facts: Facts,
    namespace: str,
    user: str | None,
    session: str | None,
    offset: int,
    **chosen: Any,
) -> Output:
    """List the facts of a user, or of the owner of a session, page by page."""
    page = facts.list(offset=offset, **chosen)
    following = offset + len(page) if offset + len(page) < page.total else None
    report = FactsReport(
        namespace=namespace,
        user_id=user,
        session_id=session,
        total=page.total,
        next_offset=following,
        facts=[_report(fact) for fact in page],
        waiting=None if page.waiting is None else WaitingOut.model_validate(page.waiting),
    )
    return Output(report, _lines(page, following))


def _wording_options(command: Command) -> Command:
    topics = _topics_option("A topic; repeatable.")
    day = click.option("--about-date", type=click.DateTime(["%Y-%m-%d"]), help="The day it is about.")
    return actor_option(topics(day(command)))


@command.add("add", opened_new_facts, FactReport)
@click.argument("text")
@_wording_options
@click.option("--as-is", is_flag=True, help="Do not look for facts that it may contradict.")
def add_command(
    facts: Facts, namespace: str, user: str | None, session: str | None, **wording: Any
) -> Output:
    """Add the fact TEXT for a user, or for the owner of a session; the same statement is one fact."""
    return _output("added", facts.add(**wording))


@command.add("replace", opened_facts, FactReport)
@click.argument("fact_id", metavar="FACT_ID")
@click.argument("text")
@_wording_options
def replace_command(
    facts: Facts, fact_id: str, namespace: str, user: str | None, session: str | None, **wording: Any
) -> Output:
    """Give a live fact the words TEXT; the old ones do not come back from earlier messages."""
    return _output("replaced", facts.replace(fact_id, **wording), fact_id)


@command.add("delete", opened_facts, DeletedFactReport)
@click.argument("fact_id", metavar="FACT_ID")
@click.option(
    "--with-messages", is_flag=True, help="Also put [deleted] in place of the messages it came from."
)
@actor_option
def delete_command(facts: Facts, fact_id: str, with_messages: bool, actor: str | None) -> Output:
    """Delete a fact and its history for good; it does not come back from earlier messages."""
    if not facts.delete(fact_id, actor=actor, with_messages=with_messages):
        raise _unknown(fact_id)
    return Output(DeletedFactReport(fact_id=UUID(fact_id)), [f"deleted {fact_id}"])


@command.add("settle", opened_facts, FactReport)
@click.argument("fact_id", metavar="FACT_ID")
@click.argument("keep", type=click.Choice(get_args(Settlement)))
@actor_option
def settle_command(facts: Facts, fact_id: str, keep: Settlement, actor: str | None) -> Output:
    """Keep a doubtful fact (new), the fact it may contradict (old), or both; the other is deleted.

    `strandline facts list --doubtful` shows doubtful facts; `strandline explain FACT_ID` says why one is.
    """
    return _output("kept", facts.settle(fact_id, keep, actor=actor), fact_id)


def _output(done: str, fact: Fact | None, fact_id: str = "") -> Output:
    if fact is None:
        raise _unknown(fact_id)
    doubts = _doubt_lines([fact])
    return Output(_report(fact), [f"{done} {fact.fact_id}: {fact.text}", *doubts])


def _unknown(fact_id: str) -> NotFoundError:
    return NotFoundError(
        f"This owner has no live fact with the id {quote(fact_id)}; `strandline facts list` shows their ids."
    )


@command.add("history", opened_database, FactHistoryReport)
@click.argument("fact_id", metavar="FACT_ID")
@owner_options
def history_command(
    database: Database, fact_id: str, namespace: str, user: str | None, session: str | None
) -> Output:
    """Show each step of a fact, oldest first, and the changes people made to it, even if it is gone.

    `strandline explain` shows the same fact with its flushes, batches, prompts and model calls.
    """
    report = _history(
        explain_fact_alone(database, fact_id, namespace=namespace, session_id=session, user_id=user)
    )
    return Output(report, _history_lines(report))


def _lines(page: FactPage, following: int | None) -> Iterator[str]:
    if not page:
        yield "no facts" if not page.total else f"no more facts; there are {page.total:,}"
        yield from () if page.waiting is None else [str(page.waiting)]
        return
    rows = [
        (str(fact.fact_id), _state(fact), time_text(fact.said_at), fact.said_by or "-", fact.text)
        for fact in page
    ]
    yield from table(("fact", "state", "said", "by", "text"), rows)
    yield from _doubt_lines(page)
    more = "" if following is None else f"; the next page: --offset {following}"
    yield f"{len(page):,} of {quantity(page.total, 'fact')}{more}"


def _doubt_lines(facts: Sequence[Fact]) -> Iterator[str]:
    for fact in facts:
        if fact.doubt is not None:
            yield f"{fact.fact_id} may contradict {fact.doubt.fact_id}: {fact.doubt.reason}"


def _state(fact: Fact) -> str:
    if fact.condensed_into is not None:
        return "condensed"
    if fact.is_doubtful:
        return "doubtful"
    return "live" if fact.is_live else "ended"


def _report(fact: Fact) -> FactReport:
    return FactReport.of(
        fact, live=fact.is_live, topics=list(fact.topics), message_ids=list(fact.message_ids)
    )


def _history(explanation: FactExplanation | RemovedFactExplanation) -> FactHistoryReport:
    deeds = list(explanation.events)
    if isinstance(explanation, RemovedFactExplanation):
        return FactHistoryReport.of(explanation, gone=True, live=False, text=None, steps=[], deeds=deeds)
    steps = [
        FactStep.of(
            revision,
            number=revision.revision,
            message_ids=[source.id for source in revision.messages],
            by_a_person=revision.fact_event is not None,
        )
        for revision in explanation.revisions
    ]
    return FactHistoryReport.of(explanation, gone=False, steps=steps, deeds=deeds)


def _history_lines(report: FactHistoryReport) -> Iterator[str]:
    if report.gone:
        yield gone_line(report.fact_id, report.deeds)
    else:
        yield f"fact {report.fact_id} ({'live' if report.live else 'ended'}): {report.text}"
    for step in report.steps:
        yield f"{step.number}. {step.operation} {time_text(step.at)}: {step.text}"
        if step.by_a_person:
            yield f"   by {step.actor or 'a person'}"
        else:
            messages = ", ".join(step.message_ids)
            yield f"   from {messages} of session {step.session_id}, by {step.model}"
    for deed in report.deeds:
        yield f"event {deed.number}: {deed.kind} {time_text(deed.at)} by {deed.actor or 'a person'}"
    yield from successor_lines(report.successors)


@command.add("clear", opened_namespace, ClearFactsReport)
@click.option(
    "--namespace", metavar="NAME", required=True, help="The namespace whose owners' facts are cleared."
)
@click.option("--yes", is_flag=True, help="Clear them; without --yes, only print what would be cleared.")
@actor_option
def clear_command(facts: NamespaceFacts, namespace: str, yes: bool, actor: str | None) -> Output:
    """Clear the facts of every owner of a namespace, for good, as one event per owner.

    Nothing said earlier comes back as a fact; messages, summaries and vectors stay. The command may be
    interrupted; run again, it continues where it stopped.
    """
    done = _clear_facts(facts, actor) if yes else facts.to_clear()
    report = ClearFactsReport(namespace=namespace, dry_run=not yes, owners=done.owners, facts=done.facts)
    what = f"{quantity(done.facts, 'live fact')} of {quantity(done.owners, 'owner')}"
    line = f"{namespace}: cleared {what}" if yes else f"{namespace}: would clear {what}; add --yes to do it"
    return Output(report, [line])


def _clear_facts(facts: NamespaceFacts, actor: str | None) -> Clearing:
    done, owners = Clearing(), facts.to_clear().owners
    with shown_progress("clearing", "owner") as show:
        for cleared in facts.clear_each(actor=actor):
            done += cleared
            show(done.owners, owners, f"{quantity(done.owners, 'owner')} done")
    return done
