"""The settings of this process: its environment, with a call's arguments on top."""

from __future__ import annotations

import os
from functools import lru_cache

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.foreign_values import plain_text

_VARIABLE_PREFIXES = ("STRANDLINE_", "OPENAI_")

# ``from_defaults``' spelling of arguments.
_ARGUMENTS = {"database_url": "database_url=", "broker_url": "broker_url=", "database_schema": "schema="}


def settings_with(**overrides: str | None) -> Settings:
    """The settings of the current environment, with the ``overrides`` that are not None.

    Raises:
        ConfigurationError: naming each variable or argument that cannot be used, and why.
    """
    settings = _settings_of(
        tuple((name, os.environ[name]) for name in os.environ if name.startswith(_VARIABLE_PREFIXES))
    )
    arguments = tuple((name, _text(name, value)) for name, value in overrides.items() if value is not None)
    return _overridden(settings, arguments) if arguments else settings


def _text(name: str, value: object) -> str:
    # Not quoted: it may be meant as a URL, and hold a password.
    if not isinstance(value, str):
        argument = _ARGUMENTS.get(name, f"{name}=").removesuffix("=")
        raise ConfigurationError(f"{argument} must be a string, not {type(value).__name__}.")
    return plain_text(value)


@lru_cache(maxsize=16)
def _settings_of(_environment: tuple[tuple[str, str], ...]) -> Settings:
    """The settings of an environment, read again only after it changed."""
    return load_settings()


@lru_cache(maxsize=64)
def _overridden(settings: Settings, arguments: tuple[tuple[str, str], ...]) -> Settings:
    return load_settings(_ARGUMENTS, **dict(arguments))
