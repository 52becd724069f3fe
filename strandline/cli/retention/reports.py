"""What ``strandline retention`` prints under ``--json``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from strandline.schemas.wire.report import Key, Report


class RetentionReport(Report):
    """How long things are kept; a null field was never set. Times are in seconds, 0 is for ever."""

    ttl_seconds: int | None
    max_age_seconds: int | None
    max_messages: int | None
    forget_facts: bool | None
    keeps_important: bool | None
    archive: str | None
    answers_seconds: int | None
    calls_seconds: int | None
    traces_seconds: int | None
    ended_facts_seconds: int | None


class RetentionActReport(RetentionReport):
    """One act."""

    number: int
    actor: str | None
    created_at: datetime


class RetentionShownReport(RetentionReport):
    """``retention show`` and ``set``: what applies now, and the acts of the level, newest first."""

    namespace: str
    session_id: str | None
    acts: list[RetentionActReport]


class PastReport(Report):
    """One session's expired messages, by reason; ``important`` ones stay.

    ``waiting`` of them leave once their whole flush has expired, ``leaving`` can leave now.
    """

    namespace: str
    session_id: str
    expired: int
    aged: int
    surplus: int
    waiting: int
    leaving: int
    important: int


class PlanReport(Report):
    """``retention plan``."""

    sessions: list[PastReport]


class RunReport(Report):
    """``retention run``: messages that left, important ones that stay, and waiting or failed ones.

    ``waiting`` are sessions that workers still derive; ``waiting_messages`` wait for their flush.
    """

    removed: int
    kept: int
    archived: int
    steps: int
    waiting: int
    failed: int
    busy: int
    given_up: int
    waiting_messages: int


class OpenStepReport(Report):
    """A range of messages on its way out; ``last_error`` says why its last attempt ended."""

    namespace: str
    session_id: str
    from_seq: int
    through_seq: int
    state: str
    archive: str | None
    attempts: int
    last_error: str | None
    planned_at: datetime
    attempted_at: datetime | None


class PassReport(Report):
    """One pass of workers over all sessions."""

    run_id: int
    state: str
    counts: dict[str, Any]
    started_at: datetime
    ended_at: datetime | None


class StatusReport(Report):
    """``retention status``: totals since the beginning, running steps, and the last passes.

    ``waiting_lives`` are sessions that ended for lack of puts, and are not wholly removed.
    """

    removed: int
    kept: int
    archived: int
    open_steps: int
    failing_steps: int
    waiting_lives: int
    steps: list[OpenStepReport]
    passes: list[PassReport]


class ArchivedRangeReport(Report):
    """A range of a session's messages that left its log, or is on its way."""

    from_seq: int
    through_seq: int
    step_id: Key
    cause: str
    state: str
    archive: str | None
    object_name: str | None
    object_digest: str | None
    messages: int
    removed: int
    kept_seqs: list[int]
    last_error: str | None
    planned_at: datetime
    removed_at: datetime | None


class ArchivedReport(Report):
    """``retention archived``."""

    namespace: str
    session_id: str
    ranges: list[ArchivedRangeReport]


class RestoredReport(Report):
    """``retention restore``."""

    session_id: str
    messages: int
    ranges: int
    ttl_seconds: int
