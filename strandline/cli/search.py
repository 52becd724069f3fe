"""``strandline search``: messages and facts, best first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.memories import opened_session, opened_user
from strandline.cli.servers.options import limit_option, list_or_none, namespace_option, time_options
from strandline.cli.terminal.output import table
from strandline.memory import Memory
from strandline.pipelines.inspect.explain_fact import excerpt
from strandline.pipelines.transcript import speaker
from strandline.producers.search.facts import FoundFact
from strandline.producers.search.hits import HitKind
from strandline.producers.search.search import SearchResult, SearchResults
from strandline.schemas.foreign_json import read_json
from strandline.schemas.settings import Settings
from strandline.schemas.values.labels import Scalar
from strandline.schemas.values.message import ROLES
from strandline.schemas.wire.report import Report


class HitReport(Report):
    """A message or a fact that a search found; ``similarity`` null where only words were compared."""

    kind: Literal["message", "fact"]
    score: float
    similarity: float | None
    text: str
    session_id: str | None
    seq: int | None
    id: str
    said_by: str | None
    at: datetime | None


class SearchReport(Report):
    """``strandline search``: hits, best first.

    Attributes:
        problem: why only words were compared; null if vectors were as well.
    """

    namespace: str
    session_id: str | None
    user_id: str | None
    scope: Literal["session", "owner"]
    query: str
    hits: list[HitReport]
    problem: str | None


Scope = Literal["session", "owner"]


@contextmanager
def _open_memory(
    settings: Settings, session: str | None, user: str | None, scope: Scope | None, namespace: str
) -> Iterator[Memory]:
    if session is not None:
        with opened_session(settings, session, namespace, user) as (memory, _):
            yield memory
    elif user is None:
        raise click.UsageError("Where? Give --session, or --user for all sessions of a user.")
    elif scope == "session":
        raise click.UsageError("--scope session needs --session.")
    else:
        with opened_user(settings, user, namespace) as memory:
            yield memory


def _pairs(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> Any:
    return dict(map(_pair, texts)) or None


def _pair(text: str) -> tuple[str, Scalar]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--metadata {text} has no value; write KEY=VALUE.")
    try:
        return key, read_json(value)
    except (ValueError, RecursionError):
        return key, value


@cli_command("search", _open_memory, SearchReport)
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
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    callback=list_or_none,
    help="Only messages of this role; repeatable.",
)
@click.option(
    "--metadata",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_pairs,
    help="Only messages with this in their metadata; VALUE as JSON, or a text; repeatable.",
)
@time_options("messages")
@limit_option(default=10)
def command(
    memory: Memory,
    query: str,
    namespace: str,
    session: str | None,
    user: str | None,
    scope: Scope | None,
    kinds: tuple[HitKind, ...],
    limit: int,
    **filters: Any,
) -> Output:
    """Search the messages and facts of a session, or of all sessions of a user, as `memory.search` does.

    With `--role`, `--metadata`, `--since` or `--until` only messages are searched.

    The only model call is the query's embedding; without one, words decide.
    """
    scope = scope or ("owner" if session is None else "session")
    default_kinds: tuple[HitKind, ...] = ("message",) if any(filters.values()) else ("message", "fact")
    results = memory.search(query, limit=limit, scope=scope, kinds=kinds or default_kinds, **filters)
    report = SearchReport(
        namespace=namespace,
        session_id=session,
        user_id=user,
        scope=scope,
        query=query,
        hits=[_hit(one) for one in results],
        problem=results.problem if isinstance(results, SearchResults) else None,
    )
    return Output(report, _lines(report), notes=[report.problem] if report.problem is not None else [])


def _hit(hit: SearchResult) -> HitReport:
    if isinstance(hit, FoundFact):
        fact = hit.fact
        return HitReport.of(
            hit, session_id=None, seq=None, id=str(fact.fact_id), said_by=fact.said_by, at=fact.said_at
        )
    message = hit.message
    return HitReport.of(
        hit, seq=message.seq, id=message.id or "", said_by=speaker(message), at=message.created_at
    )


def _lines(report: SearchReport) -> Iterator[str]:
    rows = [
        (f"{hit.score:.3f}", hit.kind, hit.id, hit.session_id or "-", hit.said_by or "-", excerpt(hit.text))
        for hit in report.hits
    ]
    if not rows:
        yield "nothing found"
        return
    yield from table(("score", "kind", "id", "session", "said by", "text"), rows)
