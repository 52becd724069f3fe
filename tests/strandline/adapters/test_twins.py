"""An act makes a method and its async twin, which end as it says, and tell it of errors."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from strandline.adapters.twins import Act, call, twins


class Counter:
    """Counts, and has twins to count by."""

    def __init__(self) -> None:
        self.counted: list[str] = []

    def add(self, number: int) -> int:
        self.counted.append("add")
        return 1 // number

    async def aadd(self, number: int) -> int:
        self.counted.append("aadd")
        return 1 // number

    def _count(self, first: int, *, second: int = 1) -> Act[int | None]:
        """Count twice; None: it cannot be divided."""
        try:
            return (yield from call(self.add, first)) + (yield from call(self.add, second))
        except ZeroDivisionError:
            return None

    count, acount = twins(_count)


@pytest.mark.parametrize(("second", "result"), [(1, 2), (0, None)])
def test_an_act_is_said_once(second: int, result: int | None) -> None:
    counter = Counter()
    assert counter.count(1, second=second) == asyncio.run(counter.acount(1, second=second)) == result
    assert counter.counted == ["add", "add", "aadd", "aadd"]


def test_twins_show_what_they_are() -> None:
    assert inspect.signature(Counter.count) == inspect.signature(Counter.acount)
    assert (
        str(inspect.signature(Counter.count)) == "(self, first: 'int', *, second: 'int' = 1) -> 'int | None'"
    )
    assert (Counter.count.__qualname__, Counter.acount.__qualname__) == ("Counter.count", "Counter.acount")
    assert Counter.acount.__doc__ == "Async twin of ``count``."
    assert inspect.iscoroutinefunction(Counter.acount) and not inspect.iscoroutinefunction(Counter.count)
