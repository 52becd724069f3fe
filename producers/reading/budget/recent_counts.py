"""Cached token counts of recent texts: a read mostly shows the same memory as the one before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

from strandline.schemas.forking import renew_in_child

CountText = Callable[[str], int]

MAX_KEPT_COUNTS = 1_000


class RecentCounts:
    """Remembers the last ``kept`` counts by tokenizer and a digest of the text, never the text itself."""

    def __init__(self, kept: int = MAX_KEPT_COUNTS) -> None:
        self._kept = kept
        self.forget()

    def forget(self) -> None:
        """Start empty, with a new lock: in a forked child, a thread of the parent may hold the old one."""
        self._lock = threading.Lock()
        self._counts: OrderedDict[tuple[CountText, bytes], int] = OrderedDict()

    def count(self, count_text: CountText, text: str) -> int:
        """The tokens of ``text`` by ``count_text``, counted now or cached."""
        key = (count_text, blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest())
        with self._lock:
            known = self._counts.get(key)
            if known is not None:
                self._counts.move_to_end(key)
                return known
        counted = count_text(text)
        with self._lock:
            self._counts[key] = counted
            if len(self._counts) > self._kept:
                self._counts.popitem(last=False)
        return counted


recent_counts = RecentCounts()
renew_in_child(recent_counts.forget)
