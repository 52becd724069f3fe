"""Finding the overflow handler: by ``STRANDLINE_ON_OVERFLOW``, or by an entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from strandline.pipelines.overflow.contract import OverflowEvent
from strandline.pipelines.own_code.places import find_installed, import_object
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

ENTRY_POINT_GROUP = "strandline.handlers"
ENTRY_POINT = "on_overflow"
SETTING = "STRANDLINE_ON_OVERFLOW"


@dataclass(frozen=True, slots=True)
class LoadedHandler:
    """A handler, and where it was found."""

    place: str
    call: Callable[[OverflowEvent], object]


@lru_cache(maxsize=16)
def load_handler(named: str) -> LoadedHandler | None:
    """The handler that a setting names, or else an installed package; None: no handler.

    Args:
        named: ``package.module:callable``, or the name of an entry point of the group
            ``strandline.handlers``; empty: the entry point ``on_overflow``, if there is one.

    Raises:
        ConfigurationError: it does not exist, or cannot be imported or called.
    """
    place = named if ":" in named else find_installed(ENTRY_POINT_GROUP, named or ENTRY_POINT)
    if place is None:
        if not named:
            return None
        raise ConfigurationError(
            f"{SETTING} names {quote(named)}, and no installed package has an entry point of this name in the"
            f" group {ENTRY_POINT_GROUP}; name one, or write package.module:callable."
        )
    handler = import_object(place, "overflow handler", SETTING)
    if not callable(handler) or isinstance(handler, type):
        raise ConfigurationError(f"{place} is not an overflow handler: it must be a function of an event.")
    return LoadedHandler(place, cast("Callable[[OverflowEvent], object]", handler))
