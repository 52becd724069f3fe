"""Sessions over HTTP: lists, the state of one, its policy, forks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from strandline.schemas.wire.base import Actor, Answer, Name, Request, Seq, example
from strandline.schemas.wire.explanations import CorrectionTrace, PolicyChangeTrace
from strandline.schemas.wire.messages import MessageOut
from strandline.schemas.wire.policies import PolicyOut


class SessionOut(Answer):
    """One session: how much it holds, and its marks."""

    session_id: str
    user_id: str | None
    messages: int
    log_start_seq: int
    pinned_through: int
    flushed_through: int
    window_from: int
    last_seq: int
    pinned_tokens: int
    window_tokens: int
    created_at: datetime
    last_put_at: datetime
    policy: PolicyOut


class CoverageOut(Answer):
    """How far a pipeline is with the session's flushes."""

    pipeline: str
    generation: int | None
    covered_through: int | None
    due: int
    dead: int


class FlushOut(Answer):
    """One flush event."""

    event_id: UUID
    cause: str
    from_seq: int
    through_seq: int
    messages: int
    tokens: int
    at: datetime


class HoleOut(Answer):
    """A dead letter: an event that a pipeline went past."""

    id: str
    generation: int
    from_seq: int
    through_seq: int
    at: datetime
    reason: str


class PolicyChangeOut(PolicyChangeTrace, Answer):
    """A change of the policy: only what changed, and who changed it."""


class CorrectionNote(CorrectionTrace, Answer):
    """A correction of the log; ``messages`` is how many it took back or replaced."""


class SessionPictureOut(Answer):
    """A session in one snapshot, with its newest flushes."""

    session: SessionOut
    coverage: list[CoverageOut]
    flushes: int
    latest_flushes: list[FlushOut]
    dead_letters: list[HoleOut]
    policy_changes: list[PolicyChangeOut]
    corrections: list[CorrectionNote]


class ForkRequest(Request, json_schema_extra=example(through_seq=1)):
    """Another session with the messages of this one; ``session_id`` null: a random one."""

    session_id: Name | None = None
    through_seq: Seq | None = None


class ForkOut(Answer):
    """A session that began as a copy of another."""

    session_id: str
    through_seq: int
    messages: int


class ResetRequest(Request, json_schema_extra=example(derived=True)):
    """Begin the history over; with ``derived`` also forget the memory derived from the session."""

    derived: bool = False


class FlushRequest(Request, json_schema_extra=example(all=True)):
    """Deliver all but the last turn, or with ``all`` everything; ``keep``: leave the window as it is."""

    all: bool = False
    keep: bool = False


class ResetDone(Answer):
    """A session that was reset, with or without its derivations."""

    session_id: str
    derived: bool


class PopOut(Answer):
    """The message that was removed; null: none was left."""

    message: MessageOut | None


class ScopeOut(Answer):
    """The session of a scope: its id is that of the session and the scope's name."""

    session_id: str


Lasting = Annotated[int, Field(ge=0, le=2**53 - 1)]


class RetentionIn(Request, json_schema_extra=example(max_age_seconds=2592000)):
    """How long a session is kept, the whole choice; null leaves it to the namespace, 0 keeps for ever.

    Where messages go before they are removed is the namespace's choice, which operators make.
    """

    ttl_seconds: Lasting | None = None
    max_age_seconds: Lasting | None = None
    max_messages: Lasting | None = None
    forget_facts: bool | None = None
    actor: Actor | None = None


class RetentionOut(Answer):
    """How long a session is kept; null: nothing was ever set."""

    ttl_seconds: int | None
    max_age_seconds: int | None
    max_messages: int | None
    forget_facts: bool | None


class RetentionSet(Answer):
    """The number of the act."""

    number: int
