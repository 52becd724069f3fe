"""``strandline export``: everything that is kept about a user or a session, as lines of JSON."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

import click

from strandline.cli.command import cli_command
from strandline.cli.erasures.opening import Whose, opened_whose
from strandline.cli.terminal.interrupts import ends_as_interrupts
from strandline.cli.terminal.output import say
from strandline.cli.terminal.progress import shown_progress
from strandline.pipelines.inspect.directory import refuse_unknown_user, user_is_known
from strandline.producers.exports.lines import ExportLine
from strandline.schemas.display.shown_text import json_shown, quantity
from strandline.schemas.errors import ConfigurationError


@cli_command("export", opened_whose, ExportLine, has_json=False)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to this file, which must not exist; default: standard output.",
)
def command(whose: Whose, out: Path | None) -> None:
    """Export everything that is kept about a user, or about one session: JSON, one object a line.

    Messages, facts with their histories, summaries, states, candidates, answers, corrections, runs and
    model calls, each with where it comes from. The last line counts them; without it the export is not whole.
    FILE gets its name when it is whole, and only you can read it; after an interruption run it again.
    """
    user = whose.user
    # To count all that there is takes as long as to export it.
    if user and not user_is_known(whose.database, whose.namespace, user) and whose.plan().is_of_nobody:
        refuse_unknown_user(whose.database, whose.namespace, user)
    if out is None:
        # Its lines would stand between those of the progress.
        _write(whose.export(), sys.stdout, is_shown=not sys.stdout.isatty())
        return
    with new_file(out) as file, _told_at_an_interrupt(out):
        number = _write(whose.export(), file, is_shown=True)
    say(f"wrote {quantity(number, 'line')} to {out}")


@contextmanager
def _told_at_an_interrupt(out: Path) -> Iterator[None]:
    try:
        with ends_as_interrupts():
            yield
    except KeyboardInterrupt:
        say(f"interrupted: {out} was not written, and nothing is left of it; run it again", err=True)
        raise


def _write(lines: Iterable[str], file: Any, *, is_shown: bool) -> int:
    number = 0
    with shown_progress("exporting", "line") if is_shown else nullcontext() as show:
        for number, line in enumerate(lines, start=1):
            file.write(json_shown(line) + "\n")
            if show is not None:
                show(number, 0, quantity(number, "line"))
    return number


@contextmanager
def new_file(path: Path) -> Iterator[IO[str]]:
    """A file written next to ``path``, and renamed in the end; only its owner can read it.

    It is removed if the writing fails, or is interrupted. A process that is killed leaves ``.NAME.….part``,
    which can be deleted.

    Raises:
        ConfigurationError: there is a file of this name, or it cannot be written.
    """
    if path.exists():
        raise _exists(path)
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent, text=True)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from None
    part = Path(name)
    try:
        with open(number, "w", encoding="utf-8") as file:  # noqa: PTH123  # of the open file
            yield file
            file.flush()
            os.fsync(number)
        _give_name(part, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}. Nothing of it was kept; run it again."
        ) from None
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def _give_name(part: Path, path: Path) -> None:
    """Link it, so that a concurrent file is not replaced; rename it where links are impossible."""
    try:
        path.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:
        part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _exists(path: Path) -> ConfigurationError:
    return ConfigurationError(f"{path} exists already; name another file.")
