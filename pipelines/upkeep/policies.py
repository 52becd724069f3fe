"""Acts on retention: recorded and read, for a namespace or a session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from strandline.pipelines.admission import admit
from strandline.pipelines.audit.appending import Act, Concerned, append_act
from strandline.schemas.errors import ConflictError
from strandline.schemas.postgres.operations import Operation, atomic, fetch
from strandline.schemas.queries.conversation.retention import (
    RecordRetentionAct,
    RecordSessionRetentionAct,
    RetentionActs,
    SessionRetentionActs,
)
from strandline.schemas.values.acts.retention import BOUNDS, Retention, retention_from
from strandline.schemas.values.identity import SessionIdentity

# Each attempt that loses found that another act was recorded in the meantime.
MAX_ATTEMPTS = 10
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RetentionAct:
    """One act; ``number`` counts the acts of its level.

    ``tightened``: bounds set by keys that may only tighten, so that the namespace's hold as well.
    """

    number: int
    retention: Retention
    actor: str | None
    created_at: datetime
    tightened: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetentionLevel:
    """Whose acts are meant: those of a namespace, or of a session in it."""

    namespace: str
    session: SessionIdentity | None = None

    @property
    def whom(self) -> Concerned:
        """Whom an act concerns, for the audit trail."""
        return self.namespace if self.session is None else self.session


def list_acts(level: RetentionLevel, limit: int) -> Operation[list[RetentionAct]]:
    """The acts of one level, newest first."""
    if level.session is None:
        common = yield from fetch(RetentionActs(namespace=level.namespace, limit=limit))
        return [
            RetentionAct(row.number, retention_from(row, row.ages), row.actor, row.created_at)
            for row in common
        ]
    own = yield from fetch(SessionRetentionActs(**level.session.keys, limit=limit))
    return [
        RetentionAct(row.number, retention_from(row), row.actor, row.created_at, tuple(row.tightened))
        for row in own
    ]


def read_retention(level: RetentionLevel) -> Operation[Retention]:
    """The choice that applies now: the newest act, and the namespace's where that leaves it open."""
    acts = yield from list_acts(RetentionLevel(level.namespace), 1)
    common = acts[0].retention if acts else Retention()
    if level.session is None:
        return common
    own = yield from list_acts(level, 1)
    return own[0].retention.within(common, own[0].tightened) if own else common


def record_retention(
    level: RetentionLevel, retention: Retention, act: Act, *, only_tightens: bool = False
) -> Operation[int]:
    """Record an act; returns its number, or that of the newest one if it is the same (0: there is none).

    Args:
        only_tightens: of a session: open fields stay, and none may be looser.

    Raises:
        ActRefusedError: it is looser than the present act, and may only tighten.
        InvalidMessageError: a field cannot be used.
        ConflictError: other callers kept recording acts.
    """
    retention.check(of_session=level.session is not None)
    for _attempt in range(MAX_ATTEMPTS):
        (newest,) = (yield from list_acts(level, 1)) or [RetentionAct(0, Retention(), None, _NEVER)]
        stored: Retention = retention
        tightened: tuple[str, ...] = ()
        if only_tightens:
            present = yield from read_retention(level)
            stored = newest.retention.tighten(present, retention)
            tightened = tuple(
                name
                for name in BOUNDS
                if getattr(stored, name) is not None
                and (name in newest.tightened or getattr(newest.retention, name) is None)
            )
        if (stored, tightened) == (newest.retention, newest.tightened):
            return newest.number
        number = yield from _record_once(level, stored, tightened, act)
        if number is not None:
            return number
    raise ConflictError(
        f"Other callers recorded {MAX_ATTEMPTS} acts on retention at this level in the meantime; nothing was"
        " changed. Try again."
    )


@atomic
def _record_once(
    level: RetentionLevel, retention: Retention, tightened: tuple[str, ...], act: Act
) -> Operation[int | None]:
    number = yield from _insert(level, retention, tightened, act.named_actor)
    if number is not None:
        yield from append_act(level.whom, replace(act, detail={"number": number}))
    return number


def _insert(
    level: RetentionLevel, retention: Retention, tightened: tuple[str, ...], actor: str | None
) -> Operation[int | None]:
    chosen = {name: getattr(retention, name) for name in (*BOUNDS, "forget_facts", "archive")}
    if level.session is None:
        common = yield from fetch(
            RecordRetentionAct(
                namespace=level.namespace,
                **chosen,
                keeps_important=retention.keeps_important,
                ages=retention.ages_json,
                actor=actor,
            )
        )
        return common[0].number if common else None
    yield from admit(level.session.shard_key, level.session.session_key)
    own = yield from fetch(
        RecordSessionRetentionAct(
            namespace=level.namespace,
            **level.session.keys,
            **chosen,
            tightened=list(tightened),
            actor=actor,
        )
    )
    return own[0].number if own else None
