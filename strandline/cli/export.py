"""``strandline export``: everything that is kept about a user or a session, as lines of JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from strandline.cli.erasures.opening import check_one, opened_erasures, session_option, user_option
from strandline.cli.servers.options import namespace_option, settings_from
from strandline.cli.servers.options import target_options as targets
from strandline.cli.terminal.output import print_schema, say
from strandline.producers.exports.lines import ExportLine
from strandline.schemas.display.shown_text import json_shown, quantity
from strandline.schemas.errors import ConfigurationError


@click.command("export")
@user_option
@session_option
@namespace_option
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to this file, which must not exist; default: standard output.",
)
@click.option("--json-schema", is_flag=True, help="Print the JSON Schema of a line, and exit.")
@targets
def command(
    user: str | None, session: str | None, namespace: str, out: Path | None, json_schema: bool, **target: Any
) -> int:
    """Export everything that is kept about a user, or about one session: JSON, one object a line.

    Messages, facts with their histories, summaries, states, candidates, answers, corrections, runs and
    model calls, each with where it comes from. The last line counts them; without it the export is not whole.
    """
    if json_schema:
        print_schema(ExportLine)
        return 0
    check_one(user, session)
    with opened_erasures(settings_from(**target), namespace) as erasures:
        lines = erasures.export_user(user) if user is not None else erasures.export_session(session or "")
        if out is None:
            _write(lines, sys.stdout)
            return 0
        try:
            with out.open("x", encoding="utf-8") as file:
                number = _write(lines, file)
        except FileExistsError:
            raise ConfigurationError(f"{out} exists already; name another file.") from None
        except OSError as error:
            raise ConfigurationError(f"{out} cannot be written: {error.strerror}.") from None
    say(f"wrote {quantity(number, 'line')} to {out}")
    return 0


def _write(lines: Iterable[str], file: Any) -> int:
    number = 0
    for line in lines:
        file.write(json_shown(line) + "\n")
        number += 1
    return number
