"""Printing: rich on a terminal, plain lines in a pipe, and never a secret.

All output goes through here, so that stored text can neither steer the terminal nor pass
for a line of the program's own (``schemas.display.shown_text``).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import click
from pydantic import BaseModel, SecretStr
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from strandline.schemas.display.shown_text import json_shown, shown
from strandline.schemas.display.shown_url import shown_url

# The cells of a line of a table.
Row = tuple[str | int, ...]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise ``BrokenPipeError``: rich would exit at once, and abandon the command's processes."""
        raise  # noqa: PLE0704  # called where the error is handled


def console(*, stderr: bool = False) -> Console:
    """A console that styles on a terminal; in a pipe, or under NO_COLOR, it writes no control codes."""
    stream = sys.stderr if stderr else sys.stdout
    plain = not is_rich(stderr=stderr)
    return _Console(
        file=stream,
        force_terminal=False if plain else None,
        no_color=True if plain else None,
        highlight=False,
        soft_wrap=plain,
        emoji=False,
    )


def is_rich(*, stderr: bool = False) -> bool:
    """Whether output goes to a terminal that may be styled."""
    stream = sys.stderr if stderr else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(*lines: str, err: bool = False, file: IO[str] | None = None) -> None:
    """Print texts, each as one line."""
    if lines:
        click.echo("\n".join(map(shown, lines)), err=err, file=file)


def table(headers: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """Lines of rows in aligned columns, with numbers to the right."""
    rows = list(rows)
    cells = [[f"{cell:,}" if isinstance(cell, int) else shown(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(headers, *cells, strict=True)]
    numbers = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)]
    for line in ([*headers], *cells):
        yield "  ".join(map(_aligned, line, widths, numbers or [False] * len(headers))).rstrip()


def styled_text(
    text: str = "",
    style: str = "",
    *,
    no_wrap: bool | None = None,
    overflow: Literal["fold", "ellipsis"] | None = None,
) -> Text:
    """Text for rich, without markup and without characters that are not seen."""
    return Text(shown(text), style=style, no_wrap=no_wrap, overflow=overflow)


def print_json(report: BaseModel) -> None:
    """A report as JSON on stdout; what would steer a terminal is escaped in it as ``\\uXXXX``."""
    sys.stdout.write(json_shown(report.model_dump_json(indent=2)) + "\n")


def print_json_line(text: str) -> None:
    """JSON that is written already, on a line of stdout; escaped as ``print_json`` escapes."""
    sys.stdout.write(json_shown(text) + "\n")


def print_schema(*kinds: type[BaseModel]) -> None:
    """The JSON Schema of a report; of several, each under its name."""
    schemas = {kind.__name__: kind.model_json_schema() for kind in kinds}
    click.echo(json.dumps(schemas if len(kinds) > 1 else schemas[kinds[0].__name__], indent=2))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of all do not exceed; 0 for none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def masked_url(url: str | SecretStr | None) -> str:
    """A URL as ``schemas.display.shown_url`` shows it; ``none`` for None."""
    if url is None:
        return "none"
    text = url.get_secret_value() if isinstance(url, SecretStr) else url
    return shown_url(text)


def program() -> str:
    """How this program is called in a second terminal."""
    called = Path(sys.argv[0])
    if called.name != "strandline":
        return f"{sys.executable} -m strandline"
    installed = shutil.which("strandline")
    if installed is not None and Path(installed).resolve() == called.resolve():
        return "strandline"
    return str(called.absolute())


def _aligned(cell: str, width: int, to_the_right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if to_the_right else cell + space


@contextmanager
def status_line(title: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a text in a line on a terminal, gone in the end; elsewhere nothing."""
    if not is_rich(stderr=True):
        yield lambda _text: None
        return
    with console(stderr=True).status(title) as status:
        yield status.update
