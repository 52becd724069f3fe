"""When something that recovery needs was away; so that a recovery is timed from when it could begin."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Interval:
    """From when until when something was away; times in monotonic seconds."""

    name: str
    begin: float
    end: float = float("inf")


@dataclass
class Timeline:
    """The intervals of a campaign; safe to share between threads."""

    intervals: list[Interval] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, name: str) -> Interval:
        """Something goes away now."""
        interval = Interval(name, time.monotonic())
        with self._lock:
            self.intervals.append(interval)
        return interval

    def end(self, interval: Interval) -> None:
        """It is back now."""
        interval.end = time.monotonic()

    @contextmanager
    def away(self, name: str) -> Iterator[None]:
        """It is away while the block runs."""
        interval = self.begin(name)
        try:
            yield
        finally:
            self.end(interval)

    def named(self, *names: str) -> list[Interval]:
        """The intervals of these names, in the order of their begins."""
        with self._lock:
            return [interval for interval in self.intervals if interval.name in names]

    def could_begin(self, at: float, now: float, needs: Collection[str]) -> float:
        """From when on a recovery had all that it ``needs``: ``at``, or when the last of them was back."""
        ends = [
            min(interval.end, now)
            for interval in self.named(*needs)
            if interval.begin <= now and interval.end >= at
        ]
        return max([at, *ends])
