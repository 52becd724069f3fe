"""Reads take their steps one at a time, and what they give and raise is theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from strandline.producers.service.gate.turns import ROUNDS, Turns


async def steps(count: int, note: Callable[[], None]) -> int:
    """Work of so many steps, each of which ends where it waits for something that is there already."""
    for _ in range(count):
        note()
        await asyncio.sleep(0)
    return count


def test_the_loop_comes_round_between_two_steps() -> None:
    seen: list[str] = []

    async def look_on() -> None:
        while True:
            seen.append("round")
            await asyncio.sleep(0)

    async def run() -> list[int]:
        turns = Turns(at_once=8)
        looking = asyncio.create_task(look_on())
        done = await asyncio.gather(*(turns.take(steps(20, lambda: seen.append("step"))) for _ in range(8)))
        looking.cancel()
        return done

    assert asyncio.run(run()) == [20] * 8
    assert seen.count("step") == 160
    assert ("step", "step") not in pairwise(seen)


def test_one_that_is_alone_waits_for_nobody() -> None:
    seen: list[str] = []

    async def run() -> None:
        looking = asyncio.create_task(steps(100, lambda: seen.append("round")))
        await Turns(at_once=8).take(steps(20, lambda: seen.append("step")))
        looking.cancel()

    asyncio.run(run())
    assert seen.count("round") <= 20


def test_so_many_are_begun_at_once_in_the_order_in_which_they_came() -> None:
    begun: list[int] = []
    most = 0

    async def run() -> None:
        nonlocal most
        turns, at_work = Turns(at_once=3), 0

        async def work(number: int) -> None:
            nonlocal at_work, most
            begun.append(number)
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(0)
            at_work -= 1

        await asyncio.gather(*(turns.take(work(number)) for number in range(10)))

    asyncio.run(run())
    assert most == 3
    assert begun == list(range(10))


def test_an_error_is_the_readers_own_and_stops_nobody() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("nothing there")

    async def run() -> list[object]:
        turns = Turns(at_once=2)
        works = [turns.take(fail()), turns.take(steps(3, lambda: None)), turns.take(fail())]
        return list(await asyncio.gather(*works, return_exceptions=True))

    failed, done, other = asyncio.run(run())
    assert isinstance(failed, LookupError) and isinstance(other, LookupError)
    assert done == 3


@pytest.mark.parametrize("rounds", range(1, 9))
def test_one_that_is_cancelled_leaves_its_place_and_its_turn(rounds: int) -> None:
    """Wherever it waits just then: for its place, for its turn, or for what it asked for."""
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await steps(50, lambda: None)
        finally:
            cleaned.append("up")

    async def run() -> None:
        turns = Turns(at_once=2)
        tasks = [asyncio.create_task(turns.take(work())) for _ in range(4)]
        for _ in range(rounds):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        async with asyncio.timeout(60):
            assert await asyncio.gather(*(turns.take(steps(3, lambda: None)) for _ in range(3))) == [3] * 3

    asyncio.run(run())
    assert len(cleaned) <= 2


def test_between_two_steps_of_reads_writes_have_some_rounds_of_the_loop() -> None:
    """And reads go on where writes never end."""

    async def scenario() -> None:
        turns = Turns(at_once=8, has_writes=lambda: True)
        seen: list[str] = []

        async def write() -> None:
            while len(seen) < 10_000:
                seen.append("write")
                await asyncio.sleep(0)

        writing = asyncio.create_task(write())
        await asyncio.gather(*(turns.take(steps(5, lambda: seen.append("read"))) for _ in range(4)))
        writing.cancel()
        assert seen.count("read") == 20
        between = "".join(one[0] for one in seen).strip("w").split("r")[1:-1]
        assert min(map(len, between)) >= ROUNDS

    asyncio.run(scenario())
