"""Options that several commands share, and the settings they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from strandline.schemas.settings import Settings, load_settings, load_usable_settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE

Command = TypeVar("Command", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """A number within bounds; unlike Click's own, it refuses ``nan`` and ``inf``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class UtcTime(click.DateTime):
    """A time, which is given in UTC."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        moment: datetime = super().convert(value, param, ctx)
        return moment.replace(tzinfo=UTC)


TIME_FORMATS = "In UTC: 2026-11-25, 2026-11-25T10:00:00 or '2026-11-25 10:00:00'."


def time_options(what: str) -> Callable[[Command], Command]:
    """``--since`` and ``--until``, which bound the time of ``what`` is listed."""

    def with_times(command: Command) -> Command:
        words = {"since": "from this time on", "until": "up to this time"}
        for name, bound in reversed(words.items()):
            sentence = f"Only {what} {bound}. {TIME_FORMATS}"
            command = click.option(f"--{name}", type=UtcTime(), metavar="TIME", help=sentence)(command)
        return command

    return with_times


_SHOWS = "Arguments show in `ps`: a URL with a password belongs in that variable."
TARGETS = (
    click.Option(
        ["--database-url"], metavar="URL", help=f"Postgres; overrides STRANDLINE_DATABASE_URL. {_SHOWS}"
    ),
    click.Option(
        ["--broker-url"], metavar="URL", help=f"Redis or RabbitMQ; overrides STRANDLINE_BROKER_URL. {_SHOWS}"
    ),
    click.Option(
        ["--schema", "database_schema"],
        metavar="NAME",
        help="Postgres schema of the tables; overrides STRANDLINE_DATABASE_SCHEMA.",
    ),
)

namespace_option = click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True)
user_option = click.option("--user", metavar="ID", help="The user that must own it; default: any.")
namespace_filter = click.option("--namespace", metavar="NAME", help="Only those of this namespace.")
pipeline_filter = click.option("--pipeline", metavar="NAME", help="Only those of this pipeline.")
actor_option = click.option("--actor", metavar="NAME", help="Your name; it is stored with the change.")


def session_options(command: Command) -> Command:
    """A session by its id, ``--namespace`` and ``--user``."""
    return click.argument("session")(namespace_option(user_option(command)))


def owner_options(command: Command) -> Command:
    """``--namespace``, and ``--user`` or ``--session`` for an owner of facts."""
    user = click.option("--user", metavar="ID", help="The user whose facts they are.")
    session = click.option("--session", metavar="ID", help="The session whose owner's facts they are.")
    return namespace_option(user(session(command)))


def limit_option(*, default: int = 50, most: int = 1_000) -> Callable[[Command], Command]:
    """``--limit``: how many results, up to ``most``."""
    number = click.IntRange(1, most)
    return click.option(
        "--limit", type=number, default=default, show_default=True, help="Maximum number of results."
    )


def list_or_none(_context: click.Context, _option: click.Parameter, values: tuple[Any, ...]) -> Any:
    """The callback of a repeatable option that leaves something open if it is not given."""
    return list(values) or None


def target_options(command: Command) -> Command:
    """``--database-url``, ``--broker-url`` and ``--schema``."""
    for option in reversed(TARGETS):
        command = click.option(*option.opts, str(option.name), metavar=option.metavar, help=option.help)(
            command
        )
    return command


@contextmanager
def settings_alone(settings: Settings) -> Iterator[Settings]:
    """The settings, for a command that checks its options before it opens anything."""
    yield settings


_OPTIONS = {str(target.name): target.opts[0] for target in TARGETS}


def settings_from(options: dict[str, Any]) -> Settings:
    """The environment's settings with those of ``TARGETS`` on top, which are taken out of the options."""
    return load_settings(_OPTIONS, **_taken_from(options))


def usable_settings_from(options: dict[str, Any]) -> tuple[Settings, dict[str, str]]:
    """As ``settings_from``, with defaults in place of what cannot be used; and why it cannot, by field."""
    return load_usable_settings(_OPTIONS, **_taken_from(options))


def _taken_from(options: dict[str, Any]) -> dict[str, str]:
    named = {name: options.pop(name) for name in _OPTIONS}
    return {name: value for name, value in named.items() if value is not None}
