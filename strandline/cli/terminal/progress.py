"""The progress of a command, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from strandline.cli.terminal.output import console, is_rich, say

# A line for each so many bytes of a file, or rows of tables.
LINE_EVERY_BYTES = 50_000_000
LINE_EVERY_ROWS = 10_000

Show = Callable[[int, int, str], None]
"""Shows how much is done, of how much in all, and what that is."""


@contextmanager
def status_line(title: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a text in a line on a terminal, gone in the end; elsewhere nothing."""
    if not is_rich(stderr=True):
        yield lambda _text: None
        return
    with console(stderr=True).status(title) as status:
        yield status.update


@contextmanager
def shown_progress(line_every: int) -> Iterator[Show]:
    """Yield a function that shows a bar on a terminal, and prints a line now and then elsewhere."""
    if not is_rich(stderr=True):
        yield _lines(line_every)
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("importing", total=None)
        yield lambda done, total, words: bar.update(task, total=total, completed=done, description=words)


def _lines(line_every: int) -> Show:
    reported = 0

    def tell(done: int, total: int, words: str) -> None:
        nonlocal reported
        if done >= reported + line_every:
            reported = done
            say(f"{100 * done // max(1, total)} %: {words}", err=True)

    return tell
