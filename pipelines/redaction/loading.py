"""Finding redaction hooks: the shipped one, those of installed packages, and an application's own."""

from __future__ import annotations

from functools import lru_cache

from strandline.pipelines.own_code.bounded_calls import BoundedCalls
from strandline.pipelines.own_code.places import find_installed, import_object
from strandline.pipelines.redaction.contacts import NAME, VERSION, redact_contacts
from strandline.pipelines.redaction.hook import Redaction, RedactionHook
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

ENTRY_POINT_GROUP = "strandline.redactors"


@lru_cache(maxsize=64)
def load_hooks(named: str, setting: str) -> tuple[RedactionHook, ...]:
    """The hooks that a setting names, in their order.

    Args:
        named: ``contacts`` (it ships), entry points, or ``package.module:callable``, separated by commas.
        setting: the variable, for errors.

    Raises:
        ConfigurationError: one of them does not exist, or cannot be imported or called.
    """
    return tuple(_load(name.strip(), setting) for name in named.split(",") if name.strip())


def load_redaction(named: str, setting: str, seconds: float, calls: BoundedCalls) -> Redaction | None:
    """The hooks of a setting with their time limit; None: it names none.

    Raises:
        ConfigurationError: as ``load_hooks``.
    """
    hooks = load_hooks(named, setting)
    return Redaction(hooks, seconds, calls) if hooks else None


def _load(name: str, setting: str) -> RedactionHook:
    if name == NAME:
        return RedactionHook(NAME, VERSION, redact_contacts, is_own=True)
    if ":" in name:
        return RedactionHook.check(import_object(name, "redaction hook", setting), name)
    place = find_installed(ENTRY_POINT_GROUP, name)
    if place is None:
        raise ConfigurationError(
            f"{setting} names {quote(name)}, and there is no such redaction hook: use {NAME}, the name of an"
            f" entry point of the group {ENTRY_POINT_GROUP} that an installed package has, or"
            " package.module:callable."
        )
    return RedactionHook.check(import_object(place, "redaction hook", setting), name)
