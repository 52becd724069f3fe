"""Operations on how long a session is kept; ``strandline.retention`` has those of a namespace."""

from __future__ import annotations

from functools import partial

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.upkeep.policies import (
    RetentionAct,
    RetentionLevel,
    list_acts,
    read_retention,
    record_retention,
)
from strandline.producers.arguments import check_count
from strandline.producers.operations.session import Session
from strandline.producers.sessions import check_unowned
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.acts.retention import Retention


def get_retention(session: Session) -> Operation[Retention]:
    """What applies to this session now; what its own act leaves open, as the namespace's has it."""
    return read_retention(_level(session))


def set_retention(session: Session, retention: Retention, *, actor: str | None = None) -> Operation[int]:
    """Set how long this session is kept, as a numbered act; returns its number.

    An act is the whole choice of its level, and applies from the moment this returns: reads hide expired data
    even before workers have removed it.  Repeating the present choice records nothing.

    Raises:
        InvalidMessageError: a field cannot be used.
        ActRefusedError: the compliance hook refuses it.
        ConflictError: other callers kept recording acts of this session.
        OwnerError: the session belongs to another owner.
    """
    if not isinstance(retention, Retention):
        raise InvalidMessageError("retention", f"must be a Retention, not {type(retention).__name__}")
    yield from check_unowned(session.identity)
    retention.check(of_session=True)
    recording = partial(record_retention, _level(session), retention)
    return (yield from session.recorder.carry_out(Act.here("retention", actor=actor), recording))


def retention_acts(session: Session, *, limit: int = 100) -> Operation[list[RetentionAct]]:
    """The acts of this session alone, newest first."""
    return list_acts(_level(session), check_count("limit", limit))


def _level(session: Session) -> RetentionLevel:
    return RetentionLevel(session.identity.namespace, session.identity)
