"""Why something was remembered, or not: what ``strandline explain`` and the service tell, part by part."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from pydantic import Field, RootModel

from strandline.schemas.wire.base import one_of
from strandline.schemas.wire.report import Report

Place = Literal["pinned", "window", "tail", "covered", "reset"]
StageState = Literal["applied", "due", "dead", "dropped", "void", "waiting", "not_fed"]


class CorrectionTrace(Report):
    """One correction of a session's log; ``messages`` is how many it took back or replaced."""

    number: int
    kind: str
    from_seq: int
    through_seq: int
    messages: int
    actor: str | None
    at: datetime


class PolicyChangeTrace(Report):
    """One change of a session's policy; ``before`` and ``after`` hold only what changed.

    Messages flushed up to ``flushed_through`` went to the pipelines of the policy before.
    """

    number: int
    at: datetime
    actor: str | None
    flushed_through: int
    before: dict[str, Any]
    after: dict[str, Any]


class ModelCall(Report):
    """One line of the ledger: the model that answered for a batch, and the tokens and time it took.

    ``cost_usd`` is None if the model had no price in STRANDLINE_MODEL_PRICES.
    """

    batch_id: UUID
    step: str
    model: str
    prompt_hash: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float
    at: datetime


class StageTrace(Report):
    """The result of one stage of one generation for the message's event.

    ``state``: ``applied``, ``due``, ``dead`` (a dead letter), ``dropped`` (given up), ``void``
    (its session was reset first), ``waiting`` (for the stage before it), ``not_fed`` (the generation is
    younger than the event).  ``reason`` is the dead letter's, or the lane's last error.
    ``context_seqs`` are the messages before its batch that the model saw as context.
    ``capture_number`` is the newest act on capturing that applied to its batch.
    Its turn waits until ``ready_at`` for others to share its model call; null if it does not wait.
    ``waits_until`` says until when its namespace waits for a budget, ``waits_for`` which, and ``is_used_up``
    whether the budget is used up; if not, workers hold the rest of it.
    ``retry_at`` is when a worker tries a dead letter again; null if a person has to.
    """

    pipeline: str
    generation: int
    generation_state: str
    stage: str
    state: Annotated[str, one_of(*get_args(StageState))]
    since: datetime | None
    batch_id: UUID | None
    batch_events: int | None
    context_seqs: tuple[int, ...]
    capture_number: int | None
    held: bool
    failures: int
    next_attempt_at: datetime | None
    ready_at: datetime | None
    waits_until: datetime | None
    waits_for: str | None
    is_used_up: bool
    reason: str | None
    retry_at: datetime | None
    calls: tuple[ModelCall, ...]


class CandidateTrace(Report):
    """A statement of extract that cites the message.

    ``dropped_by`` is the number of a person's event that speaks against it, ``dropped_because`` its kind
    (``delete``, ``replace``, ``clear``); ``withheld_by`` that of an act on capturing without which it would
    have become a fact.
    """

    generation: int
    event_id: UUID
    batch_id: UUID
    text: str
    dropped_by: int | None
    dropped_because: str | None
    withheld_by: int | None


class CitingFact(Report):
    """A fact that cites the message, and the message's effect on it."""

    fact_id: UUID
    generation: int
    text: str
    live: bool
    operations: tuple[str, ...]


class ContextTrace(Report):
    """A batch that the message was shown to as context, and the messages that the batch was made of."""

    generation: int
    batch_id: UUID
    from_seq: int
    through_seq: int


class ChunkTrace(Report):
    """A searchable piece of conversation that holds the message."""

    generation: int
    from_seq: int
    through_seq: int
    pieces: int


class StateTrace(Report):
    """The state of a folding pipeline that the message went into first."""

    generation: int
    through_seq: int
    batch_id: UUID
    at: datetime
    excerpt: str


class Source(Report):
    """A message as it is shown here: who said it, when, and how it begins."""

    id: str
    seq: int
    role: str
    said_by: str
    at: datetime
    excerpt: str


class FlushTrace(Report):
    """The event that delivered a message."""

    event_id: UUID
    cause: str
    from_seq: int
    through_seq: int
    at: datetime


class MessageExplanation(Report):
    """Where a message is, its derivations, and in ``why`` a conclusion in sentences.

    ``policy_changes`` are those of its session: pipelines that were added get flushes from then on.
    ``corrections`` concern it, or another message of its event: the event was derived again.
    """

    namespace: str
    session_id: str
    user_id: str | None
    message: Source
    tokens: int
    place: Annotated[str, one_of(*get_args(Place))]
    event: FlushTrace | None
    stages: tuple[StageTrace, ...]
    candidates: tuple[CandidateTrace, ...]
    facts: tuple[CitingFact, ...]
    contexts: tuple[ContextTrace, ...]
    chunks: tuple[ChunkTrace, ...]
    states: tuple[StateTrace, ...]
    policy_changes: tuple[PolicyChangeTrace, ...]
    corrections: tuple[CorrectionTrace, ...]
    why: tuple[str, ...]


class FactEventTrace(Report):
    """Something that a person did to a fact; ``actor`` is who, if that was given."""

    number: int
    kind: str
    at: datetime
    actor: str | None


class RemovedSource(Report):
    """Messages that a fact comes from and that have left the log: the source is archived.

    ``cause`` is ``ttl``, ``age`` or ``number``; ``archive`` and ``object_name`` say where they are, unless
    they were removed without (None), or a handler has them (no object).
    """

    from_seq: int
    through_seq: int
    cause: str
    removed_at: datetime
    archive: str | None
    object_name: str | None


class RevisionTrace(Report):
    """One step of a fact's history, and all that it came from: messages, or a person's event.

    ``context`` holds the lines just before, which extract saw in addition to ``messages``.  ``removed`` are
    messages that retention has removed.  ``carried_from`` is the generation that it was taken over from,
    since its messages were gone when this one was derived.
    """

    revision: int
    operation: str
    text: str
    at: datetime
    namespace: str | None
    session_id: str | None
    messages: tuple[Source, ...]
    context: tuple[Source, ...]
    event_id: UUID | None
    cause: str | None
    flushed_at: datetime | None
    extract_batch_id: UUID | None
    merge_batch_id: UUID | None
    condense_batch_id: UUID | None
    model: str | None
    prompt_hash: str | None
    calls: tuple[ModelCall, ...]
    fact_event: int | None
    actor: str | None
    removed: tuple[RemovedSource, ...]
    carried_from: int | None


class DoubtTrace(Report):
    """A decision on another fact, with its words (null: it is gone), that was refused, and the reason.

    ``operation`` is ``update``, ``invalidate`` or ``duplicate``.
    """

    operation: str
    fact_id: UUID
    text: str | None
    reason: str


class SuccessorTrace(Report):
    """A live fact from the messages of a fact that is gone."""

    fact_id: UUID
    text: str


class FactExplanation(Report):
    """A fact and the way back from it.

    ``doubt`` is the decision refused when it was added; it is doubtful (``is_doubtful``) while both facts are
    live.  ``doubted_by`` are doubtful facts that may contradict this one, at most 20.  ``successors`` are
    given for a fact of another derivation than the serving one.
    """

    fact_id: UUID
    generation: int
    generation_state: str
    text: str
    topics: tuple[str, ...]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    valid_from: datetime
    valid_until: datetime | None
    live: bool
    invalidated_at: datetime | None
    invalidated_by: UUID | None
    condensed_into: UUID | None
    replacement: str | None
    feedback: str | None
    is_doubtful: bool
    doubt: DoubtTrace | None
    doubted_by: tuple[UUID, ...]
    created_at: datetime
    updated_at: datetime
    revisions: tuple[RevisionTrace, ...]
    events: tuple[FactEventTrace, ...]
    successors: tuple[SuccessorTrace, ...]


class RemovedFactExplanation(Report):
    """A fact that people took away, or that went with a correction, with the facts of its messages now."""

    fact_id: UUID
    events: tuple[FactEventTrace, ...]
    successors: tuple[SuccessorTrace, ...]


class AnyFactExplanation(
    RootModel[Annotated[FactExplanation | RemovedFactExplanation, Field(union_mode="left_to_right")]]
):
    """The explanation of a fact, also of a removed one."""
