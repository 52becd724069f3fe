"""The progress of an import: a bar on a terminal; a line now and then elsewhere."""

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
def shown_progress(line_every: int) -> Iterator[Show]:
    """What shows the progress until the end of the block."""
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
