"""``strandline erasures``: its commands; ``list`` and ``show``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.erasures.erase import erase_command, readmit_command, receipt_lines
from strandline.cli.erasures.receipts import key_command, reapply_command, verify_command
from strandline.cli.erasures.reports import ErasuresReport
from strandline.cli.servers.names import check_to_be_read
from strandline.cli.servers.options import limit_option
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.output import Row, print_json_line, table
from strandline.erasure import ErasureRecord, ErasureSummary
from strandline.pipelines.upkeep.erasure.records import list_erasures, show_erasure
from strandline.schemas.postgres.database import Database
from strandline.schemas.wire.erasures import ErasureDetailsReport

_HEADERS = ("number", "kind", "namespace", "owner", "state", "rows", "requested", "finished", "receipt")


@cli_command(
    "list", opened_database, ErasuresReport, short_help="List erasures and readmissions, newest first."
)
@click.option("--namespace", metavar="NAME", help="Only those of this namespace.")
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


@cli_command("show", opened_database, ErasureDetailsReport, short_help="Show an erasure and its receipt.")
@click.argument("number", type=click.IntRange(1))
def show_command(database: Database, number: int) -> Output:
    """Show the erasure NUMBER: its progress, or its receipt."""
    record = database.run(show_erasure(number))
    return Output(ErasureDetailsReport.of(record), _lines(record))


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


def _lines(record: ErasureRecord) -> Iterator[str]:
    by = f" by {record.actor}" if record.actor else ""
    at = f"{record.requested_at:%F %T} UTC"
    yield f"{record.kind} {record.number}, namespace {record.namespace}, asked for{by} at {at}"
    if record.receipt is not None:
        yield from receipt_lines(record.receipt)
        return
    for name, rows in sorted(record.counts.items()):
        yield f"  {name}: {rows:,}"
    yield "not finished: run the same erasure again, and it goes on"


@click.group(
    "erasures",
    commands=[
        erase_command,
        list_command,
        show_command,
        verify_command,
        reapply_command,
        readmit_command,
        key_command,
    ],
)
def command() -> None:
    """Erase users and sessions for good, list erasures, verify and repeat them by their receipts.

    Keep receipts outside of the database: after a restore of an older backup, `reapply` needs them.
    """
