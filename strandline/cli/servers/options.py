"""Options that several commands share, and the settings they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from strandline.schemas.settings import Settings, load_settings, load_usable_settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE

Command = TypeVar("Command", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")

_SHOWS = "Arguments show in `ps`: a URL with a password belongs in that variable."
_DATABASE = click.option(
    "--database-url", metavar="URL", help=f"Postgres; overrides STRANDLINE_DATABASE_URL. {_SHOWS}"
)
_BROKER = click.option(
    "--broker-url", metavar="URL", help=f"Redis or RabbitMQ; overrides STRANDLINE_BROKER_URL. {_SHOWS}"
)
_SCHEMA = click.option(
    "--schema", metavar="NAME", help="Postgres schema of the tables; overrides STRANDLINE_DATABASE_SCHEMA."
)


namespace_option = click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True)
json_schema_option = click.option(
    "--json-schema", is_flag=True, help="Print the JSON Schema of the --json output, and exit."
)


def target_options(command: Command) -> Command:
    """``--database-url``, ``--broker-url`` and ``--schema``."""
    return _DATABASE(_BROKER(_SCHEMA(command)))


_OPTIONS = {"database_url": "--database-url", "broker_url": "--broker-url", "database_schema": "--schema"}


def settings_from(database_url: str | None, broker_url: str | None, schema: str | None) -> Settings:
    """The environment's settings with the options given on top.

    Raises:
        ConfigurationError: a setting cannot be used.
    """
    return load_settings(_OPTIONS, **_overrides(database_url, broker_url, schema))


def usable_settings_from(
    database_url: str | None, broker_url: str | None, schema: str | None
) -> tuple[Settings, dict[str, str]]:
    """As ``settings_from``, with defaults in place of what cannot be used; and why it cannot, by field."""
    return load_usable_settings(_OPTIONS, **_overrides(database_url, broker_url, schema))


def _overrides(database_url: str | None, broker_url: str | None, schema: str | None) -> dict[str, str]:
    options = {"database_url": database_url, "broker_url": broker_url, "database_schema": schema}
    return {name: value for name, value in options.items() if value is not None}
