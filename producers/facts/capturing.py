"""Acts of capture, of a namespace or an owner, recorded and read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from strandline.pipelines.admission import admit
from strandline.pipelines.audit.appending import Act, append_act
from strandline.schemas.errors import ConflictError
from strandline.schemas.postgres.operations import Atomic, Operation, fetch
from strandline.schemas.queries.derived.capture import CaptureActs, NewestCaptureActs, RecordCaptureAct
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.values.identity import Owner

# Each attempt that loses found that another act was recorded in the meantime.
MAX_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class CaptureAct:
    """One act: ``number`` counts the acts of a namespace, those of its owners included."""

    number: int
    capture: Capture
    actor: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CaptureLevel:
    """Whose acts are meant: those of a namespace, or (with ``owner``) of one owner in it."""

    namespace: str
    owner: Owner | None = None

    @property
    def owner_key(self) -> UUID | None:
        return None if self.owner is None else self.owner.shard_key

    @property
    def whom(self) -> Owner | str:
        """Whom an act concerns, for the audit trail."""
        return self.namespace if self.owner is None else self.owner


def read_capture(level: CaptureLevel) -> Operation[Capture]:
    """The choice that applies now: the owner's newest act, and the namespace's where that leaves it open."""
    common, own = Capture(), Capture()
    rows = yield from fetch(NewestCaptureActs(namespace=level.namespace, owner_key=level.owner_key))
    for row in rows:
        if row.owner_key is None:
            common = Capture.from_json(row.capture)
        else:
            own = Capture.from_json(row.capture)
    return own.within(common)


def list_captures(level: CaptureLevel, limit: int) -> Operation[list[CaptureAct]]:
    """The acts of one level, newest first."""
    rows = yield from fetch(CaptureActs(namespace=level.namespace, owner_key=level.owner_key, limit=limit))
    return [CaptureAct(row.number, Capture.from_json(row.capture), row.actor, row.created_at) for row in rows]


def record_capture(level: CaptureLevel, capture: Capture, act: Act) -> Operation[int]:
    """Record an act; returns its number, or that of the newest act if it is the same (0: there is none).

    Raises:
        ConflictError: other callers kept recording acts of this namespace.
        ErasedError: the owner was erased.
    """
    for _attempt in range(MAX_ATTEMPTS):
        newest = yield from list_captures(level, 1)
        if capture == (newest[0].capture if newest else Capture()):
            return newest[0].number if newest else 0
        number: int | None = yield Atomic(partial(_record_once, level, capture, act))
        if number is not None:
            return number
    raise ConflictError(
        f"Other callers recorded {MAX_ATTEMPTS} acts on capturing in this namespace in the meantime;"
        " nothing was changed. Try again."
    )


def _record_once(level: CaptureLevel, capture: Capture, act: Act) -> Operation[int | None]:
    """Record the next act; None if another one took its number in this moment."""
    if level.owner_key is not None:
        yield from admit(level.owner_key)
    rows = yield from fetch(
        RecordCaptureAct(
            namespace=level.namespace,
            owner_key=level.owner_key,
            capture=capture.to_json(),
            actor=act.named_actor,
        )
    )
    for row in rows:
        yield from append_act(level.whom, replace(act, detail={"number": row.number}))
        return row.number
    return None
