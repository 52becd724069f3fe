"""Timing calls, and what is said of the times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence


def seconds_of(call: Callable[[], object]) -> float:
    """How long the call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def percentile(values: Sequence[float], rank: float) -> float:
    """The value below which the share ``rank`` (0 to 1) of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * rank))]
