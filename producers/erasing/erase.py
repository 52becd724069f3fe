"""Erasing, from the fence to the receipt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID, uuid4

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.upkeep.erasure.receipt import ErasureReceipt, ReaderCheck, Signer, Verifier
from strandline.pipelines.upkeep.erasure.records import (
    ErasureRecord,
    RepeatedReadmission,
    fence_of,
    find_erasure,
    finish,
    readmit,
    show_erasure,
)
from strandline.pipelines.upkeep.erasure.steps import (
    MOVED,
    ErasureOrder,
    Fenced,
    erase_what_is_left,
    rows_left,
    set_fence,
)
from strandline.pipelines.upkeep.erasure.target import ErasureTarget, with_names
from strandline.producers.erasing.beside import NOTHING_BESIDE, Archives, Beside, erase_outside
from strandline.producers.erasing.readers import Traces, check_readers, gather_traces
from strandline.schemas.errors import ConfigurationError, ConflictError, NotFoundError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.upkeep.erasures import (
    ErasedRows,
    OwnerRows,
    ReadmissionsAfter,
    UnsettledErasures,
    UnsettledErasuresRow,
)

MAX_UNSETTLED = 1_000

Verdict = Literal["valid", "changed", "unsigned", "other_key", "unchecked"]
Reapplied = Literal["erased", "known", "readmitted"]


@dataclass(frozen=True, slots=True)
class ReceiptVerdict:
    """The verdict on a receipt.

    Attributes:
        signature: ``valid``; ``changed`` (after signing); ``unsigned``; ``other_key``
            (it names another key than the one given); ``unchecked`` (no key was given).
        fence: the number of the erasure whose fence stands; None: no fence stands, as after a restore.
        rows: by table, new rows of the owner or the session; empty after a readmission; None
            if the database was not asked.
        is_unfenced: nothing keeps the owner away without a readmission, as after a restore.
        is_unrecorded: this database has no record of it: the receipt is another installation's, or an older
            backup was restored.
    """

    signature: Verdict
    fence: int | None = None
    rows: dict[str, int] | None = None
    is_unfenced: bool = False
    is_unrecorded: bool = False

    @property
    def is_good(self) -> bool:
        """Whether the signature is valid, this database's own erasure, and nothing of the owner can come."""
        is_missed = self.rows or self.is_unfenced or self.is_unrecorded
        return self.signature == "valid" and not is_missed


@dataclass(frozen=True, slots=True)
class BegunErasure:
    """An erasure whose fence stands: from now on nothing is written for the target."""

    order: ErasureOrder
    traces: Traces
    fenced: Fenced


def begin_erasing(order: ErasureOrder) -> Operation[BegunErasure]:
    """Set the fence, and gather the traces for the final check of the readers.

    Raises:
        NotFoundError: there is no such session.
    """
    target = yield from with_names(order.target)
    order = replace(order, target=target)
    traces = yield from gather_traces(target)
    fenced = yield from set_fence(order)
    return BegunErasure(order, traces, fenced)


def finish_erasing(
    begun: BegunErasure, signer: Signer | None, beside: Beside = NOTHING_BESIDE
) -> Operation[ErasureReceipt]:
    """Erase everything behind the fence, check it through the readers, and record the receipt.

    Raises:
        ConflictError: a reader still finds something; the erasure is not finished, and can be run again.
    """
    order, fenced, target = begun.order, begun.fenced, begun.order.target
    archives = Archives(beside, target)
    unread = [] if fenced.is_done else (yield from erase_what_is_left(order, fenced, archives.clear))
    if (done := (yield from show_erasure(fenced.number))).receipt is not None:
        return done.receipt  # perhaps by another process, and the owner was readmitted since
    erased, missed = yield from erase_outside(beside, target)
    order.on_progress("check", "readers", 0)
    checks = yield from check_readers(target, begun.traces)
    record = yield from show_erasure(fenced.number)
    if record.receipt is not None:
        return record.receipt
    _refuse_remaining(checks)
    order.on_progress("receipt", "erasure", 1)
    not_covered = [*begun.traces.omissions, *unread, *record.missed, *missed]
    return (yield from finish(record, target, [*checks, *archives.checks, *erased], signer, not_covered))


def erase(
    order: ErasureOrder, signer: Signer | None, beside: Beside = NOTHING_BESIDE
) -> Operation[ErasureReceipt]:
    """Erase the target, check it through the readers, and record the receipt.

    Raises:
        NotFoundError: there is no such session.
        ConflictError: as for ``finish_erasing``.
    """
    begun = yield from begin_erasing(order)
    return (yield from finish_erasing(begun, signer, beside))


def _refuse_remaining(checks: Sequence[ReaderCheck]) -> None:
    remaining = [f"{check.reader} ({check.remaining})" for check in checks if check.remaining]
    if remaining:
        raise ConflictError(
            f"After the erasure readers still find something: {', '.join(remaining)}. It is not finished; run"
            " the same erasure again."
        )


def reapply(
    receipts: Sequence[ErasureReceipt],
    signer: Signer | None,
    order_of: ErasureOrder,
    beside: Beside = NOTHING_BESIDE,
) -> Iterator[tuple[ErasureReceipt, Operation[Reapplied]]]:
    """The operations that repeat unknown erasures, one for each receipt, in the order of their times.

    ``order_of`` holds the common arguments: the actor, and the listener to progress.
    """
    # Numbers restart in a restored database, so they say nothing about the order.
    history = _History(signer, order_of, beside)
    for receipt in sorted(receipts, key=lambda one: (one.finished_at, one.number)):
        yield receipt, history.repeat(receipt)


class _History:
    def __init__(self, signer: Signer | None, common: ErasureOrder, beside: Beside) -> None:
        self._signer = signer
        self._common = common
        self._beside = beside
        # The erasures so far of each scope, as they are known in this database.
        self._erasures: dict[UUID, list[UUID]] = {}

    def repeat(self, receipt: ErasureReceipt) -> Operation[Reapplied]:
        target = ErasureTarget(
            "session" if receipt.kind == "session" else "user",
            receipt.namespace,
            receipt.owner_key,
            receipt.scope_key,
        )
        known = yield from find_erasure(erasure_id=receipt.erasure_id)
        erasures = self._erasures.setdefault(target.scope_key, [])
        if receipt.kind == "readmission":
            if known is not None:
                return "known"
            return (yield from self._readmit(target, RepeatedReadmission(receipt.erasure_id, erasures)))
        erasure_id = receipt.erasure_id if known is None else uuid4()
        erasures += {receipt.erasure_id, erasure_id}
        if not (yield from _is_due(target, known)):
            return "known"
        order = replace(
            self._common, target=target, erasure_id=erasure_id, act=Act.here("erasure"), is_forced=True
        )
        yield from erase(order, self._signer, self._beside)
        return "erased"

    def _readmit(self, target: ErasureTarget, again: RepeatedReadmission) -> Operation[Reapplied]:
        try:
            yield from readmit(target, self._common.actor, self._signer, again)
        except NotFoundError:
            return "known"
        return "readmitted"


def _is_due(target: ErasureTarget, known: ErasureRecord | None) -> Operation[bool]:
    """Whether to repeat an erasure: unknown, unfinished, or with rows back behind its fence.

    Nothing is due if another erasure has set a fence since, and no rows exist.  A readmitted user's rows
    belong to a new life.
    """
    if known is not None and known.state == "running":
        return True
    if (yield from fence_of(target.owner_key, target.scope_key)) is None:
        return known is None
    return bool((yield from rows_left(target)))


def judge(receipt: ErasureReceipt, verifier: Verifier | None) -> ReceiptVerdict:
    """Whether a receipt is as it was signed; needs no database."""
    if receipt.signature is None:
        return ReceiptVerdict("unsigned")
    if verifier is None:
        return ReceiptVerdict("unchecked")
    is_valid = verifier.verify(receipt.signed_bytes(), receipt.signature)
    if not is_valid and receipt.key_id != verifier.key_id:
        return ReceiptVerdict("other_key")
    return ReceiptVerdict("valid" if is_valid else "changed")


def verify_receipt(receipt: ErasureReceipt, verifier: Verifier | None) -> Operation[ReceiptVerdict]:
    """Judge a receipt, and look for its target's rows by their keys, whatever fences and records say.

    Rows of a new life are expected only after a readmission whose own receipt the key vouches for.
    """
    owner_key, scope_key = receipt.owner_key, receipt.scope_key
    record = yield from find_erasure(erasure_id=receipt.erasure_id)
    is_recorded = record is not None and (record.owner_key, record.scope_key) == (owner_key, scope_key)
    verdict = replace(judge(receipt, verifier), is_unrecorded=not is_recorded)
    fence = yield from fence_of(owner_key, scope_key)
    readmissions = yield from fetch(
        ReadmissionsAfter(owner_key=owner_key, scope_key=scope_key, after=receipt.finished_at)
    )
    if fence is None and any(_lifts(row.receipt, receipt, verifier) for row in readmissions):
        return replace(verdict, rows={})
    if receipt.kind == "readmission":
        return replace(verdict, fence=fence, rows={})
    rows = yield from fetch(OwnerRows(shard_key=owner_key, scope_key=scope_key))
    left = {row.table_name: row.rows for row in rows if row.rows}
    return replace(verdict, fence=fence, rows=left, is_unfenced=fence is None)


def _lifts(text: str, erasure: ErasureReceipt, verifier: Verifier | None) -> bool:
    receipt = ErasureReceipt.from_json(text)
    return (
        receipt.kind == "readmission"
        and (receipt.owner_key, receipt.scope_key) == (erasure.owner_key, erasure.scope_key)
        and receipt.finished_at > erasure.finished_at
        and (verifier is None or judge(receipt, verifier).signature == "valid")
    )


def find_unsettled() -> Operation[list[UnsettledErasuresRow]]:
    """Faults in the records of erasures of all namespaces, up to a thousand."""
    rows = yield from fetch(UnsettledErasures(limit=MAX_UNSETTLED))
    return rows


def refuse_forged(
    receipts: Sequence[ErasureReceipt], verifiers: Sequence[Verifier], *, unverified: bool = False
) -> None:
    """Refuse receipts that none of the keys signed: a receipt decides whom to erase or readmit.

    Raises:
        ConfigurationError: naming them.
    """
    if unverified:
        return
    forged = [
        str(one.number)
        for one in receipts
        if not any(judge(one, verifier).signature == "valid" for verifier in verifiers)
    ]
    if forged and not verifiers:
        raise ConfigurationError(
            "No key is given that verifies the receipts; nothing was done. Give the public key that signed"
            " them, or set STRANDLINE_RECEIPT_KEY_FILE."
        )
    if forged:
        raise ConfigurationError(
            f"Receipts {', '.join(forged)} are not signed by a given key, or were changed; nothing was done."
        )


def erased_rows() -> Operation[dict[str, int]]:
    """By table, what there is of all owners and sessions that were erased; empty if nothing came back."""
    rows = yield from fetch(ErasedRows(shard_key=None, scope_key=None))
    return {row.table_name: row.rows for row in rows if row.rows}


@dataclass(frozen=True, slots=True)
class PlannedErasure:
    """The rows that an erasure would take now, by table; and the erasure done before, or under way."""

    rows: Mapping[str, int]
    erased_by: int | None

    @property
    def is_of_nobody(self) -> bool:
        """Whether nothing is stored, and nothing was erased: of a name that never came."""
        return not self.total and self.erased_by is None

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def plan_erasure(target: ErasureTarget) -> Operation[PlannedErasure]:
    """Count the rows of a user or of a session, in the tables that the catalog has."""
    rows = yield from fetch(OwnerRows(shard_key=target.owner_key, scope_key=target.scope_key))
    erased_by = yield from fence_of(target.owner_key, target.scope_key)
    going = {row.table_name: row.rows for row in rows if row.rows and row.table_name not in MOVED}
    return PlannedErasure(going, erased_by)
