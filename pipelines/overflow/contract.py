"""The overflow handler: an application's own code that gets the messages of each flush.

It is called in a worker, at least once for each flush event; a call that fails is made again, and in the end
the event is a dead letter.  The event's id is always the same, so a handler can tell a repetition.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from strandline.schemas.values.flush_event import FlushCause
from strandline.schemas.values.message import Message


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
