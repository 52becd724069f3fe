"""``strandline erasures erase`` and ``readmit``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.erasures.keeping import receipt_option, receipts_kept
from strandline.cli.erasures.opening import (
    check_one,
    key_option,
    opened_erasures,
    session_option,
    shown_steps,
    user_option,
)
from strandline.cli.erasures.reports import EraseReport
from strandline.cli.servers.names import even_if_unknown_option
from strandline.cli.servers.options import actor_option, namespace_option, settings_alone
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.output import say
from strandline.erasure import ErasureReceipt, Erasures, PlannedErasure
from strandline.pipelines.inspect.directory import refuse_unknown_user
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.settings import Settings

_ANYWAY = "To keep away who never wrote, add --even-if-unknown."
_UNSIGNED = (
    "there is no key: the receipt will not be signed (`strandline erasures key` makes one for"
    " STRANDLINE_RECEIPT_KEY_FILE or --key)"
)


@cli_command("erase", settings_alone, EraseReport, short_help="Erase a user, or one session, for good.")
@user_option
@session_option
@namespace_option
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
    settings: Settings,
    user: str | None,
    session: str | None,
    namespace: str,
    yes: bool,
    actor: str | None,
    key: Path | None,
    receipt_file: Path | None,
    items_below: tuple[str, ...],
    vacuum: bool,
    even_if_unknown: bool,
) -> Output:
    """Erase everything of a user, or of one session, and keep it away.

    From its first moment nothing can be written for the user any more. It may be interrupted at any time:
    the same command goes on where it was. In the end each reader is asked, and there is a receipt.
    """
    check_one(user, session)
    if items_below and user is None:
        raise click.UsageError("--items-below goes with --user: items belong to no session.")
    with opened_erasures(settings, namespace, key) as erasures:
        planned = erasures.plan_user(user) if user is not None else erasures.plan_session(session or "")
        if user is not None and planned.is_of_nobody and not items_below and not even_if_unknown:
            with opened_database(settings) as database:
                refuse_unknown_user(database, namespace, user, otherwise=_ANYWAY)
        if not erasures.has_key:
            say(_UNSIGNED, err=True)
        if not yes:
            plan = EraseReport(dry_run=True, rows=dict(planned.rows), erased_by=planned.erased_by)
            return Output(plan, _plan_lines(planned))
        with receipts_kept(receipt_file) as keep:
            receipt = _erase(erasures, user, session, actor, items_below)
            keep(receipt)
        if vacuum:
            with shown_steps() as show_step:
                show_step("vacuum", "all tables", 0)
                erasures.vacuum()
    report = EraseReport.of(dry_run=False, rows=dict(planned.rows), erased_by=receipt.number, receipt=receipt)
    return Output(report, receipt_lines(receipt))


@cli_command("readmit", settings_alone, EraseReport, short_help="Accept an erased user, or session, again.")
@user_option
@session_option
@namespace_option
@actor_option
@key_option
@receipt_option
def readmit_command(
    settings: Settings,
    user: str | None,
    session: str | None,
    namespace: str,
    actor: str | None,
    key: Path | None,
    receipt_file: Path | None,
) -> Output:
    """Lift the fence of a user, or of one session. Puts are accepted again, and memory begins empty.

    Keep the receipt with those of erasures (--receipt): without it `reapply` would keep the user away.
    """
    check_one(user, session)
    with opened_erasures(settings, namespace, key) as erasures:
        if not erasures.has_key:
            say(_UNSIGNED, err=True)
        with receipts_kept(receipt_file) as keep:
            if session is not None:
                receipt = erasures.readmit_session(session, actor=actor)
            else:
                receipt = erasures.readmit_user(user or "", actor=actor)
            keep(receipt)
    report = EraseReport.of(dry_run=False, rows={}, receipt=receipt)
    return Output(report, [f"readmitted (number {receipt.number}); puts are accepted again"])


def receipt_lines(receipt: ErasureReceipt) -> Iterator[str]:
    """A receipt for people."""
    rows = quantity(sum(receipt.counts.values()), "row")
    at = f"{receipt.finished_at:%F %T} UTC"
    yield f"{receipt.kind} {receipt.number} of owner {receipt.owner_key}: {rows} erased, {at}"
    for table, number in sorted(receipt.counts.items()):
        yield f"  {table}: {number:,}"
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


def _erase(
    erasures: Erasures, user: str | None, session: str | None, actor: str | None, items_below: tuple[str, ...]
) -> ErasureReceipt:
    with shown_steps() as show:
        if user is not None:
            paths = [path.split(".") for path in items_below]
            return erasures.erase_user(user, actor=actor, items_below=paths, on_progress=show)
        return erasures.erase_session(session or "", actor=actor, on_progress=show)


def _plan_lines(planned: PlannedErasure) -> Iterator[str]:
    for table, number in sorted(planned.rows.items()):
        yield f"  {table}: {number:,}"
    if planned.erased_by is not None and not planned.total:
        yield f"erased already (erasure {planned.erased_by})"
    elif planned.erased_by is not None:
        yield f"erasure {planned.erased_by} is not finished: add --yes to go on with it"
    else:
        yield f"would erase {quantity(planned.total, 'row')}, and keep away what comes: add --yes to do it"
