"""Finds the compliance hook of the application: by its place, or the name of an entry point."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from strandline.producers.audit.compliance import Compliance
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings

ENTRY_POINT_GROUP = "strandline.compliance"


def compliance_of(settings: Settings) -> Compliance | None:
    """The hook that ``STRANDLINE_COMPLIANCE`` names; None if it names none.

    Raises:
        ConfigurationError: it cannot be imported, or cannot be called.
    """
    if not settings.compliance:
        return None
    hook = _load(settings.compliance)
    return Compliance(
        hook, settings.compliance, settings.compliance_timeout_seconds, settings.compliance_failure
    )


@lru_cache(maxsize=16)
def _load(name: str) -> Any:
    place = name if ":" in name else _entry_point(name)
    module, _colon, attribute = place.partition(":")
    try:
        hook = importlib.import_module(module)
        for part in attribute.split("."):
            hook = getattr(hook, part)
    except Exception as error:
        raise ConfigurationError(
            f"The compliance hook {quote(place)} cannot be imported: {type(error).__name__}. Is its package"
            " installed in this environment, or its folder on PYTHONPATH?"
        ) from error
    if not callable(hook):
        raise ConfigurationError(f"The compliance hook {quote(place)} cannot be called; name a function.")
    return hook


def _entry_point(name: str) -> str:
    from importlib.metadata import entry_points  # looks at every installed package

    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return point.value
    raise ConfigurationError(
        f"STRANDLINE_COMPLIANCE is {quote(name)}, and no installed package has an entry point of this name in"
        f" the group {ENTRY_POINT_GROUP}; name one that has, or write package.module:function."
    )
