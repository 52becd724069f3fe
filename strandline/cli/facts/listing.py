"""``strandline facts list`` and ``history``: what is known of an owner, and how it came to be known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from strandline.cli.reports.memory import FactDeed, FactHistoryReport, FactReport, FactsReport, FactStep
from strandline.cli.servers.memories import opened_facts
from strandline.cli.servers.options import (
    json_options,
    limit_option,
    namespace_option,
    settings_from,
    target_options,
)
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.output import print_json, print_table, say, show
from strandline.pipelines.inspect.explain_message import explain_fact_alone
from strandline.producers.facts.listing import Fact, FactPage, Sort
from strandline.schemas.display.shown_text import quantity, time_text
from strandline.schemas.wire.explanations import FactExplanation, RemovedFactExplanation, RevisionTrace


@click.command("list", short_help="List the facts of a user or a session.")
@namespace_option
@click.option("--user", metavar="ID", help="The user whose facts are listed.")
@click.option("--session", metavar="ID", help="The session whose owner's facts are listed.")
@click.option(
    "--sort", type=click.Choice(["newest", "oldest", "updated"]), default="newest", show_default=True
)
@click.option("--contains", metavar="TEXT", help="Only facts whose text contains TEXT.")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    help="Only facts with one of these topics; repeatable.",
)
@click.option("--all", "everything", is_flag=True, help="Include facts that ended or were condensed.")
@limit_option()
@click.option("--offset", type=click.IntRange(0), default=0, help="How many to skip, for the next page.")
@json_options(FactsReport)
@target_options
def list_command(
    namespace: str,
    user: str | None,
    session: str | None,
    sort: Sort,
    contains: str | None,
    topics: tuple[str, ...],
    everything: bool,
    limit: int,
    offset: int,
    as_json: bool,
    **target: Any,
) -> None:
    """List the facts of a user, or of the owner of a session, page by page."""
    with opened_facts(
        settings_from(**target), namespace=namespace, user_id=user, session_id=session
    ) as facts:
        page = facts.list(
            limit=limit,
            offset=offset,
            sort=sort,
            contains=contains,
            topics=list(topics) or None,
            with_invalidated=everything,
        )
    following = offset + len(page) if offset + len(page) < page.total else None
    if as_json:
        print_json(
            FactsReport(
                namespace=namespace,
                user_id=user,
                session_id=session,
                total=page.total,
                next_offset=following,
                facts=[_report(fact) for fact in page],
            )
        )
    else:
        _print(page, following)


@click.command("history", short_help="Show the history of a fact.")
@click.argument("fact_id", metavar="FACT_ID")
@namespace_option
@click.option("--user", metavar="ID", help="The user whose fact it is.")
@click.option("--session", metavar="ID", help="The session whose owner's fact it is.")
@json_options(FactHistoryReport)
@target_options
def history_command(
    fact_id: str,
    namespace: str,
    user: str | None,
    session: str | None,
    as_json: bool,
    **target: Any,
) -> None:
    """Show each step of a fact, oldest first, and the changes people made to it, even if it is gone.

    `strandline explain` shows the same fact with its flushes, batches, prompts and model calls.
    """
    with opened_database(settings_from(**target)) as database:
        explanation = explain_fact_alone(
            database, fact_id, namespace=namespace, session_id=session, user_id=user
        )
    report = _history(explanation)
    show(report, _history_lines(report), as_json=as_json)


def _print(page: FactPage, following: int | None) -> None:
    if not page:
        say("no facts" if not page.total else f"no more facts; there are {page.total:,}")
        return
    rows = [
        (str(fact.fact_id), _state(fact), time_text(fact.said_at), fact.said_by or "-", fact.text)
        for fact in page
    ]
    print_table(("fact", "state", "said", "by", "text"), rows)
    more = "" if following is None else f"; the next page: --offset {following}"
    say(f"{len(page):,} of {quantity(page.total, 'fact')}{more}")


def _state(fact: Fact) -> str:
    if fact.condensed_into is not None:
        return "condensed"
    return "live" if fact.is_live else "ended"


def _report(fact: Fact) -> FactReport:
    taken_over = {
        name: getattr(fact, name)
        for name in FactReport.model_fields
        if name not in ("live", "topics", "message_ids")
    }
    return FactReport(
        **taken_over, live=fact.is_live, topics=list(fact.topics), message_ids=list(fact.message_ids)
    )


def _history(explanation: FactExplanation | RemovedFactExplanation) -> FactHistoryReport:
    deeds = [
        FactDeed(number=event.number, kind=event.kind, at=event.at, actor=event.actor)
        for event in explanation.events
    ]
    if isinstance(explanation, RemovedFactExplanation):
        return FactHistoryReport(
            fact_id=explanation.fact_id, gone=True, live=False, text=None, steps=[], deeds=deeds
        )
    return FactHistoryReport(
        fact_id=explanation.fact_id,
        gone=False,
        live=explanation.live,
        text=explanation.text,
        steps=[_step(revision) for revision in explanation.revisions],
        deeds=deeds,
    )


def _step(revision: RevisionTrace) -> FactStep:
    return FactStep.of(
        revision,
        number=revision.revision,
        message_ids=[source.id for source in revision.messages],
        by_a_person=revision.fact_event is not None,
    )


def _history_lines(report: FactHistoryReport) -> Iterator[str]:
    if report.gone:
        yield f"fact {report.fact_id} is gone: a person removed it"
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
