"""``strandline migrate``: the tables of a database, brought to this release."""

from __future__ import annotations

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.options import settings_alone
from strandline.cli.servers.targets import running_servers
from strandline.cli.terminal.output import masked_url, say
from strandline.schemas.postgres.migrate import PlannedStep, current_revision, divided_tables, migrate, plan
from strandline.schemas.postgres.migrations import HEAD_REVISION, is_newer
from strandline.schemas.postgres.revision import newer_tables
from strandline.schemas.settings import Settings
from strandline.schemas.values.partitions import MAX_PARTITIONS, MIN_PARTITIONS
from strandline.schemas.wire.work import MigrateReport, PlannedStepReport


@cli_command("migrate", settings_alone, MigrateReport)
@click.option(
    "--partitions",
    type=click.IntRange(MIN_PARTITIONS, MAX_PARTITIONS),
    metavar="N",
    help="Divide the big tables into N partitions by owner. Only when the tables are made; default: none.",
)
@click.option(
    "--plan", "only_plan", is_flag=True, help="Print the steps, with their locks and times, and take none."
)
def command(settings: Settings, partitions: int | None, only_plan: bool, as_json: bool) -> Output:
    """Bring the tables of the configured database (or the running embedded one) to this release.

    The first time it needs the right to create a schema and the pgvector extension, later to own the tables.
    May be killed and run again; a put waits for a step 0.3 s, and 1 ms per partition of its table, at most.
    If the tables are at this release already, no right is needed; only functions that differ are made again.
    """
    with running_servers(settings, only_looking=True) as servers:
        url, schema, alone = servers.database_url, settings.database_schema, settings.public_apis_only
        before = current_revision(url, schema, public_apis_only=alone)
        if not as_json:
            say(f"database: {masked_url(url)}")
            newer = before is not None and is_newer(before)
            step = "" if newer or before == HEAD_REVISION else f" -> {HEAD_REVISION}"
            say(f"revision: {before or 'none'}{step}")
            if newer and only_plan:
                say(newer_tables(str(before)))
        steps = plan(url, schema, partitions=partitions, public_apis_only=alone) if only_plan else []
        after = before
        if not only_plan:
            say_step = (lambda _line: None) if as_json else say
            after = migrate(url, schema, partitions=partitions, report=say_step, public_apis_only=alone)
        divided = divided_tables(url, schema, public_apis_only=alone)
    report = MigrateReport(
        database_schema=schema,
        before=before,
        after=after,
        partitions=divided,
        plan=[PlannedStepReport.of(step) for step in steps],
    )
    named = ", ".join(f"{number} of {table}" for table, number in divided.items())
    return Output(report, [*map(_line, steps), *([f"partitions: {named}"] if divided else [])])


def _line(step: PlannedStep) -> str:
    lock = "waits for nothing"
    if step.lock:
        took = f"about {step.seconds:.0f} s" if step.seconds >= 1 else "at once"
        table = f"{step.table} ({step.rows:,} rows, {step.bytes / 1e6:,.0f} MB)"
        lock = f"{step.lock} on {table}, {took}"
    return f"{step.revision}: {step.text}: {lock}"
