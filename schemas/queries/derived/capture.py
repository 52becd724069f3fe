"""The statements of ``schemas/sql/capture.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class RecordCaptureActRow(NamedTuple):
    number: int
    created_at: datetime


class RecordCaptureAct(Query[RecordCaptureActRow]):
    """Record an act of a namespace (owner_key NULL) or of one owner; no row if another one took the number
    meanwhile.
    """

    __slots__ = ()
    name = "record_capture_act"
    row = RecordCaptureActRow

    def __init__(self, *, namespace: str, owner_key: UUID | None, capture: str, actor: str | None) -> None:
        self.values = (namespace, owner_key, capture, actor)


class NewestCaptureActsRow(NamedTuple):
    number: int
    owner_key: UUID | None
    capture: str
    actor: str | None
    created_at: datetime


class NewestCaptureActs(Query[NewestCaptureActsRow]):
    """The newest act of a namespace, and that of an owner in it."""

    __slots__ = ()
    name = "newest_capture_acts"
    repeatable = True
    row = NewestCaptureActsRow

    def __init__(self, *, namespace: str, owner_key: UUID | None) -> None:
        self.values = (namespace, owner_key)


class CaptureActsRow(NamedTuple):
    number: int
    capture: str
    actor: str | None
    created_at: datetime


class CaptureActs(Query[CaptureActsRow]):
    """The acts of a namespace (owner_key NULL) or of one owner in it, newest first."""

    __slots__ = ()
    name = "capture_acts"
    repeatable = True
    row = CaptureActsRow

    def __init__(self, *, namespace: str, owner_key: UUID | None, limit: int) -> None:
        self.values = (namespace, owner_key, limit)


class BatchCaptureRow(NamedTuple):
    number: int
    common: str | None
    own: str | None


class BatchCapture(Query[BatchCaptureRow]):
    """What applies to the events of a batch: of its namespace and of its owner; no row if there is no act."""

    __slots__ = ()
    name = "batch_capture"
    row = BatchCaptureRow

    def __init__(self, *, shard_key: UUID, batch_id: UUID) -> None:
        self.values = (shard_key, batch_id)


class WithholdCandidate(Query[Never]):
    """A candidate cannot become a fact, since an act has an operation switched off."""

    __slots__ = ()
    name = "withhold_candidate"

    def __init__(
        self, *, number: int, shard_key: UUID, generation_id: int, event_id: UUID, ordinal: int
    ) -> None:
        self.values = (number, shard_key, generation_id, event_id, ordinal)


class SourceEventsRow(NamedTuple):
    event_id: UUID


class SourceEvents(Query[SourceEventsRow]):
    """The flush events of a session's current incarnation, in their order."""

    __slots__ = ()
    name = "source_events"
    repeatable = True
    row = SourceEventsRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class EventsLeftRow(NamedTuple):
    events: int
    failure: str | None


class EventsLeft(Query[EventsLeftRow]):
    """How many of some events the derivation that serves an owner has not merged yet; and why one of them was
    given up, if one was.
    """

    __slots__ = ()
    name = "events_left"
    repeatable = True
    row = EventsLeftRow

    def __init__(self, *, shard_key: UUID, event_ids: list[UUID]) -> None:
        self.values = (shard_key, event_ids)


class ChangesOfEventsRow(NamedTuple):
    fact_id: UUID
    operation: str


class ChangesOfEvents(Query[ChangesOfEventsRow]):
    """What some events did to the facts of the derivation that serves an owner, each operation on a fact
    once; those of an instruction are recorded as edits.
    """

    __slots__ = ()
    name = "changes_of_events"
    repeatable = True
    row = ChangesOfEventsRow

    def __init__(self, *, shard_key: UUID, event_ids: list[UUID]) -> None:
        self.values = (shard_key, event_ids)


class IsCarriedOutRow(NamedTuple):
    is_over: bool


class IsCarriedOut(Query[IsCarriedOutRow]):
    """Whether an instruction has changed facts already, or is gone with its session."""

    __slots__ = ()
    name = "is_carried_out"
    row = IsCarriedOutRow

    def __init__(self, *, shard_key: UUID, event_id: UUID) -> None:
        self.values = (shard_key, event_id)


class NewestFactsRow(NamedTuple):
    fact_id: UUID
    text: str
    said_at: datetime
    fingerprint: bytes


class NewestFacts(Query[NewestFactsRow]):
    """The owner's newest live facts, the longest known first."""

    __slots__ = ()
    name = "newest_facts"
    row = NewestFactsRow
    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "text", "fact"),
            Mark(3, "fingerprint", "", 1),
        ),
    )

    def __init__(self, *, shard_key: UUID, generation_id: int, limit: int) -> None:
        self.values = (shard_key, generation_id, limit)
