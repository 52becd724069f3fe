"""``strandline erasures``: erases, readmits, lists, verifies and repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

import click
from pydantic import Field

from strandline.cli.command import CommandGroup, Output
from strandline.cli.erasures.opening import (
    Whose,
    key_option,
    opened_erasures,
    opened_whose,
    receipt_option,
    receipts_kept,
    shown_steps,
)
from strandline.cli.servers.options import actor_option, limit_option, namespace_filter, settings_alone
from strandline.cli.servers.targets import check_to_be_read, even_if_unknown_option, opened_database
from strandline.cli.terminal.output import Row, print_json_line, say, table
from strandline.erasure import (
    ErasureReceipt,
    ErasureRecord,
    ErasureSummary,
    PlannedErasure,
    ReceiptVerdict,
    Verifier,
    make_receipt_key,
    read_receipts,
    verifier_of,
)
from strandline.pipelines.inspect.directory import refuse_unknown_user
from strandline.pipelines.upkeep.erasure.records import list_erasures, show_erasure
from strandline.producers.erasing.erase import find_unsettled, judge, refuse_forged
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.wire.erasures import ErasureDetailsReport, ErasureReport, ReceiptReport
from strandline.schemas.wire.report import Report


@click.group("erasures", cls=CommandGroup)
def command() -> None:
    """Erase users and sessions for good, list erasures, verify and repeat them by their receipts.

    Keep receipts outside of the database: after a restore of an older backup, `reapply` needs them.
    """


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
    ``is_unfenced``: no fence stands, without a readmission.  ``is_unrecorded``: the database has no record
    of it.
    """

    number: int
    kind: str
    owner_key: UUID
    signature: str
    fence: int | None
    rows: dict[str, int] | None
    is_unfenced: bool
    is_unrecorded: bool


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


_ANYWAY = "To keep away who never wrote, add --even-if-unknown."
_UNSIGNED = (
    "no key is set: the receipt will not be signed (`strandline erasures key` makes one for"
    " STRANDLINE_RECEIPT_KEY_FILE or --key)"
)


@command.add("erase", opened_whose, EraseReport)
@click.option("--yes", is_flag=True, help="Erase; without --yes, only count what would be erased.")
@actor_option
@key_option
@receipt_option
@click.option(
    "--items-below",
    metavar="PATH",
    multiple=True,
    help="Also items of LangGraph's store below this path (labels with full stops); repeatable.",
)
@click.option("--vacuum", is_flag=True, help="Then vacuum the tables, which may take long.")
@even_if_unknown_option
def erase_command(
    whose: Whose, yes: bool, actor: str | None, receipt_file: Path | None, vacuum: bool, even_if_unknown: bool
) -> Output:
    """Erase everything of a user, or of one session, and keep it away.

    From its first moment on, nothing can be written for the user. It may be interrupted at any time:
    the same command resumes it. In the end each reader is asked, and there is a receipt.
    """
    planned = whose.plan()
    if whose.user is not None and planned.is_of_nobody and not (whose.items_below or even_if_unknown):
        refuse_unknown_user(whose.database, whose.namespace, whose.user, otherwise=_ANYWAY)
    _warn_unsigned(whose)
    if not yes:
        plan = EraseReport(dry_run=True, rows=dict(planned.rows), erased_by=planned.erased_by)
        return Output(plan, _plan_lines(planned))
    with receipts_kept(receipt_file) as keep:
        receipt = whose.erase(actor, planned.total)
        keep(receipt)
    if vacuum:
        with shown_steps() as show_step:
            show_step("vacuum", "all tables", 0)
            whose.erasures.vacuum()
    report = EraseReport.of(dry_run=False, rows=dict(planned.rows), erased_by=receipt.number, receipt=receipt)
    return Output(report, receipt_lines(receipt))


@command.add("readmit", opened_whose, EraseReport)
@actor_option
@key_option
@receipt_option
def readmit_command(whose: Whose, actor: str | None, receipt_file: Path | None) -> Output:
    """Lift the fence of a user, or of one session. Puts are accepted again, and memory begins empty.

    Keep the receipt with those of erasures (--receipt): without it `reapply` would keep the user away.
    """
    _warn_unsigned(whose)
    with receipts_kept(receipt_file) as keep:
        receipt = whose.readmit(actor)
        keep(receipt)
    report = EraseReport.of(dry_run=False, rows={}, receipt=receipt)
    return Output(report, [f"readmitted (number {receipt.number}); puts are accepted again"])


def _warn_unsigned(whose: Whose) -> None:
    if not whose.erasures.has_key:
        say(_UNSIGNED, err=True)


def receipt_lines(receipt: ErasureReceipt) -> Iterator[str]:
    """A receipt for people."""
    rows = quantity(sum(receipt.counts.values()), "row")
    at = f"{receipt.finished_at:%F %T} UTC"
    yield f"{receipt.kind} {receipt.number} of owner {receipt.owner_key}: {rows} erased, {at}"
    yield from _count_lines(receipt.counts)
    remaining = sum(check.remaining for check in receipt.checks)
    if receipt.checks:
        yield f"checked by {', '.join(check.reader for check in receipt.checks)}: {remaining} found"
    for name, kept in receipt.kept.items():
        yield f"kept, {name}: {kept}"
    for sentence in receipt.not_covered:
        yield f"not covered: {sentence}"
    yield (
        f"signed by key {receipt.key_id}"
        if receipt.is_signed
        else "not signed: `strandline erasures key` makes a key for STRANDLINE_RECEIPT_KEY_FILE"
    )


def _count_lines(counts: Mapping[str, int]) -> Iterator[str]:
    for name, number in sorted(counts.items()):
        yield f"  {name}: {number:,}"


def _plan_lines(planned: PlannedErasure) -> Iterator[str]:
    yield from _count_lines(planned.rows)
    if planned.erased_by is not None and not planned.total:
        yield f"erased already (erasure {planned.erased_by})"
    elif planned.erased_by is not None:
        yield f"erasure {planned.erased_by} is not finished: add --yes to resume it"
    else:
        yield f"would erase {quantity(planned.total, 'row')}, and keep away what comes: add --yes to do it"


_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@command.add("verify", settings_alone, VerifyReceiptsReport)
@click.argument("receipts", type=_file, nargs=-1)
@click.option(
    "--public-key", type=_file, metavar="FILE", help="The public key, to verify the signatures with."
)
@click.option("--offline", is_flag=True, help="Verify the signatures alone; needs no database.")
def verify_command(
    settings: Settings, receipts: tuple[Path, ...], public_key: Path | None, offline: bool
) -> Output:
    """Verify the receipts in the files RECEIPTS, and look for rows of anything that was erased.

    Ends with 1 if a receipt was changed, is not signed by this key or is another installation's, if anything
    erased is there again or could come again, and if an erasure is unfinished or its record is gone.
    """
    if offline and (public_key is None or not receipts):
        raise click.UsageError("--offline needs --public-key FILE, and at least one file of receipts.")
    verifier = None if public_key is None else verifier_of(public_key)
    read = _read_files(receipts)
    report = _judge(read, verifier, None if offline else settings)
    is_bad = any(
        one.signature in ("changed", "other_key", "unsigned")
        or one.rows
        or one.is_unfenced
        or one.is_unrecorded
        for one in report.receipts
    )
    lines = [*map(_verdict_line, report.receipts), *_database_lines(report)]
    return Output(report, lines, code=1 if is_bad or report.erased_rows or report.findings else 0)


@command.add("reapply", settings_alone, ReapplyReport)
@click.option(
    "--from", "files", type=_file, metavar="FILE", multiple=True, required=True, help="Receipts; repeatable."
)
@click.option("--yes", is_flag=True, help="Erase; without --yes, only count the receipts.")
@click.option(
    "--public-key",
    "public_keys",
    type=_file,
    metavar="FILE",
    multiple=True,
    help="Another key that signed receipts; the own one: --key, STRANDLINE_RECEIPT_KEY_FILE. Repeatable.",
)
@click.option("--unverified", is_flag=True, help="Repeat also receipts that no key vouches for.")
@actor_option
@key_option
def reapply_command(
    settings: Settings,
    files: tuple[Path, ...],
    yes: bool,
    public_keys: tuple[Path, ...],
    unverified: bool,
    actor: str | None,
    key: Path | None,
) -> Output:
    """Repeat the erasures of the receipts after an older backup was restored.

    Run it before producers write. Erasures that the database knows are left; it may be run again.
    A receipt that none of the keys signed is refused, and nothing is done.
    """
    receipts = _read_files(files)
    own = key if key is not None else settings.receipt_key_file
    verifiers = [verifier_of(path) for path in (*public_keys, *([] if own is None else [own]))]
    refuse_forged(receipts, verifiers, unverified=unverified)
    outcomes: list[ReappliedReport] = []
    if yes:
        with opened_erasures(settings, DEFAULT_NAMESPACE, key) as (erasures, _), shown_steps() as show:
            for one in erasures.reapply(
                receipts, verifiers=verifiers, unverified=unverified, actor=actor, on_progress=show
            ):
                rows = sum(one.receipt.counts.values())
                outcomes.append(ReappliedReport.of(one.receipt, outcome=one.outcome, rows=rows))
    report = ReapplyReport(dry_run=not yes, in_file=len(receipts), receipts=outcomes)
    if not yes:
        return Output(report, [f"would reapply {quantity(len(receipts), 'receipt')}: add --yes to do it"])
    return Output(
        report, [f"{one.kind} {one.number} of owner {one.owner_key}: {one.outcome}" for one in outcomes]
    )


@command.add_offline("key", ReceiptKeyReport)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def key_command(file: Path) -> Output:
    """Write a new private key to FILE, readable for its owner alone, and the public key to FILE.pub."""
    report = ReceiptKeyReport(key_id=make_receipt_key(file), private_key=str(file), public_key=f"{file}.pub")
    lines = [
        f"key {report.key_id}: {report.private_key} signs, {report.public_key} verifies",
        f"set STRANDLINE_RECEIPT_KEY_FILE={report.private_key}",
    ]
    return Output(report, lines)


def _read_files(paths: Sequence[Path]) -> list[ErasureReceipt]:
    """The receipts of files, each of which has to hold one: an empty file proves nothing."""
    read: list[ErasureReceipt] = []
    for path in paths:
        receipts = read_receipts(path)
        if not receipts:
            raise ConfigurationError(f"{path} holds no receipt.")
        read += receipts
    return read


def _judge(
    receipts: list[ErasureReceipt], verifier: Verifier | None, settings: Settings | None
) -> VerifyReceiptsReport:
    if settings is None:
        verdicts = [_verdict(receipt, judge(receipt, verifier)) for receipt in receipts]
        return VerifyReceiptsReport(receipts=verdicts, erased_rows=None)
    with opened_erasures(settings, DEFAULT_NAMESPACE) as (erasures, database):
        return VerifyReceiptsReport.of(
            receipts=[_verdict(one, erasures.verify(one, verifier)) for one in receipts],
            erased_rows=erasures.find_erased_rows(),
            findings=database.run(find_unsettled()),
        )


def _verdict(receipt: ErasureReceipt, verdict: ReceiptVerdict) -> VerdictReport:
    return VerdictReport.of(verdict, number=receipt.number, kind=receipt.kind, owner_key=receipt.owner_key)


_SIGNATURES = {
    "valid": "the signature is valid",
    "changed": "the receipt was changed since it was signed",
    "unsigned": "it is not signed",
    "other_key": "it is signed by another key",
    "unchecked": "the signature was not checked (--public-key FILE)",
}


_FINDINGS = {
    "unfinished": "is unfinished: rows that it has not deleted yet are there; run the same erasure again",
    "unfenced": "is done, and its fence is gone without a readmission: repeat it by its receipt (reapply)",
    "unrecorded": "has a fence and no record, which was deleted or changed",
    "removed": "has no record, which was deleted; its receipt alone tells its scope",
}


def _verdict_line(verdict: VerdictReport) -> str:
    line = f"{verdict.kind} {verdict.number} of owner {verdict.owner_key}: {_SIGNATURES[verdict.signature]}"
    if verdict.rows is None:
        return line
    fence = f"the fence stands (erasure {verdict.fence})" if verdict.fence else "no fence stands"
    if verdict.is_unfenced:
        fence += " without a readmission"
    if verdict.is_unrecorded:
        line += "; this database has no record of it: it is another installation's, or is to be reapplied"
    rows = quantity(sum(verdict.rows.values()), "row")
    return f"{line}; {fence}; {rows} of the owner" + (
        f" in {', '.join(sorted(verdict.rows))}" if verdict.rows else ""
    )


def _database_lines(report: VerifyReceiptsReport) -> Iterator[str]:
    for one in report.findings:
        where = "" if one.namespace is None else f" (namespace {one.namespace}, owner {one.owner_key})"
        yield f"erasure {one.number} {_FINDINGS[one.finding]}{where}"
    for name, rows in sorted((report.erased_rows or {}).items()):
        yield f"erased, and there again: {rows:,} rows in {name}"
    if report.erased_rows == {} and not report.findings:
        yield "nothing that was erased is there"


_HEADERS = ("number", "kind", "namespace", "owner", "state", "rows", "requested", "finished", "receipt")


@command.add("list", opened_database, ErasuresReport)
@namespace_filter
@limit_option()
@click.option("--before", type=click.IntRange(1), metavar="NUMBER", help="Only those below this number.")
@click.option("--receipts", is_flag=True, help="Print the receipts instead, one a line, for a file.")
def list_command(
    database: Database, namespace: str | None, limit: int, before: int | None, receipts: bool
) -> Output | None:
    """List erasures and readmissions, newest first; none of them holds a name."""
    check_to_be_read(database, namespace)
    listed = database.run(list_erasures(namespace, limit, before))
    if receipts:
        for one in reversed(listed):
            record = database.run(show_erasure(one.number))
            if record.receipt is not None:
                print_json_line(record.receipt.to_json())
        return None
    lines = table(_HEADERS, map(_row, listed)) if listed else ["no erasures"]
    return Output(ErasuresReport.of(erasures=listed), lines)


@command.add("show", opened_database, ErasureDetailsReport)
@click.argument("number", type=click.IntRange(1))
def show_command(database: Database, number: int) -> Output:
    """Show the erasure NUMBER: its progress, or its receipt."""
    record = database.run(show_erasure(number))
    return Output(ErasureDetailsReport.of(record), _record_lines(record))


def _row(one: ErasureSummary) -> Row:
    return (
        one.number,
        one.kind,
        one.namespace,
        str(one.owner_key),
        one.state,
        one.rows_erased,
        f"{one.requested_at:%F %T}",
        f"{one.finished_at:%F %T}" if one.finished_at else "-",
        "signed" if one.is_signed else "-",
    )


def _record_lines(record: ErasureRecord) -> Iterator[str]:
    by = f" by {record.actor}" if record.actor else ""
    at = f"{record.requested_at:%F %T} UTC"
    yield f"{record.kind} {record.number}, namespace {record.namespace}, asked for{by} at {at}"
    if record.receipt is not None:
        yield from receipt_lines(record.receipt)
        return
    yield from _count_lines(record.counts)
    yield "not finished: run the same erasure again to resume it"
