"""The statements of ``schemas/sql/capture.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import CaptureActRow, EventIdRow, IsOverRow, RecordedRow
from strandline.schemas.sealing.marks import Mark, Marks


class RecordCaptureAct(Query[RecordedRow], name="record_capture_act"):
    """Record an act of a namespace (owner_key NULL) or of one owner; no row if another one took the number in
    the meantime.
    """

    namespace: str
    owner_key: UUID | None
    capture: str
    actor: str | None


class NewestCaptureActsRow(NamedTuple):
    number: int
    owner_key: UUID | None
    capture: str
    actor: str | None
    created_at: datetime


class NewestCaptureActs(Query[NewestCaptureActsRow], name="newest_capture_acts", repeatable=True):
    """The newest act of a namespace, and that of an owner in it."""

    namespace: str
    owner_key: UUID | None


class CaptureActs(Query[CaptureActRow], name="capture_acts", repeatable=True):
    """The acts of a namespace (owner_key NULL) or of one owner in it, newest first."""

    namespace: str
    owner_key: UUID | None
    limit: int


class BatchCaptureRow(NamedTuple):
    number: int
    common: str | None
    own: str | None


class BatchCapture(Query[BatchCaptureRow], name="batch_capture", repeatable=True):
    """What applies to the events of a batch: of its namespace and of its owner; no row if there is no act."""

    shard_key: UUID
    batch_id: UUID


class WithholdCandidate(Query[Never], name="withhold_candidate"):
    """A candidate cannot become a fact, since an act has an operation switched off."""

    number: int
    shard_key: UUID
    generation_id: int
    event_id: UUID
    ordinal: int


class SourceEvents(Query[EventIdRow], name="source_events", repeatable=True):
    """The flush events of a session's current incarnation, in their order."""

    shard_key: UUID
    session_key: UUID


class EventsLeftRow(NamedTuple):
    events: int
    failure: str | None


class EventsLeft(Query[EventsLeftRow], name="events_left", repeatable=True):
    """How many of some events the derivation that serves an owner has not merged yet; and why one of them was
    given up, if one was.
    """

    shard_key: UUID
    event_ids: list[UUID]


class ChangesOfEventsRow(NamedTuple):
    fact_id: UUID
    operation: str


class ChangesOfEvents(Query[ChangesOfEventsRow], name="changes_of_events", repeatable=True):
    """What some events did to the facts of the derivation that serves an owner, each operation on a fact
    once; those of an instruction are recorded as edits.
    """

    shard_key: UUID
    event_ids: list[UUID]


class IsCarriedOut(Query[IsOverRow], name="is_carried_out", repeatable=True):
    """Whether an instruction has changed facts already, or is gone with its session."""

    shard_key: UUID
    event_id: UUID


class NewestFactsRow(NamedTuple):
    fact_id: UUID
    text: str
    said_at: datetime
    fingerprint: bytes
    is_by_assistants: bool


class NewestFacts(Query[NewestFactsRow], name="newest_facts", repeatable=True):
    """The owner's newest live facts, the longest known first."""

    marks = Marks(
        owner=0,
        opens=(
            Mark(1, "text", "fact"),
            Mark(3, "fingerprint", "", 1),
        ),
    )
    shard_key: UUID
    generation_id: int
    limit: int
