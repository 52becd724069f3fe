"""The pace at which a provider takes calls, learned from its refusals, where it does not say it."""

from __future__ import annotations

from collections import deque

# Fewer calls than these before a refusal tell no pace.
_MIN_CALLS = 3
# So many windows without a refusal, and the limit is forgotten.
_WINDOWS_KEPT = 10


class Pace:
    """How many calls a provider takes within a window of time; not safe to share without a lock.

    A refusal tells that there were too many; those before it that were not refused are as many as it takes.
    After each window without a refusal one more is tried, or a tenth more.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._calls: deque[float] = deque()
        self._refusals: deque[float] = deque()
        self._limit: int | None = None
        self._raised_at = 0.0
        self._refused_at = 0.0

    def wait_seconds(self, now: float) -> float:
        """Seconds until a call may be made; 0 if it may be now."""
        self._forget(now)
        if self._limit is None or self._limit < _MIN_CALLS or len(self._calls) < self._limit:
            return 0.0
        return self._calls[len(self._calls) - self._limit] + self._window - now

    def note_call(self, now: float) -> None:
        self._calls.append(now)

    def note_refusal(self, now: float) -> None:
        """The provider refused a call because there were too many."""
        self._forget(now)
        self._refusals.append(now)
        self._limit = max(1, len(self._calls) - len(self._refusals))
        self._raised_at = self._refused_at = now

    def _forget(self, now: float) -> None:
        since = now - self._window
        for times in (self._calls, self._refusals):
            while times and times[0] <= since:
                times.popleft()
        if self._limit is not None and now - self._raised_at > self._window:
            self._limit += max(1, self._limit // 10)
            self._raised_at = now
            if now - self._refused_at > _WINDOWS_KEPT * self._window:
                self._limit = None
