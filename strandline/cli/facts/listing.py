"""``strandline facts list`` and ``history``: an owner's facts, and their origins."""

from __future__ import annotations

from collections.abc import Iterator

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.reports import FactHistoryReport, FactReport, FactsReport, FactStep
from strandline.cli.servers.memories import opened_facts
from strandline.cli.servers.options import limit_option, owner_options
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.output import table
from strandline.facts import Facts
from strandline.pipelines.inspect.explain_message import explain_fact_alone
from strandline.producers.facts.listing import Fact, FactPage, Sort
from strandline.schemas.display.shown_text import quantity, time_text
from strandline.schemas.postgres.database import Database
from strandline.schemas.wire.explanations import FactExplanation, RemovedFactExplanation, RevisionTrace


@cli_command("list", opened_facts, FactsReport, short_help="List the facts of a user or a session.")
@owner_options
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
def list_command(
    facts: Facts,
    namespace: str,
    user: str | None,
    session: str | None,
    sort: Sort,
    contains: str | None,
    topics: tuple[str, ...],
    everything: bool,
    limit: int,
    offset: int,
) -> Output:
    """List the facts of a user, or of the owner of a session, page by page."""
    page = facts.list(
        limit=limit,
        offset=offset,
        sort=sort,
        contains=contains,
        topics=list(topics) or None,
        with_invalidated=everything,
    )
    following = offset + len(page) if offset + len(page) < page.total else None
    report = FactsReport(
        namespace=namespace,
        user_id=user,
        session_id=session,
        total=page.total,
        next_offset=following,
        facts=[_report(fact) for fact in page],
    )
    return Output(report, _lines(page, following))


@cli_command("history", opened_database, FactHistoryReport, short_help="Show the history of a fact.")
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
        return
    rows = [
        (str(fact.fact_id), _state(fact), time_text(fact.said_at), fact.said_by or "-", fact.text)
        for fact in page
    ]
    yield from table(("fact", "state", "said", "by", "text"), rows)
    more = "" if following is None else f"; the next page: --offset {following}"
    yield f"{len(page):,} of {quantity(page.total, 'fact')}{more}"


def _state(fact: Fact) -> str:
    if fact.condensed_into is not None:
        return "condensed"
    return "live" if fact.is_live else "ended"


def _report(fact: Fact) -> FactReport:
    return FactReport.of(
        fact, live=fact.is_live, topics=list(fact.topics), message_ids=list(fact.message_ids)
    )


def _history(explanation: FactExplanation | RemovedFactExplanation) -> FactHistoryReport:
    deeds = list(explanation.events)
    if isinstance(explanation, RemovedFactExplanation):
        return FactHistoryReport(
            fact_id=explanation.fact_id, gone=True, live=False, text=None, steps=[], deeds=deeds
        )
    steps = [_step(revision) for revision in explanation.revisions]
    return FactHistoryReport.of(explanation, gone=False, steps=steps, deeds=deeds)


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
