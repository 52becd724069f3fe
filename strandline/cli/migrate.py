"""``strandline migrate``: the tables of a database, brought to this release."""

from __future__ import annotations

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.options import settings_alone
from strandline.cli.servers.targets import running_servers
from strandline.cli.terminal.output import masked_url, say
from strandline.schemas.postgres.migrate import (
    current_revision,
    divided_tables,
    head_revision,
    migrate,
)
from strandline.schemas.settings import Settings
from strandline.schemas.values.partitions import MAX_PARTITIONS, MIN_PARTITIONS
from strandline.schemas.wire.work import MigrateReport


@cli_command("migrate", settings_alone, MigrateReport)
@click.option(
    "--partitions",
    type=click.IntRange(MIN_PARTITIONS, MAX_PARTITIONS),
    metavar="N",
    help="Divide the big tables into N partitions by owner. Only when the tables are made; default: none.",
)
def command(settings: Settings, partitions: int | None, as_json: bool) -> Output:
    """Bring the tables of the configured database (or the running embedded one) to this release.

    Runs in one transaction; needs the right to create a schema and, the first time, the pgvector extension.
    If the tables are at this release already, nothing is done, and no such right is needed.
    """
    with running_servers(settings, only_looking=True) as servers:
        before = current_revision(
            servers.database_url, settings.database_schema, public_apis_only=settings.public_apis_only
        )
        if not as_json:
            say(f"database: {masked_url(servers.database_url)}")
            head = head_revision()
            step = "" if before == head else f" -> {head}"
            say(f"revision: {before or 'none'}{step}")
        after = migrate(
            servers.database_url,
            settings.database_schema,
            partitions=partitions,
            report=(lambda _line: None) if as_json else say,
            public_apis_only=settings.public_apis_only,
        )
        divided = divided_tables(
            servers.database_url, settings.database_schema, public_apis_only=settings.public_apis_only
        )
    report = MigrateReport(
        database_schema=settings.database_schema, before=before, after=after, partitions=divided
    )
    named = ", ".join(f"{number} of {table}" for table, number in divided.items())
    return Output(report, [f"partitions: {named}"] if divided else [])
