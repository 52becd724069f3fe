"""Acts on retention: recorded and read, for a namespace or a session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.schemas.errors import ConflictError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.retention import (
    RecordRetentionAct,
    RecordSessionRetentionAct,
    RetentionActs,
    SessionRetentionActs,
)
from strandline.schemas.values.identity import check_name
from strandline.schemas.values.retention import Retention, retention_from

# Each attempt that loses found that another act was recorded in the meantime.
MAX_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class RetentionAct:
    """One act; ``number`` counts the acts of its level."""

    number: int
    retention: Retention
    actor: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class RetentionLevel:
    """Whose acts are meant: those of a namespace, or (with both keys) of a session in it."""

    namespace: str
    shard_key: UUID | None = None
    session_key: UUID | None = None


def list_acts(level: RetentionLevel, limit: int) -> Operation[list[RetentionAct]]:
    """The acts of one level, newest first."""
    if level.shard_key is None or level.session_key is None:
        common = yield from fetch(RetentionActs(namespace=level.namespace, limit=limit))
        return [
            RetentionAct(row.number, retention_from(row, row.ages), row.actor, row.created_at)
            for row in common
        ]
    own = yield from fetch(
        SessionRetentionActs(shard_key=level.shard_key, session_key=level.session_key, limit=limit)
    )
    return [RetentionAct(row.number, retention_from(row), row.actor, row.created_at) for row in own]


def read_retention(level: RetentionLevel) -> Operation[Retention]:
    """What applies now: the newest act, and the namespace's in what that leaves open."""
    acts = yield from list_acts(RetentionLevel(level.namespace), 1)
    common = acts[0].retention if acts else Retention()
    if level.session_key is None:
        return common
    own = yield from list_acts(level, 1)
    return own[0].retention.within(common) if own else common


def record_retention(level: RetentionLevel, retention: Retention, actor: str | None) -> Operation[int]:
    """Record an act; returns its number, or that of the newest one if it is the same (0: there is none).

    Raises:
        InvalidMessageError: a field cannot be used.
        ConflictError: other callers kept recording acts.
    """
    retention.check(of_session=level.session_key is not None)
    who = None if actor is None else check_name("actor", actor)
    for _attempt in range(MAX_ATTEMPTS):
        newest = yield from list_acts(level, 1)
        if retention == (newest[0].retention if newest else Retention()):
            return newest[0].number if newest else 0
        number = yield from _insert(level, retention, who)
        if number is not None:
            return number
    raise ConflictError(
        f"Other callers recorded {MAX_ATTEMPTS} acts on retention at this level in the meantime; nothing was"
        " changed. Try again."
    )


def _insert(level: RetentionLevel, retention: Retention, actor: str | None) -> Operation[int | None]:
    if level.shard_key is None or level.session_key is None:
        common = yield from fetch(
            RecordRetentionAct(
                namespace=level.namespace,
                ttl_seconds=retention.ttl_seconds,
                max_age_seconds=retention.max_age_seconds,
                max_messages=retention.max_messages,
                forget_facts=retention.forget_facts,
                archive=retention.archive,
                ages=retention.ages_json,
                actor=actor,
            )
        )
        return common[0].number if common else None
    own = yield from fetch(
        RecordSessionRetentionAct(
            shard_key=level.shard_key,
            session_key=level.session_key,
            ttl_seconds=retention.ttl_seconds,
            max_age_seconds=retention.max_age_seconds,
            max_messages=retention.max_messages,
            forget_facts=retention.forget_facts,
            archive=retention.archive,
            actor=actor,
        )
    )
    return own[0].number if own else None
