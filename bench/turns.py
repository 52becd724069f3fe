"""Calls that take turns: a few of one and then of the other, so that what disturbs the machine meets both."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from bench.figures import Pair

TURN = 10

Call = Callable[[], object]


def in_turns(calls: Sequence[Call], count: int, *, before: Call | None = None) -> list[list[float]]:
    """Seconds of ``count`` calls of each, in the order of ``calls``.

    Args:
        before: called before each call of the first, and not timed.
    """
    taken: list[list[float]] = [[] for _ in calls]
    for turn in _turns(count):
        for call, seconds in zip(calls, taken, strict=True):
            for _ in range(turn):
                if before is not None and call is calls[0]:
                    before()
                began = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - began)
    return taken


def pair(measured: Call, against: Call, count: int, *, before: Call | None = None) -> Pair:
    """One repetition of two calls."""
    return Pair(*in_turns((measured, against), count, before=before))


async def async_pair(
    measured: Callable[[], Awaitable[object]], against: Callable[[], Awaitable[object]], count: int
) -> Pair:
    """One repetition of two calls, awaited one at a time."""
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in _turns(count):
        for call, seconds in zip((measured, against), taken, strict=True):
            seconds.extend(await async_timed(call, turn))
    return Pair(*taken)


async def async_timed(call: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Seconds of ``count`` calls, one after the other."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        await call()
        seconds.append(time.perf_counter() - began)
    return seconds


def _turns(count: int) -> list[int]:
    whole, rest = divmod(count, TURN)
    return [TURN] * whole + [rest] * bool(rest)
