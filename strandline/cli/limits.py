"""``strandline limits``: a namespace's limits at once and per day, and its agents' rights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from strandline.administration.attention import waiting_line
from strandline.administration.limits import clear_limits, read_limits, write_limits
from strandline.cli.command import CommandGroup, Output
from strandline.cli.servers.options import Command, FiniteRange, settings_alone
from strandline.cli.servers.targets import Running, opened_database, opened_servers
from strandline.cli.terminal.output import say
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.errors import NotFoundError
from strandline.schemas.model_roles import ROLES
from strandline.schemas.postgres.database import Database
from strandline.schemas.prices import cost_usd
from strandline.schemas.queries.conversation.sessions import NamespaceIsKnown
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import check_name
from strandline.schemas.wire.operations import LimitsIn
from strandline.schemas.wire.work import LimitsReport, NamespaceLimitsReport


@click.group("limits", cls=CommandGroup)
def command() -> None:
    """Limit what namespaces may use at once, their model use per day (UTC), and what agents may do."""


# Limits are taken as numbers that Postgres can keep, and that add up.
_LANES, _NUMBER = click.IntRange(1, 2**31 - 1), click.IntRange(0, 10**15)

# Of each limit, by column: its option, what that takes (None: a flag), and its help.
_LIMITS: dict[str, tuple[str, click.ParamType[Any] | None, str]] = {
    "max_lanes": ("--lanes", _LANES, "Lanes at work at the same time."),
    "max_lanes_per_worker": ("--lanes-per-worker", _LANES, "The same for one worker."),
    "calls_per_day": ("--calls-per-day", _NUMBER, "Model calls per day (UTC)."),
    "tokens_per_day": ("--tokens-per-day", _NUMBER, "Tokens per day (UTC), input and output."),
    "usd_per_day": ("--usd-per-day", FiniteRange(0), "Dollars per day (UTC), by STRANDLINE_MODEL_PRICES."),
    "agents_read_only": (
        "--agents-read-only",
        None,
        "Agents may read memories by their tools (`Memory.tools`, `strandline mcp`), and not change them.",
    ),
    "max_sessions": ("--sessions", _NUMBER, "Sessions that are stored."),
    "max_bytes": ("--bytes", _NUMBER, "Bytes of messages that are stored."),
}


def _limit_options(command: Command) -> Command:
    for column, (option, number, meaning) in reversed(_LIMITS.items()):
        metavar = None if number is None else "USD" if column == "usd_per_day" else "N"
        kind = {"is_flag": True} if number is None else {"type": number}
        command = click.option(option, column, metavar=metavar, help=meaning, **kind)(command)
    return command


def _cleared_options(command: Command) -> Command:
    for column, (option, _, _) in reversed(_LIMITS.items()):
        command = click.option(option, column, is_flag=True, help="Remove this limit.")(command)
    return command


@command.add("set", settings_alone, LimitsReport)
@click.argument("namespace")
@_limit_options
def set_command(settings: Settings, namespace: str, **limits: Any) -> Output:
    """Set limits of NAMESPACE; limits that are not given stay as they are (`limits clear` removes them).

    Workers apply them from the next batch on, and a lower budget after a second or two. Work that waited for
    the earlier budget is tried again at once. A budget counts from the moment the namespace has one; earlier
    use on the same day is not counted.
    """
    changes = LimitsIn(**limits)
    if changes == LimitsIn():
        raise click.UsageError(
            "No limit is given. Give one, such as --calls-per-day, or remove all with `strandline limits"
            " clear`."
        )
    with opened_database(settings) as database:
        write_limits(database, namespace, changes)
        say(*_notes(database, settings, namespace, changes.usd_per_day), err=True)
        return _show(read_limits(database, settings, namespace))


@command.add("list", opened_servers, LimitsReport)
@click.argument("namespace", required=False)
def list_command(running: Running, namespace: str | None) -> Output:
    """Show the limits of NAMESPACE, or of all with limits, with today's use and waiting work."""
    return _show(read_limits(running.database, running.settings, namespace))


@command.add("clear", settings_alone)
@click.argument("namespace")
@_cleared_options
def clear_command(settings: Settings, namespace: str, **flags: bool) -> None:
    """Remove the named limits of NAMESPACE, or all of them.

    Work that waited for its budget is tried again at once.
    """
    check_name("namespace", namespace)
    with opened_database(settings) as database:
        named = [column for column in _LIMITS if flags[column]]
        _check_set(read_limits(database, settings, namespace), namespace, named)
        clear_limits(database, namespace, named or list(_LIMITS))
        left = read_limits(database, settings, namespace)
    say(*map(_line, left) if left else [f"{namespace}: no longer limited"])


def _check_set(limits: list[NamespaceLimitsReport], namespace: str, named: list[str]) -> None:
    if not limits:
        raise NotFoundError(
            f"No limit is set for namespace {quote(namespace)};"
            " `strandline limits list` shows the namespaces with limits."
        )
    values = {column: getattr(limits[0], column) for column in named}
    missing = [_LIMITS[column][0] for column, value in values.items() if value is None or value is False]
    if missing:
        raise NotFoundError(f"Namespace {quote(namespace)} has no limit {' or '.join(missing)}.")


def _notes(database: Database, settings: Settings, namespace: str, usd_per_day: float | None) -> list[str]:
    notes = []
    if not database.fetch(NamespaceIsKnown(namespace=namespace))[0].known:
        notes.append(
            f"Namespace {quote(namespace)} is still empty; its limits apply from its first message on."
        )
    if usd_per_day is not None and not settings.model_prices:
        notes.append(
            "STRANDLINE_MODEL_PRICES is not set here; while it is not set for the workers,"
            " every call counts as $0, and --usd-per-day bounds nothing."
        )
    elif usd_per_day is not None and (unpriced := _unpriced_models(settings)):
        notes.append(
            f"STRANDLINE_MODEL_PRICES has no price of {' and '.join(unpriced)} here;"
            " calls of a model without a price count as $0 of --usd-per-day."
        )
    return notes


def _unpriced_models(settings: Settings) -> list[str]:
    used = [settings.role(role).of.model for role in ROLES if settings.backend(role) == "openai"]
    sizes = {"input_tokens": 1, "output_tokens": 1}
    return [model for model in dict.fromkeys(used) if cost_usd(settings.model_prices, model, **sizes) is None]


def _show(limits: list[NamespaceLimitsReport]) -> Output:
    return Output(LimitsReport(namespaces=limits), _lines(limits))


def _lines(limits: list[NamespaceLimitsReport]) -> Iterator[str]:
    for one in limits:
        yield _line(one)
        if one.waits_until is not None:
            yield f"  {waiting_line(one)}"
    if not limits:
        yield "no namespace has limits; `strandline limits set` gives one some"


def _line(limits: NamespaceLimitsReport) -> str:
    parts = [
        f"{limits.lanes_at_work} of {limits.max_lanes} lanes at work" if limits.max_lanes is not None else "",
        f"at most {quantity(limits.max_lanes_per_worker, 'lane')} a worker"
        if limits.max_lanes_per_worker is not None
        else "",
        _of_day(limits.calls_today, limits.calls_per_day, "model calls"),
        _of_day(limits.tokens_today, limits.tokens_per_day, "tokens"),
    ]
    if limits.usd_per_day is not None:
        parts.append(f"${limits.usd_today:,.2f} of ${limits.usd_per_day:,.2f} today")
    if limits.agents_read_only:
        parts.append("agents may only read")
    for stored, most, what in (
        (limits.sessions_stored, limits.max_sessions, "sessions"),
        (limits.bytes_stored, limits.max_bytes, "bytes"),
    ):
        if most is not None:
            parts.append(f"{stored or 0:,} of {most:,} {what} stored")
    return f"{limits.namespace}: " + ", ".join(part for part in parts if part)


def _of_day(used: int, limit: int | None, what: str) -> str:
    return "" if limit is None else f"{used:,} of {limit:,} {what} today"
