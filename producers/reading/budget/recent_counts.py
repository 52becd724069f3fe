"""Cached token counts of recent texts: a read mostly shows the same memory as the one before."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from strandline.producers.tokens import count_default
from strandline.schemas.forking import renew_in_child

CountText = Callable[[str], int]

MAX_KEPT_COUNTS = 10_000

# Where the default tokenizer begins anew: at what follows the end of a line, but for white space and a slash,
# which it takes together with that end.
_BETWEEN_LINES = re.compile(r"(?<=\n)(?=[^\s/])")


class RecentCounts:
    """Remembers the last ``kept`` counts by tokenizer and a hash of the text, never the text itself."""

    def __init__(self, kept: int = MAX_KEPT_COUNTS) -> None:
        self._kept = kept
        self.forget()

    def forget(self) -> None:
        """Start empty, with a new lock: in a forked child, a thread of the parent may hold the old one."""
        self._lock = threading.Lock()
        self._counts: dict[tuple[CountText, int], int] = {}

    def count(self, count_text: CountText, text: str) -> int:
        """The tokens of ``text`` by ``count_text``, counted now or cached.

        The default tokenizer counts a text as the sum of its lines, so only those are counted that are new.
        """
        counted = self._counts.get((count_text, hash(text)))
        if counted is not None:
            return counted
        if count_text is not count_default:
            return self._count(count_text, text)
        total = 0
        for line in _BETWEEN_LINES.split(text):
            counted = self._counts.get((count_text, hash(line)))
            total += self._count(count_text, line) if counted is None else counted
        return total

    def _count(self, count_text: CountText, text: str) -> int:
        counted = count_text(text)
        with self._lock:
            while len(self._counts) >= self._kept:
                del self._counts[next(iter(self._counts))]
            self._counts[count_text, hash(text)] = counted
        return counted


recent_counts = RecentCounts()
renew_in_child(recent_counts.forget)
