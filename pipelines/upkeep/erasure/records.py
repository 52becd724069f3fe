"""The records of erasures: listed, shown, finished with a receipt, and readmissions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID, uuid4

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.upkeep.erasure.receipt import NOT_COVERED, ErasureReceipt, ReaderCheck, Signer
from strandline.pipelines.upkeep.erasure.target import ErasureTarget
from strandline.schemas.errors import ConflictError, NotFoundError
from strandline.schemas.postgres.operations import Operation, atomic, fetch
from strandline.schemas.queries.upkeep.erasures import (
    FindErasure,
    FindErasureRow,
    FindFence,
    FinishErasure,
    KeepReceipt,
    ListErasures,
    ListErasuresRow,
    Readmit,
)
from strandline.schemas.values.same_named import make_from
from strandline.schemas.version import VERSION

MAX_LISTED = 1_000
_NEWEST = 2**31 - 1
# Counted with an erasure, and not deleted.
_NOT_DELETED = {"model_call", "audit_entry", "replay_names", "actor_names"}


@dataclass(frozen=True, slots=True)
class ErasureRecord:
    """The record of one erasure or readmission.

    Attributes:
        kind: ``user``, ``session`` or ``readmission``.
        state: ``running`` until there is a receipt; the same erasure, run again, resumes it.
        counts: rows so far, by table.
        actor: the requester, if given.
        missed: unreachable data so far.
    """

    number: int
    erasure_id: UUID
    kind: str
    namespace: str
    owner_key: UUID
    scope_key: UUID
    state: Literal["running", "done"]
    counts: Mapping[str, int]
    rows_erased: int
    actor: str | None
    requested_at: datetime
    finished_at: datetime | None
    receipt: ErasureReceipt | None = None
    missed: Sequence[str] = ()

    @property
    def is_signed(self) -> bool:
        return self.receipt is not None and self.receipt.is_signed


class ErasureSummary(ListErasuresRow):
    """One erasure in a list."""

    __slots__ = ()


def list_erasures(
    namespace: str | None, limit: int, before: int | None, owner_key: UUID | None = None
) -> Operation[list[ErasureSummary]]:
    """Erasures and readmissions of a namespace, or of all, newest first; perhaps those of one owner alone."""
    newest = _NEWEST if before is None else before
    asked = ListErasures(namespace=namespace, owner_key=owner_key, before=newest, limit=limit)
    return [ErasureSummary(*row) for row in (yield from fetch(asked))]


def find_erasure(
    number: int | None = None, erasure_id: UUID | None = None
) -> Operation[ErasureRecord | None]:
    """One erasure by its number or its id; None if it does not exist."""
    rows = yield from fetch(FindErasure(number=number, erasure_id=erasure_id))
    return _record(rows[0]) if rows else None


def show_erasure(number: int, namespace: str | None = None) -> Operation[ErasureRecord]:
    """One erasure, of any namespace or of the one given; raises NotFoundError if there is none."""
    record = yield from find_erasure(number)
    if record is None or namespace not in (None, record.namespace):
        raise NotFoundError(f"Erasure {number} does not exist; `strandline erasures list` shows them.")
    return record


def finish(
    record: ErasureRecord,
    target: ErasureTarget,
    checks: Sequence[ReaderCheck],
    signer: Signer | None,
    missed: Sequence[str] = (),
) -> Operation[ErasureReceipt]:
    """Record the receipt; if another process was first, return its receipt.

    Args:
        target: the erased and checked target, which must be the record's.
        missed: unreachable data.

    Raises:
        ConflictError: the record is of another owner or session, and stays unfinished.
    """
    receipt = signed(
        ErasureReceipt(
            kind=record.kind,
            erasure_id=record.erasure_id,
            number=record.number,
            namespace=record.namespace,
            owner_key=target.owner_key,
            scope_key=target.scope_key,
            requested_at=record.requested_at,
            finished_at=datetime.now(UTC),
            release=VERSION,
            fence=_fence(target.owner_key, target.scope_key),
            counts={name: rows for name, rows in record.counts.items() if name not in _NOT_DELETED and rows},
            kept=_describe_kept(record.counts),
            checks=tuple(checks),
            not_covered=(*NOT_COVERED, *missed),
        ),
        signer,
    )
    if (yield from fetch(FinishErasure.of(receipt, receipt=receipt.to_json()))):
        return receipt
    other = (yield from show_erasure(record.number)).receipt
    if other is None or other.scope_key != target.scope_key:
        raise ConflictError(f"Erasure {record.number} is of another owner or session; it was not finished.")
    return other


@dataclass(frozen=True, slots=True)
class RepeatedReadmission:
    """A readmission repeated after a restore, under its receipt's id; the fence of another erasure stays."""

    erasure_id: UUID
    erasures: Sequence[UUID]


@atomic
def readmit(
    target: ErasureTarget, actor: str | None, signer: Signer | None, again: RepeatedReadmission | None = None
) -> Operation[ErasureReceipt]:
    """Lift the fence; returns the record of that, as a receipt of the kind ``readmission``.

    Raises:
        NotFoundError: no fence stands, or none that this readmission lifted before.
        ConflictError: the erasure is not finished, or erased data is back.
    """
    erasure_id = uuid4() if again is None else again.erasure_id
    (row,) = yield from fetch(
        Readmit.of(
            target,
            erasure_id=erasure_id,
            shard_key=target.owner_key,
            actor=actor,
            act=Act.here("readmit", actor=actor).as_json(),
            erasures=None if again is None else list(again.erasures),
        )
    )
    if row.status == "missing" or row.number is None:
        raise NotFoundError("No fence of this user or session stands, so there is nothing to readmit.")
    if row.status == "rows":
        raise ConflictError(
            f"Rows of what erasure {row.number} deleted are there again, and would be read again: repeat it"
            " by its receipt (`strandline erasures reapply`), and readmit after it.",
            for_clients="Rows of what was erased are there again; the erasure has to be repeated first.",
        )
    if row.status == "running":
        raise ConflictError(
            f"Erasure {row.number} is not finished: run the same erasure again, and readmit after it.",
            for_clients="The erasure is not finished: ask for the same erasure again, and readmit after it.",
        )
    receipt = signed(
        ErasureReceipt(
            kind="readmission",
            erasure_id=erasure_id,
            number=row.number,
            namespace=target.namespace,
            owner_key=target.owner_key,
            scope_key=target.scope_key,
            requested_at=row.readmitted_at,
            finished_at=row.readmitted_at,
            release=VERSION,
            fence=_fence(target.owner_key, target.scope_key),
            not_covered=(),
        ),
        signer,
    )
    yield from fetch(KeepReceipt(number=row.number, receipt=receipt.to_json()))
    return receipt


def fence_of(owner_key: UUID, scope_key: UUID) -> Operation[int | None]:
    """The number of the erasure, or of its owner's, whose fence stands; None: no fence stands."""
    rows = yield from fetch(FindFence(shard_key=owner_key, scope_key=scope_key))
    return rows[0].number if rows else None


def signed(receipt: ErasureReceipt, signer: Signer | None) -> ErasureReceipt:
    """The receipt with its signature; as it is where there is no key."""
    if signer is None:
        return receipt
    receipt = replace(receipt, key_id=signer.key_id)
    return replace(receipt, signature=signer.sign(receipt.signed_bytes()))


def _record(row: FindErasureRow) -> ErasureRecord:
    own = {
        "state": "done" if row.state == "done" else "running",
        "counts": json.loads(row.steps),
        "receipt": None if row.receipt is None else ErasureReceipt.from_json(row.receipt),
    }
    return make_from(ErasureRecord, row, **own)


def _fence(owner_key: UUID, scope_key: UUID) -> dict[str, str]:
    return {"table": "erasure_fence", "shard_key": str(owner_key), "scope_key": str(scope_key)}


def _describe_kept(counts: Mapping[str, int]) -> dict[str, str]:
    kept = {
        "erasure_fence": "one row, with the owner's key, which keeps the owner away",
        "erasure": "the record of this erasure, without a name",
    }
    if counts.get("model_call"):
        kept["model_call"] = f"{counts['model_call']} calls in the ledger, under a random key"
    if counts.get("audit_entry"):
        kept["audit_entry"] = (
            f"{counts['audit_entry']} acts of the audit trail, without their pseudonym's name"
        )
    if counts.get("replay_names"):
        kept["replay"] = f"{counts['replay_names']} selections, with random marks for names"
    if counts.get("actor_names"):
        kept["actor"] = f"{counts['actor_names']} acts on others' data, with a random mark for the actor"
    return kept
