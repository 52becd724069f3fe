"""Progress of long commands: share, rate and time left, in a line that changes, or in a pipe now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from strandline.cli.terminal.output import console, is_rich, say

# Between two lines where there is no terminal; short commands print none.
LINE_SECONDS = 5.0

Show = Callable[[int, int, str], None]
"""Shows how much is done, of how much in all (0: unknown), described in words."""


@contextmanager
def shown_progress(title: str, unit: str) -> Iterator[Show]:
    """Yield a function that shows progress on stderr; ``unit``: of the counts, such as ``row``."""
    began = time.monotonic()

    def line(done: int, total: int, words: str) -> str:
        return f"{title}: {words}; {describe_pace(done, total, unit, time.monotonic() - began)}"

    if is_rich(stderr=True):
        with console(stderr=True).status(title) as status:
            yield lambda done, total, words: status.update(line(done, total, words))
        return
    lines = NowAndThen(LINE_SECONDS, later=True)
    yield lambda done, total, words: lines.say(line(done, total, words))


def describe_pace(done: int, total: int, unit: str, seconds: float) -> str:
    """Share, rate and time left; without a total only the rate."""
    rate = done / seconds if seconds > 1e-9 else 0.0
    parts = [f"{rate:,.0f} {unit}s a second"]
    if total > 0:
        parts.insert(0, f"{min(100, 100 * done // total)} %")
        if rate > 0:
            parts.append(f"about {max(0, total - done) / rate:,.0f} s left")
    return ", ".join(parts)


class NowAndThen:
    """Says lines to stderr, of each kind one in so many seconds; with ``later`` none sooner than that."""

    def __init__(self, seconds: float, *, later: bool = False) -> None:
        self._seconds = seconds
        self._first = time.monotonic() + seconds if later else 0.0
        self._next: dict[str, float] = {}

    def say(self, line: str, kind: str = "") -> None:
        if time.monotonic() >= self._next.get(kind, self._first):
            self._next[kind] = time.monotonic() + self._seconds
            say(line, err=True)
