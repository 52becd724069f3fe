"""``strandline erasures verify``, ``reapply`` and ``key``: work with receipts, and their key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from strandline.cli.command import Output, cli_command, offline_command
from strandline.cli.erasures.opening import key_option, opened_erasures, shown_steps
from strandline.cli.erasures.reports import (
    ReappliedReport,
    ReapplyReport,
    ReceiptKeyReport,
    VerdictReport,
    VerifyReceiptsReport,
)
from strandline.cli.servers.options import actor_option, settings_alone
from strandline.cli.servers.targets import opened_database
from strandline.erasure import (
    ErasureReceipt,
    ReceiptVerdict,
    Verifier,
    make_receipt_key,
    read_receipts,
    verifier_of,
)
from strandline.producers.erasing.erase import find_unsettled, judge, refuse_forged
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@cli_command(
    "verify",
    settings_alone,
    VerifyReceiptsReport,
    short_help="Verify receipts, and that nothing of them is there.",
)
@click.argument("receipts", type=_file, nargs=-1)
@click.option(
    "--public-key", type=_file, metavar="FILE", help="The public key, to verify the signatures with."
)
@click.option("--offline", is_flag=True, help="Verify the signatures alone; needs no database.")
def verify_command(
    settings: Settings, receipts: tuple[Path, ...], public_key: Path | None, offline: bool
) -> Output:
    """Verify the receipts in the files RECEIPTS, and look for rows of anything that was erased.

    Ends with 1 if a receipt was changed or is not signed by this key, if anything erased is there again or
    could come again, and if an erasure is unfinished or its record is gone.
    """
    if offline and (public_key is None or not receipts):
        raise click.UsageError("--offline needs --public-key FILE, and at least one file of receipts.")
    verifier = None if public_key is None else verifier_of(public_key)
    read = _read_files(receipts)
    report = _judge(read, verifier, None if offline else settings)
    is_bad = any(
        one.signature in ("changed", "other_key", "unsigned") or one.rows or one.is_unfenced
        for one in report.receipts
    )
    lines = [*map(_verdict_line, report.receipts), *_database_lines(report)]
    return Output(report, lines, code=1 if is_bad or report.erased_rows or report.findings else 0)


@cli_command(
    "reapply",
    settings_alone,
    ReapplyReport,
    short_help="Repeat erasures after a restore, by their receipts.",
)
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
    help="A key that signed receipts, beside the own one (--key, STRANDLINE_RECEIPT_KEY_FILE); repeatable.",
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
        with (
            opened_erasures(settings, DEFAULT_NAMESPACE, key) as erasures,
            shown_steps() as show,
        ):
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


@offline_command("key", ReceiptKeyReport, short_help="Make the key that signs receipts.")
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
    """The receipts of files, each of which has to hold one: an empty file proves nothing.

    Raises:
        ConfigurationError: a file cannot be read, holds something else, or nothing.
    """
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
    with opened_erasures(settings, DEFAULT_NAMESPACE) as erasures, opened_database(settings) as database:
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
    "removed": "has no record, which was deleted; its receipt alone tells what it erased",
}


def _verdict_line(verdict: VerdictReport) -> str:
    line = f"{verdict.kind} {verdict.number} of owner {verdict.owner_key}: {_SIGNATURES[verdict.signature]}"
    if verdict.rows is None:
        return line
    fence = f"the fence stands (erasure {verdict.fence})" if verdict.fence else "no fence stands"
    if verdict.is_unfenced:
        fence += " without a readmission"
    rows = quantity(sum(verdict.rows.values()), "row")
    return f"{line}; {fence}; {rows} of the owner" + (
        f" in {', '.join(sorted(verdict.rows))}" if verdict.rows else ""
    )


def _database_lines(report: VerifyReceiptsReport) -> Iterator[str]:
    for one in report.findings:
        where = "" if one.namespace is None else f" (namespace {one.namespace}, owner {one.owner_key})"
        yield f"erasure {one.number} {_FINDINGS[one.finding]}{where}"
    for table, rows in sorted((report.erased_rows or {}).items()):
        yield f"erased, and there again: {rows:,} rows in {table}"
    if report.erased_rows == {} and not report.findings:
        yield "nothing that was erased is there"
