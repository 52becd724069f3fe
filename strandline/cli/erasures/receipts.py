"""``strandline erasures verify``, ``reapply`` and ``key``: what is done with receipts, and their key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from strandline.cli.erasures.opening import actor_option, key_option, opened_erasures, shown_steps
from strandline.cli.erasures.reports import (
    FindingReport,
    ReappliedReport,
    ReapplyReport,
    ReceiptKeyReport,
    VerdictReport,
    VerifyReceiptsReport,
    verdict_report,
)
from strandline.cli.servers.options import json_options, settings_from
from strandline.cli.servers.options import target_options as targets
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.output import print_json, say, show
from strandline.erasure import (
    ErasureReceipt,
    Verifier,
    make_receipt_key,
    read_receipts,
    verifier_of,
)
from strandline.producers.erasing.erase import find_unsettled, judge, refuse_forged
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.identity import DEFAULT_NAMESPACE

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("verify", short_help="Verify receipts, and that nothing of them is there.")
@click.argument("receipts", type=_file, nargs=-1)
@click.option(
    "--public-key", type=_file, metavar="FILE", help="The public key, to verify the signatures with."
)
@click.option("--offline", is_flag=True, help="Verify the signatures alone; needs no database.")
@json_options(VerifyReceiptsReport)
@targets
def verify_command(
    receipts: tuple[Path, ...],
    public_key: Path | None,
    offline: bool,
    as_json: bool,
    **target: Any,
) -> int:
    """Verify the receipts in the files RECEIPTS, and look for rows of anything that was erased.

    Ends with 1 if a receipt was changed or is not signed by this key, if anything erased is there again or
    could come again, and if an erasure is unfinished or its record is gone.
    """
    if offline and (public_key is None or not receipts):
        raise click.UsageError("--offline needs --public-key FILE, and at least one file of receipts.")
    verifier = None if public_key is None else verifier_of(public_key)
    read = _read_files(receipts)
    report = _judge(read, verifier, offline=offline, target=target)
    if as_json:
        print_json(report)
    else:
        say(*map(_verdict_line, report.receipts))
        say(*_database_lines(report))
    is_bad = any(
        one.signature in ("changed", "other_key", "unsigned") or one.rows or one.is_unfenced
        for one in report.receipts
    )
    return 1 if is_bad or report.erased_rows or report.findings else 0


@click.command("reapply", short_help="Repeat erasures after a restore, by their receipts.")
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
@json_options(ReapplyReport)
@targets
def reapply_command(
    files: tuple[Path, ...],
    yes: bool,
    public_keys: tuple[Path, ...],
    unverified: bool,
    actor: str | None,
    key: Path | None,
    as_json: bool,
    **target: Any,
) -> None:
    """Repeat the erasures of the receipts after an older backup was restored.

    Run it before producers write. Erasures that the database knows are left; it may be run again.
    A receipt that none of the keys signed is refused, and nothing is done.
    """
    receipts = _read_files(files)
    settings = settings_from(**target)
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
                outcomes.append(
                    ReappliedReport(
                        number=one.receipt.number,
                        kind=one.receipt.kind,
                        owner_key=one.receipt.owner_key,
                        outcome=one.outcome,
                        rows=sum(one.receipt.counts.values()),
                    )
                )
    report = ReapplyReport(dry_run=not yes, in_file=len(receipts), receipts=outcomes)
    if as_json:
        print_json(report)
    elif not yes:
        say(f"would reapply {quantity(len(receipts), 'receipt')}: add --yes to do it")
    else:
        for outcome in outcomes:
            say(f"{outcome.kind} {outcome.number} of owner {outcome.owner_key}: {outcome.outcome}")


@click.command("key", short_help="Make the key that signs receipts.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_options(ReceiptKeyReport)
def key_command(file: Path, as_json: bool) -> None:
    """Write a new private key to FILE, readable for its owner alone, and the public key to FILE.pub."""
    report = ReceiptKeyReport(key_id=make_receipt_key(file), private_key=str(file), public_key=f"{file}.pub")
    show(
        report,
        [
            f"key {report.key_id}: {report.private_key} signs, {report.public_key} verifies",
            f"set STRANDLINE_RECEIPT_KEY_FILE={report.private_key}",
        ],
        as_json=as_json,
    )


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
    receipts: list[ErasureReceipt], verifier: Verifier | None, *, offline: bool, target: dict[str, Any]
) -> VerifyReceiptsReport:
    if offline:
        verdicts = [verdict_report(receipt, judge(receipt, verifier)) for receipt in receipts]
        return VerifyReceiptsReport(receipts=verdicts, erased_rows=None)
    settings = settings_from(**target)
    with opened_erasures(settings, DEFAULT_NAMESPACE) as erasures, opened_database(settings) as database:
        return VerifyReceiptsReport(
            receipts=[verdict_report(one, erasures.verify(one, verifier)) for one in receipts],
            erased_rows=erasures.find_erased_rows(),
            findings=[FindingReport(**row._asdict()) for row in database.run(find_unsettled())],
        )


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
