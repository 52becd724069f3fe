"""What ``strandline erasures`` prints under ``--json``."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from strandline.schemas.wire.erasures import ErasureReport, ReceiptReport
from strandline.schemas.wire.report import Report


class EraseReport(Report):
    """``strandline erasures erase``: what would be erased, by table, or the receipt.

    ``erased_by``: the erasure that was done before, or is under way.
    """

    dry_run: bool
    rows: dict[str, int]
    erased_by: int | None = None
    receipt: ReceiptReport | None = None


class ErasuresReport(Report):
    """``strandline erasures list``."""

    erasures: list[ErasureReport]


class VerdictReport(Report):
    """The verdict on one receipt.

    ``signature``: valid, changed, unsigned, other_key or unchecked.  ``fence``: the number of the erasure
    that keeps the owner away; ``rows``: by table, new rows of the owner; null without a database.
    ``is_unfenced``: no fence stands, without a readmission.
    """

    number: int
    kind: str
    owner_key: UUID
    signature: str
    fence: int | None
    rows: dict[str, int] | None
    is_unfenced: bool


class FindingReport(Report):
    """A fault in the record of an erasure: unfinished, unfenced, unrecorded or removed."""

    number: int
    finding: str
    namespace: str | None
    owner_key: UUID | None
    scope_key: UUID | None


class VerifyReceiptsReport(Report):
    """``strandline erasures verify``; ``erased_rows``: of anything that was erased, by table."""

    receipts: list[VerdictReport]
    erased_rows: dict[str, int] | None
    findings: list[FindingReport] = Field(default_factory=list)


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
