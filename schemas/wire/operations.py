"""Operators' requests over HTTP: limits, dead letters, replays, generations, imports."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args
from uuid import UUID

from pydantic import Field

from strandline.schemas.values.acts.kinds import LEVELS, AuditLevel
from strandline.schemas.wire.base import Answer, Json, Moment, Name, Request, UserName, example, one_of
from strandline.schemas.wire.facts import Text, Topics
from strandline.schemas.wire.messages import MessageIn

Amount = Annotated[int, Field(ge=0, le=10**15)]
Lanes = Annotated[int, Field(ge=1, le=2**31 - 1)]
Generation = Annotated[int, Field(ge=1, le=2**31 - 1)]


class LimitsIn(Request, json_schema_extra=example(calls_per_day=10000, agents_read_only=True)):
    """All limits of a namespace; null: not limited."""

    max_lanes: Lanes | None = None
    max_lanes_per_worker: Lanes | None = None
    calls_per_day: Amount | None = None
    tokens_per_day: Amount | None = None
    usd_per_day: Annotated[float, Field(ge=0, le=1e15)] | None = None
    agents_read_only: bool = False
    max_sessions: Amount | None = None
    max_bytes: Amount | None = None


class DeadLetterOut(Answer):
    """An event that a pipeline gave up on; ``dropped_at`` is null while its messages stay in the tail.

    ``retry_at`` is when a worker tries it again; null if a person has to.
    """

    event_id: UUID
    pipeline: str
    stage: str
    generation_id: int
    namespace: str
    session_id: str
    user_id: str | None
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    cause: str
    flushed_at: datetime
    died_at: datetime
    batch_id: UUID
    reason: str
    current: bool
    dropped_at: datetime | None
    retry_at: datetime | None


class LetterAction(Answer):
    """The outcome for a dead letter; ``refolded`` counts other events that are folded again with it."""

    stage: str
    outcome: str
    refolded: int = 0


class LetterActions(Answer):
    """The retried or dropped letters, by stage."""

    items: list[LetterAction]


class ReplayIn(Request, json_schema_extra=example(pipeline="facts", new=True, hold=True)):
    """A replay in place of what serves, of a selection; or with ``new`` a new generation, of all owners.

    ``rate`` bounds the model calls per second and namespace of a new generation.  ``resume`` is a replay that
    was stopped; then nothing else is given.
    """

    pipeline: Name | None = None
    new: bool = False
    force: bool = False
    hold: bool = False
    rate: Annotated[float, Field(gt=0, le=1e6)] | None = None
    namespace: Name | None = None
    session_id: Name | None = None
    user_id: UserName | None = None
    since: Moment | None = None
    until: Moment | None = None
    dead_letters: bool = False
    resume: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class OperationOut(Answer):
    """Long work: a replay and how it stands; ``counts`` depends on its kind.

    ``is_running``: a process runs it, or did within the last 15 seconds; ``failed`` says why the process
    that answers could not.
    """

    operation_id: int
    kind: str
    pipeline: str
    generation: int
    state: str
    counts: Json
    is_running: bool
    failed: str | None = None


class Promotion(Request, json_schema_extra=example(namespace="default", user_id="ana")):
    """For whom a generation is to serve: all owners, or the owner of a session or a user."""

    namespace: Name | None = None
    user_id: UserName | None = None
    session_id: Name | None = None


class ImportIn(
    Request,
    json_schema_extra=example(messages=[{"id": "old-1", "role": "user", "content": "I live in Lisbon."}]),
):
    """Messages that were said elsewhere, each with an ``id`` of its own, so that repeating adds nothing.

    The id alone decides: a stored message is counted as known, whatever its content.  New messages are
    appended behind the stored ones, whatever their ``created_at``.  All of them have to fit a body.
    """

    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=10_000)]


class ImportOut(Answer):
    """How many messages were added, how many were there already, and the flush events."""

    added: int
    known: int
    events: int


class ImportedFactIn(Request):
    """A fact of another system, with its times there."""

    id: Name
    text: Text
    topics: Topics = Field(default_factory=list)
    created_at: Moment | None = None
    updated_at: Moment | None = None
    input: Annotated[str, Field(max_length=8_000)] | None = None
    agent_id: Name | None = None
    team_id: Name | None = None
    feedback: Annotated[str, Field(max_length=8_000)] | None = None


class ImportFactsIn(Request, json_schema_extra=example(facts=[{"id": "old-1", "text": "Lives in Lisbon."}])):
    """Facts of another system, each added once."""

    facts: Annotated[list[ImportedFactIn], Field(min_length=1, max_length=200)]


class ImportFactsOut(Answer):
    """How many facts were added, and how many were there already."""

    added: int
    known: int


EventKind = Literal["flushed", "covered", "dead", "generation", "position"]


class EventOut(
    Answer,
    json_schema_extra=example(
        kind="covered",
        at="2026-11-25T10:00:03Z",
        session_id="chat-17",
        user_id="ana",
        through_seq=12,
        pipeline="facts",
        generation=1,
    ),
):
    """An event of derivation: messages were flushed, a pipeline covers them or gave up, a generation changed.

    `position` is nothing that happened: all up to `at` was told, and its id resumes there.
    """

    kind: Annotated[str, one_of(*get_args(EventKind))]
    at: datetime
    session_id: str | None = None
    user_id: str | None = None
    event_id: UUID | None = None
    from_seq: int | None = None
    through_seq: int | None = None
    cause: str | None = None
    pipeline: str | None = None
    generation: int | None = None
    state: str | None = None


class ActOut(Answer):
    """An act of the audit trail; ``user_id`` is null where no user is concerned, or none is known now."""

    entry_id: UUID
    kind: str
    at: datetime
    actor: str | None
    origin: str | None
    subject: UUID | None
    user_id: str | None
    session: UUID | None
    seq: int | None
    count: int | None
    detail: Json
    flags: list[str]
    seal: int | None
    place: int | None


class TrailOut(Answer):
    """The result of a verification of a trail; no ``findings``: all sealed entries are unchanged."""

    seals: int
    entries: int
    pruned_seals: int
    unsealed: int
    unkeyed_seals: int
    first_seal_at: datetime | None
    last_seal_at: datetime | None
    findings: list[str]


class AuditLevelBody(Request, json_schema_extra=example(level="changes")):
    """The recorded operations: none, changes, or reads and puts as well."""

    level: AuditLevel


class AuditLevelOut(Answer):
    """The present level."""

    level: Annotated[str, one_of(*LEVELS)]
