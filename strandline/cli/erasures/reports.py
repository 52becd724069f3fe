"""What ``strandline erasures`` prints under ``--json``."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from strandline.erasure import ErasureReceipt, ErasureRecord, ErasureSummary
from strandline.schemas.wire.report import Report


class ReaderCheckReport(Report):
    """What one reader still gave after the erasure: ``remaining`` is 0."""

    reader: str
    looked_at: int
    remaining: int


class ReceiptReport(Report):
    """A receipt, as it is stored: written to a file as one line, it can be verified with the public key."""

    version: int
    kind: str
    erasure_id: UUID
    number: int
    namespace: str
    owner_key: UUID
    scope_key: UUID
    requested_at: datetime
    finished_at: datetime
    release: str
    fence: dict[str, str]
    counts: dict[str, int]
    kept: dict[str, str]
    checks: list[ReaderCheckReport]
    not_covered: list[str]
    key_id: str | None
    signature: str | None


class EraseReport(Report):
    """``strandline erasures erase``: what would be erased, by table, or the receipt.

    ``erased_by``: the erasure that was done before, or is under way.
    """

    dry_run: bool
    rows: dict[str, int]
    erased_by: int | None = None
    receipt: ReceiptReport | None = None


class ErasureReport(Report):
    """One erasure, or readmission, in a list."""

    number: int
    erasure_id: UUID
    kind: str
    namespace: str
    owner_key: UUID
    scope_key: UUID
    state: str
    rows_erased: int
    actor: str | None
    requested_at: datetime
    finished_at: datetime | None
    is_signed: bool


class ErasuresReport(Report):
    """``strandline erasures list``."""

    erasures: list[ErasureReport]


class ErasureDetailsReport(ErasureReport):
    """``strandline erasures show``: ``counts`` are rows so far, by table."""

    counts: dict[str, int]
    receipt: ReceiptReport | None


class VerdictReport(Report):
    """What is to be said of one receipt.

    ``signature``: valid, changed, unsigned, other_key or unchecked.  ``fence``: the number of the erasure
    that keeps the owner away; ``rows``: by table, what there is of the owner again; null without a database.
    """

    number: int
    kind: str
    owner_key: UUID
    signature: str
    fence: int | None
    rows: dict[str, int] | None


class VerifyReceiptsReport(Report):
    """``strandline erasures verify``; ``erased_rows``: of anything that was erased, by table."""

    receipts: list[VerdictReport]
    erased_rows: dict[str, int] | None


class ReappliedReport(Report):
    """One receipt of ``strandline erasures reapply``: erased again, readmitted again, or known."""

    number: int
    kind: str
    owner_key: UUID
    outcome: str
    rows: int


class ReapplyReport(Report):
    """``strandline erasures reapply``; without --yes nothing was done, and ``receipts`` is empty."""

    dry_run: bool
    in_file: int
    receipts: list[ReappliedReport] = Field(default_factory=list)


class ReceiptKeyReport(Report):
    """``strandline erasures key``."""

    key_id: str
    private_key: str
    public_key: str


def receipt_report(receipt: ErasureReceipt) -> ReceiptReport:
    return ReceiptReport.model_validate_json(receipt.to_json())


def summary_report(one: ErasureSummary) -> ErasureReport:
    return ErasureReport(
        number=one.number,
        erasure_id=one.erasure_id,
        kind=one.kind,
        namespace=one.namespace,
        owner_key=one.owner_key,
        scope_key=one.scope_key,
        state=one.state,
        rows_erased=one.rows_erased,
        actor=one.actor,
        requested_at=one.requested_at,
        finished_at=one.finished_at,
        is_signed=one.is_signed,
    )


def details_report(one: ErasureRecord) -> ErasureDetailsReport:
    return ErasureDetailsReport(
        number=one.number,
        erasure_id=one.erasure_id,
        kind=one.kind,
        namespace=one.namespace,
        owner_key=one.owner_key,
        scope_key=one.scope_key,
        state=one.state,
        rows_erased=one.rows_erased,
        actor=one.actor,
        requested_at=one.requested_at,
        finished_at=one.finished_at,
        is_signed=one.receipt is not None and one.receipt.is_signed,
        counts=dict(one.counts),
        receipt=None if one.receipt is None else receipt_report(one.receipt),
    )
