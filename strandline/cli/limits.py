"""``strandline limits``: what a namespace may use at once and per day."""

from __future__ import annotations

import click

from strandline.cli.options import as_json, settings_from, target_options
from strandline.cli.reports import LimitsReport, NamespaceLimitsReport
from strandline.cli.targets import opened, running_servers
from strandline.cli.terminal import print_json, say
from strandline.schemas.database import Database
from strandline.schemas.identity import check_name
from strandline.schemas.settings import Settings
from strandline.schemas.shown_text import counted

_FIELDS = tuple(NamespaceLimitsReport.model_fields)


@click.group("limits", short_help="Set what a namespace may use.")
def command() -> None:
    """What namespaces may use at once, and of models per day (by UTC)."""


@command.command("set", short_help="Set the limits of a namespace.")
@click.argument("namespace")
@click.option("--lanes", type=click.IntRange(1), metavar="N", help="Lanes at work at once, of all workers.")
@click.option("--lanes-per-worker", type=click.IntRange(1), metavar="N", help="Of one worker.")
@click.option("--calls-per-day", type=click.IntRange(0), metavar="N", help="Model calls.")
@click.option("--tokens-per-day", type=click.IntRange(0), metavar="N", help="Tokens, in and out.")
@click.option("--usd-per-day", type=click.FloatRange(0), metavar="USD", help="By STRANDLINE_MODEL_PRICES.")
@as_json
@target_options
def set_limits(
    namespace: str,
    lanes: int | None,
    lanes_per_worker: int | None,
    calls_per_day: int | None,
    tokens_per_day: int | None,
    usd_per_day: float | None,
    as_json: bool,
    database_url: str | None,
    broker_url: str | None,
    schema: str | None,
) -> int:
    """Set the limits of NAMESPACE, all of them: what is not given is not limited.

    Workers heed them from the next lane on.  What waited for the former budget is tried again at once.
    """
    limits = {
        "max_lanes": lanes,
        "max_lanes_per_worker": lanes_per_worker,
        "calls_per_day": calls_per_day,
        "tokens_per_day": tokens_per_day,
        "usd_per_day": usd_per_day,
    }
    if all(limit is None for limit in limits.values()):
        raise click.UsageError(
            "No limit is given. Give one, such as --calls-per-day, or take all away with"
            " `strandline limits clear`."
        )
    settings = settings_from(database_url, broker_url, schema)
    with (
        running_servers(settings, only_looking=True) as servers,
        opened(servers.database_url, settings) as database,
    ):
        with database.transaction() as tx:
            tx.fetch("set_limits", {"namespace": check_name("namespace", namespace)} | limits)
            tx.fetch("ring_namespace", {"namespace": namespace})
        _show(read_limits(database, settings, namespace), as_json=as_json)
    return 0


@command.command("list", short_help="Show the limits, and what was used today.")
@click.argument("namespace", required=False)
@as_json
@target_options
def list_limits(
    namespace: str | None,
    as_json: bool,
    database_url: str | None,
    broker_url: str | None,
    schema: str | None,
) -> int:
    """Show the limits of NAMESPACE, or of all that have some, what was used today, and what waits."""
    settings = settings_from(database_url, broker_url, schema)
    with (
        running_servers(settings, only_looking=True) as servers,
        opened(servers.database_url, settings) as database,
    ):
        _show(read_limits(database, settings, namespace), as_json=as_json)
    return 0


@command.command("clear", short_help="Take the limits of a namespace away.")
@click.argument("namespace")
@target_options
def clear(namespace: str, database_url: str | None, broker_url: str | None, schema: str | None) -> int:
    """Take all limits of NAMESPACE away; what waited for its budget is tried again at once."""
    settings = settings_from(database_url, broker_url, schema)
    with (
        running_servers(settings, only_looking=True) as servers,
        opened(servers.database_url, settings) as database,
        database.transaction() as tx,
    ):
        cleared = tx.fetch("clear_limits", {"namespace": check_name("namespace", namespace)})
        tx.fetch("ring_namespace", {"namespace": namespace})
    if not cleared:
        raise click.ClickException(f"{namespace} has no limits; `strandline limits list` shows which have.")
    say(f"{namespace}: not limited any more")
    return 0


def read_limits(
    database: Database, settings: Settings, namespace: str | None = None
) -> list[NamespaceLimitsReport]:
    """The limits of a namespace, or of all that have some, with what was used today and what waits."""
    asked = {"namespace": namespace, "dead_after_seconds": settings.worker_dead_after_seconds}
    rows = database.fetch("list_limits", asked, repeatable=True)
    return [NamespaceLimitsReport(**dict(zip(_FIELDS, row, strict=True))) for row in rows]


def waiting_line(limits: NamespaceLimitsReport) -> str:
    """What waits for a budget, and until when."""
    return (
        f"namespace {limits.namespace} has used up its budget of {limits.waits_for}:"
        f" {counted(limits.due, 'event')} {'waits' if limits.due == 1 else 'wait'} until"
        f" {limits.waits_until:%Y-%m-%d %H:%M:%S %Z}"
    )


def _show(limits: list[NamespaceLimitsReport], *, as_json: bool) -> None:
    if as_json:
        print_json(LimitsReport(namespaces=limits))
        return
    for one in limits:
        say(_line(one))
        if one.waits_until is not None:
            say(f"  {waiting_line(one)}")
    if not limits:
        say("no namespace has limits; `strandline limits set` gives one some")


def _line(limits: NamespaceLimitsReport) -> str:
    parts = [
        f"{limits.lanes_at_work} of {limits.max_lanes} lanes at work" if limits.max_lanes is not None else "",
        f"at most {counted(limits.max_lanes_per_worker, 'lane')} a worker"
        if limits.max_lanes_per_worker is not None
        else "",
        _of_day(limits.calls_today, limits.calls_per_day, "model calls"),
        _of_day(limits.tokens_today, limits.tokens_per_day, "tokens"),
    ]
    if limits.usd_per_day is not None:
        parts.append(f"${limits.usd_today:,.2f} of ${limits.usd_per_day:,.2f} today")
    return f"{limits.namespace}: " + ", ".join(part for part in parts if part)


def _of_day(used: int, limit: int | None, what: str) -> str:
    return "" if limit is None else f"{used:,} of {limit:,} {what} today"
