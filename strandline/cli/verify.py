"""``strandline verify``: prove from the tables that nothing was lost, doubled or made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.output import status_line
from strandline.pipelines.inspect.verify import Report, verify
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.postgres.database import Database

SHOWN_PER_KIND = 20


@cli_command("verify", opened_database, Report)
@click.option("--namespace", metavar="NAME", help="Only the owners of this namespace.")
@click.option("--session", "session_id", metavar="ID", help="Only this session, and the facts of its owner.")
@click.option("--deep", is_flag=True, help="Also recompute the fingerprint of each fact.")
def command(database: Database, **scope: Any) -> Output:
    """Check that each message is in exactly one flush, each flush applied exactly once, and each fact
    comes from messages that exist; print each violation, and exit with 1 if there is one.

    Reads one snapshot, so it may run while workers are at work.
    """
    with status_line("verifying") as update:
        report = verify(
            database,
            progress=lambda name, number, total: update(f"verifying {number} of {total}: {name}"),
            **scope,
        )
    return Output(report, _lines(report), code=1 if report.violations else 0)


def _lines(report: Report) -> Iterator[str]:
    yield (
        f"{quantity(report.messages, 'message')} in {quantity(report.sessions, 'session')},"
        f" {quantity(report.events, 'flush event')}, {quantity(report.facts, 'fact')}"
    )
    yield (
        f"applied {report.applications:,}, void {report.voids:,}, due {report.pending:,},"
        f" dead letters {report.holes:,}, dropped {report.dropped:,},"
        f" facts with tombstones {report.tombstones:,}"
    )
    by_kind = Counter(violation.kind for violation in report.violations)
    shown: Counter[str] = Counter()
    for violation in report.violations:
        shown[violation.kind] += 1
        if shown[violation.kind] <= SHOWN_PER_KIND:
            yield f"{violation.kind}: {violation.sentence}"
    for kind, count in by_kind.items():
        if count > SHOWN_PER_KIND:
            yield f"{kind}: {count - SHOWN_PER_KIND:,} more; --json names them all"
    for owner in report.unjudged:
        yield (
            f"not checked: owner {owner.owner_key} (namespace {owner.namespace}): erasure {owner.erasure} is"
            " unfinished; run the same erasure again"
        )
    violations = len(report.violations)
    verdict = quantity(violations, "violation") if violations else "no violation"
    yield f"{verdict}; the checks took {report.seconds:.1f} s"
