"""``strandline search``: what was said and what is known, best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import click

from strandline.cli.reports.memory import HitReport, SearchReport
from strandline.cli.servers.memories import opened_session, opened_user
from strandline.cli.servers.options import (
    json_options,
    limit_option,
    namespace_option,
    settings_from,
    target_options,
)
from strandline.cli.terminal.output import print_json, print_table, say
from strandline.pipelines.inspect.rows import excerpt
from strandline.pipelines.transcript import speaker
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.hits import HitKind
from strandline.producers.search.search import SearchResult, SearchResults
from strandline.schemas.settings import Settings

Scope = Literal["session", "owner"]


@click.command("search")
@click.argument("query")
@namespace_option
@click.option("--session", metavar="ID", help="Search in this session.")
@click.option("--user", metavar="ID", help="Search in all sessions of this user.")
@click.option(
    "--scope",
    type=click.Choice(["session", "owner"]),
    help="With --session: only this session, or all of its owner's; default: only this one.",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(["message", "fact"]),
    multiple=True,
    help="Only hits of this kind; default: both.",
)
@limit_option(default=10)
@json_options(SearchReport)
@target_options
def command(
    query: str,
    namespace: str,
    session: str | None,
    user: str | None,
    scope: Scope | None,
    kinds: tuple[HitKind, ...],
    limit: int,
    as_json: bool,
    **target: Any,
) -> None:
    """Search the messages and facts of a session, or of all sessions of a user, as `memory.search` does.

    The only model call is the query's embedding; without one, words decide.
    """
    if session is None and user is None:
        raise click.UsageError("Where? Give --session, or --user for all sessions of a user.")
    where: Scope = scope or ("owner" if session is None else "session")
    if session is None and where == "session":
        raise click.UsageError("--scope session needs --session.")
    results = _search(
        settings_from(**target), query, namespace, session, user, where, kinds or ("message", "fact"), limit
    )
    hits = [_hit(one) for one in results]
    problem = results.problem if isinstance(results, SearchResults) else None
    if as_json:
        print_json(
            SearchReport(
                namespace=namespace,
                session_id=session,
                user_id=user,
                scope=where,
                query=query,
                hits=hits,
                problem=problem,
            )
        )
        return
    if problem is not None:
        say(problem, err=True)
    if not hits:
        say("nothing found")
    else:
        print_table(("score", "kind", "id", "session", "said by", "text"), [_row(hit) for hit in hits])


def _search(
    settings: Settings,
    query: str,
    namespace: str,
    session: str | None,
    user: str | None,
    scope: Scope,
    kinds: Sequence[HitKind],
    limit: int,
) -> Sequence[SearchResult]:
    if session is None:
        with opened_user(settings, user or "", namespace=namespace) as memory:
            return memory.search(query, limit=limit, scope=scope, kinds=kinds)
    with opened_session(settings, session, namespace=namespace, user_id=user) as (memory, _state):
        return memory.search(query, limit=limit, scope=scope, kinds=kinds)


def _hit(hit: SearchResult) -> HitReport:
    if isinstance(hit, FoundFact):
        return HitReport(
            kind="fact",
            score=hit.score,
            similarity=hit.similarity,
            text=hit.text,
            session_id=None,
            seq=None,
            id=str(hit.fact.fact_id),
            said_by=hit.fact.said_by,
            at=hit.fact.said_at,
        )
    return HitReport(
        kind="message",
        score=hit.score,
        similarity=hit.similarity,
        text=hit.text,
        session_id=hit.session_id,
        seq=hit.message.seq,
        id=hit.message.id or "",
        said_by=speaker(hit.message),
        at=hit.message.created_at,
    )


def _row(hit: HitReport) -> tuple[str, ...]:
    return (
        f"{hit.score:.3f}",
        hit.kind,
        hit.id,
        hit.session_id or "-",
        hit.said_by or "-",
        excerpt(hit.text),
    )
