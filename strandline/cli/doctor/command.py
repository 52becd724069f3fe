"""``strandline doctor``: programs, servers and rights, and advice where one is missing."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from strandline.cli.command import Output, offline_command
from strandline.cli.doctor.checks import (
    CheckReport,
    DoctorReport,
    check_host,
    check_settings,
    not_checked,
    problem,
    warn,
)
from strandline.cli.doctor.models import check_models
from strandline.cli.doctor.servers import check_broker, check_database, check_ignored
from strandline.cli.servers.options import target_options, usable_settings_from
from strandline.cli.servers.targets import running_servers
from strandline.cli.terminal.output import styled_text
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError, StrandlineError
from strandline.schemas.settings import Settings

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@offline_command("doctor", DoctorReport)
@click.option("--no-model-call", is_flag=True, help="Do not call the model server.")
@target_options
def command(no_model_call: bool, **target: Any) -> Output:
    """Check versions, servers, rights, tables, workers and models; exits with 1 if there is a problem."""
    # The report contains what model clients would log.
    logging.getLogger("strandline").addHandler(logging.NullHandler())
    settings, refused = usable_settings_from(target)
    unknown = not_checked("models", refused)
    checks = [
        *check_host(settings),
        *check_settings(settings, refused, os.environ),
        *_servers(settings, refused),
        *([unknown] if unknown is not None else check_models(settings, call=not no_model_call)),
    ]
    return show_checks(checks)


def _servers(settings: Settings, refused: Mapping[str, str]) -> list[CheckReport]:
    if (unknown := not_checked("database", refused)) is not None:
        return [unknown]
    environment = set(os.environ)
    with ExitStack() as looking:
        try:
            servers = looking.enter_context(running_servers(settings, only_looking=True))
        except ConfigurationError as error:
            if settings.embedded == "never" or settings.database_url is not None:
                return [problem("database", str(error))]
            finding = "none is configured and none runs here; a script starts the embedded one at first use"
            return [warn("database", finding, "`strandline up` starts it now; look again then")]
        except StrandlineError as error:
            return [problem("database", str(error), "start it, then look again")]
        broker = not_checked("broker", refused) or check_broker(servers)
        ignored = [*check_ignored(sorted(environment - os.environ.keys()))]
        return [*ignored, *check_database(servers, settings), broker]


def show_checks(checks: Iterable[CheckReport]) -> Output:
    """A line for each check, and how many there are of each result; 1 as exit code if there is a problem."""
    report = DoctorReport.of_checks(list(checks))
    lines = [f"{check.result:8} {check.name}: {''.join(_sentence(check))}" for check in report.checks]
    results = Counter(check.result for check in report.checks)
    count = quantity(len(report.checks), "check")
    last = f"{count}: {quantity(results['problem'], 'problem')}, {quantity(results['warning'], 'warning')}"
    code = 0 if report.healthy else 1
    return Output(report, [*lines, last], code, picture=lambda: Group(_table(report), styled_text(last)))


def _table(report: DoctorReport) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for check in report.checks:
        finding, advice = _sentence(check)
        text = Text.assemble(styled_text(finding), styled_text(advice, "yellow"), overflow="fold")
        result = styled_text(check.result, style=_STYLES[check.result])
        table.add_row(result, styled_text(check.name, style="bold"), text)
    return table


def _sentence(check: CheckReport) -> tuple[str, str]:
    return (check.found.rstrip("."), f"; {check.advice}") if check.advice else (check.found, "")
