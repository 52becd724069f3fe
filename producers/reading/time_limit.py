"""Calling code of the application's own in a read: bounded in time, since a read waits for nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from strandline.pipelines.custom.bounded_calls import BoundedCalls, NoPlaceError, TimeLimitError

__all__ = ["NoPlaceError", "TimeLimitError", "call_within"]

T = TypeVar("T")

# Calls that never come back are left to themselves; so many of them at most.
_calls = BoundedCalls(32)


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """What ``call`` returns, or raises, within ``seconds``.

    Raises:
        TimeLimitError: it is late.
        NoPlaceError: it was not called.
    """
    return _calls.within(seconds, call)
