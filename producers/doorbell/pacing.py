"""Pacing: of many hints for one lane in a short time, the first goes out at once, the others become one."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.schemas.values.lanes import Lane


class Pacer:
    """Lets a lane pass at most once in ``seconds``; a lane that comes sooner is kept until then.

    Times are seconds of one clock, which never goes back.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # When a lane may pass again, in this order; old times are dropped.
        self._again: dict[Lane, float] = {}
        self._kept: dict[Lane, None] = {}

    def pass_on(self, lanes: Iterable[Lane], now: float) -> list[Lane]:
        """The lanes, of ``lanes`` and of those kept, that may pass now, each once."""
        self._kept |= dict.fromkeys(lanes)
        while self._again and (first := next(iter(self._again.items())))[1] <= now:
            del self._again[first[0]]
        passing = [lane for lane in self._kept if lane not in self._again]
        for lane in passing:
            del self._kept[lane]
            self._again[lane] = now + self._seconds
        return passing

    def wait_seconds(self, now: float) -> float | None:
        """Seconds until the first lane that is kept may pass; None if no lane is kept."""
        if not self._kept:
            return None
        return max(0.0, min(self._again[lane] for lane in self._kept) - now)

    def take_kept(self) -> list[Lane]:
        """Return all lanes that are kept, and forget them."""
        kept, self._kept = list(self._kept), {}
        return kept
