"""``strandline erasures list`` and ``show``."""

from __future__ import annotations

from typing import Any

import click

from strandline.cli.erasures.erase import receipt_lines
from strandline.cli.erasures.reports import (
    ErasuresReport,
    details_report,
    summary_report,
)
from strandline.cli.servers.names import check_to_be_read
from strandline.cli.servers.options import json_options, limit_option, settings_from
from strandline.cli.servers.options import target_options as targets
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.output import print_json, print_json_line, print_table, say
from strandline.erasure import ErasureRecord
from strandline.pipelines.upkeep.erasure.records import list_erasures, show_erasure
from strandline.schemas.wire.erasures import ErasureDetailsReport

_HEADERS = ("number", "kind", "namespace", "owner", "state", "rows", "requested", "finished", "receipt")


@click.command("list", short_help="List erasures and readmissions, newest first.")
@click.option("--namespace", metavar="NAME", help="Only those of this namespace.")
@limit_option()
@click.option("--before", type=click.IntRange(1), metavar="NUMBER", help="Only those below this number.")
@click.option("--receipts", is_flag=True, help="Print the receipts instead, one a line, for a file.")
@json_options(ErasuresReport)
@targets
def list_command(
    namespace: str | None,
    limit: int,
    before: int | None,
    receipts: bool,
    as_json: bool,
    **target: Any,
) -> None:
    """List erasures and readmissions, newest first; none of them holds a name."""
    with opened_database(settings_from(**target)) as database:
        check_to_be_read(database, namespace)
        listed = database.run(list_erasures(namespace, limit, before))
        if receipts:
            for one in reversed(listed):
                record = database.run(show_erasure(one.number))
                if record.receipt is not None:
                    print_json_line(record.receipt.to_json())
            return
    if as_json:
        print_json(ErasuresReport(erasures=[summary_report(one) for one in listed]))
    elif not listed:
        say("no erasures")
    else:
        rows = [
            (
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
            for one in listed
        ]
        print_table(_HEADERS, rows)


@click.command("show", short_help="Show an erasure and its receipt.")
@click.argument("number", type=click.IntRange(1))
@json_options(ErasureDetailsReport)
@targets
def show_command(number: int, as_json: bool, **target: Any) -> None:
    """Show the erasure NUMBER: its progress, or its receipt."""
    with opened_database(settings_from(**target)) as database:
        record = database.run(show_erasure(number))
    if as_json:
        print_json(details_report(record))
    else:
        _print(record)


def _print(record: ErasureRecord) -> None:
    by = f" by {record.actor}" if record.actor else ""
    at = f"{record.requested_at:%F %T} UTC"
    say(f"{record.kind} {record.number}, namespace {record.namespace}, asked for{by} at {at}")
    if record.receipt is not None:
        say(*receipt_lines(record.receipt))
        return
    for table, rows in sorted(record.counts.items()):
        say(f"  {table}: {rows:,}")
    say("not finished: run the same erasure again, and it goes on")
