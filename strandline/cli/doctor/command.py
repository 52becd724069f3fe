"""``strandline doctor``: what is installed, reachable and allowed, and what to do where it is not."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from strandline.cli.doctor.checks import check_host
from strandline.cli.doctor.models import check_models
from strandline.cli.doctor.reports import CheckReport, DoctorReport
from strandline.cli.doctor.servers import check_broker, check_database
from strandline.cli.doctor.settings import check_settings, not_checked
from strandline.cli.servers.options import as_json, target_options, usable_settings_from
from strandline.cli.servers.targets import running_servers
from strandline.cli.terminal.output import console, is_rich, print_json, say, styled_text
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError, StrandlineError
from strandline.schemas.settings import Settings

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@click.command("doctor")
@as_json
@click.option("--no-model-call", is_flag=True, help="Do not call the model server.")
@target_options
def command(as_json: bool, no_model_call: bool, **target: Any) -> int:
    """Check versions, servers, rights, tables, workers and models; exits with 1 if there is a problem."""
    # The report contains what model clients would log.
    logging.getLogger("strandline").addHandler(logging.NullHandler())
    settings, refused = usable_settings_from(**target)
    reports = [
        *check_host(settings),
        *check_settings(settings, refused, os.environ),
        *_servers(settings, refused),
        *_models(settings, refused, call=not no_model_call),
    ]
    report = DoctorReport(healthy=all(check.result != "problem" for check in reports), checks=reports)
    if as_json:
        print_json(report)
    else:
        print_checks(reports)
    return 0 if report.healthy else 1


def _servers(settings: Settings, refused: Mapping[str, str]) -> list[CheckReport]:
    if (unknown := not_checked("database", refused)) is not None:
        return [unknown]
    with ExitStack() as looking:
        try:
            servers = looking.enter_context(running_servers(settings, only_looking=True))
        except ConfigurationError as error:
            return [_without_database(settings, str(error))]
        except StrandlineError as error:
            return [
                CheckReport(
                    name="database", result="problem", found=str(error), advice="start it, then look again"
                )
            ]
        return [
            *check_database(servers, settings),
            not_checked("broker", refused) or check_broker(servers),
        ]


def _models(settings: Settings, refused: Mapping[str, str], *, call: bool) -> Iterable[CheckReport]:
    if (unknown := not_checked("models", refused)) is not None:
        return [unknown]
    return check_models(settings, call=call)


def _without_database(settings: Settings, sentence: str) -> CheckReport:
    """Nothing runs: well where the embedded servers start at first use, a problem where they may not."""
    if settings.embedded == "never" or settings.database_url is not None:
        return CheckReport(name="database", result="problem", found=sentence)
    return CheckReport(
        name="database",
        result="warning",
        found="none is configured and none runs here; a script starts the embedded one at first use",
        advice="`strandline up` starts it now; look again then",
    )


def print_checks(checks: Sequence[CheckReport]) -> None:
    """Print a line for each, and how many there are of each result."""
    if not is_rich():
        for check in checks:
            say(f"{check.result:8} {check.name}: {_finding_text(check)}{_advice(check)}")
    else:
        table = Table.grid(padding=(0, 2, 0, 0))
        for check in checks:
            table.add_row(
                styled_text(check.result, style=_STYLES[check.result]),
                styled_text(check.name, style="bold"),
                Text.assemble(
                    styled_text(_finding_text(check)), styled_text(_advice(check), "yellow"), overflow="fold"
                ),
            )
        console().print(table)
    problems = sum(check.result == "problem" for check in checks)
    warnings = sum(check.result == "warning" for check in checks)
    say(f"{quantity(len(checks), 'check')}: {quantity(problems, 'problem')}, {quantity(warnings, 'warning')}")


def _finding_text(check: CheckReport) -> str:
    return check.found.rstrip(".") if check.advice else check.found


def _advice(check: CheckReport) -> str:
    return f"; {check.advice}" if check.advice else ""
