"""The overflow handler: an application's own code that gets the messages of each flush.

It is called in a worker, at least once for each flush event; a call that fails is made again, and in the end
the event is a dead letter.  The event's id is always the same, so a handler can tell a repetition.
A handler is found by ``STRANDLINE_ON_OVERFLOW``, or by an entry point.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Protocol, cast
from uuid import UUID

from strandline.pipelines.own_code.places import find_installed, import_object
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.flush_event import FlushCause
from strandline.schemas.values.message import Message

ENTRY_POINT_GROUP = "strandline.handlers"
ENTRY_POINT = "on_overflow"
SETTING = "STRANDLINE_ON_OVERFLOW"


@dataclass(frozen=True, slots=True)
class OverflowEvent:
    """The messages that a flush took or delivered from a session's window.

    Attributes:
        event_id: the same for each call with this event.
        cause: ``threshold`` (the window was full), ``idle``, ``turn``, ``manual`` or ``import``.
        from_seq, through_seq: the numbers of the first and the last message.
        flushed_at: with a time zone.
        messages: as they are stored now, in order; without those taken back since.
    """

    event_id: UUID
    namespace: str
    session_id: str
    user_id: str | None
    cause: FlushCause
    from_seq: int
    through_seq: int
    flushed_at: datetime
    messages: tuple[Message, ...]


class OverflowHandler(Protocol):
    """A function, sync or async, of one event; its result is ignored.

    An error that it raises makes the worker call it again later.  RefusalError makes the event a dead letter
    at once; ProviderDownError says that its target is down, so that the work waits, uncounted.
    """

    def __call__(self, event: OverflowEvent, /) -> Awaitable[object] | object: ...


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
