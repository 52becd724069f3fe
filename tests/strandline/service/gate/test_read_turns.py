"""Reads take their steps one at a time, and what they give and raise is theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count, pairwise

import pytest

from strandline.schemas.postgres.pools.thin_pool import IS_IN_POOL
from strandline.service.gate.limits import Asker
from strandline.service.gate.turns import PAUSES, Turns

# Each of another tenant.
ASKERS = (Asker(f"tenant {number}", "key") for number in count(1))


async def steps(times: int, note: Callable[[], None]) -> int:
    """Work of so many steps, each of which ends where it waits for something that is there already."""
    for _ in range(times):
        note()
        await asyncio.sleep(0)
    return times


def test_the_loop_comes_round_between_two_steps() -> None:
    seen: list[str] = []

    async def look_on() -> None:
        while True:
            seen.append("round")
            await asyncio.sleep(0)

    async def run() -> list[int]:
        turns = Turns(at_once=8)
        looking = asyncio.create_task(look_on())
        done = await asyncio.gather(
            *(turns.take(next(ASKERS), steps(20, lambda: seen.append("step"))) for _ in range(8))
        )
        looking.cancel()
        return done

    assert asyncio.run(run()) == [20] * 8
    assert seen.count("step") == 160
    assert ("step", "step") not in pairwise(seen)


async def test_one_that_is_alone_waits_for_nobody() -> None:
    seen: list[str] = []

    looking = asyncio.create_task(steps(100, lambda: seen.append("round")))
    await Turns(at_once=8).take(next(ASKERS), steps(20, lambda: seen.append("step")))
    looking.cancel()
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

        await asyncio.gather(*(turns.take(next(ASKERS), work(number)) for number in range(10)))

    asyncio.run(run())
    assert most == 3
    assert begun == list(range(10))


async def test_a_place_is_left_for_another_key_however_many_reads_of_one_wait() -> None:
    begun: list[str] = []

    turns, go_on = Turns(at_once=8), asyncio.Event()

    async def work(whose: str) -> None:
        begun.append(whose)
        await go_on.wait()

    def reads(asker: Asker, times: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(turns.take(asker, work(asker.key_id))) for _ in range(times)]

    tasks = reads(Asker("loud", "loud"), 16) + reads(Asker("loud", "another"), 16)
    await steps(20, lambda: None)
    assert begun.count("loud") == 4 and begun.count("another") == 3
    tasks += reads(Asker("calm", "calm"), 1)
    await steps(20, lambda: None)
    assert begun[-1] == "calm"
    go_on.set()
    await asyncio.gather(*tasks)
    assert len(begun) == 33


async def test_an_error_is_the_readers_own_and_stops_nobody() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("nothing there")

    turns = Turns(at_once=2)
    works = [
        turns.take(next(ASKERS), fail()),
        turns.take(next(ASKERS), steps(3, lambda: None)),
        turns.take(next(ASKERS), fail()),
    ]
    (failed, done, other) = list(await asyncio.gather(*works, return_exceptions=True))
    assert isinstance(failed, LookupError) and isinstance(other, LookupError)
    assert done == 3


@pytest.mark.parametrize("rounds", range(1, 9))
async def test_one_that_is_cancelled_leaves_its_place_and_its_turn(rounds: int) -> None:
    """Wherever it waits just then: for its place, for its turn, or for what it asked for."""
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await steps(50, lambda: None)
        finally:
            cleaned.append("up")

    turns = Turns(at_once=2)
    tasks = [asyncio.create_task(turns.take(next(ASKERS), work())) for _ in range(4)]
    for _ in range(rounds):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)
    async with asyncio.timeout(60):
        assert (
            await asyncio.gather(*(turns.take(next(ASKERS), steps(3, lambda: None)) for _ in range(3)))
            == [3] * 3
        )
    assert len(cleaned) <= 2


ENDLESS = 10**9


async def test_reads_wait_for_the_end_of_a_write() -> None:
    seen: list[str] = []

    turns = Turns(at_once=8, count_writes=lambda: seen.count("written") == 0, pauses=ENDLESS)
    reading = [
        asyncio.create_task(turns.take(next(ASKERS), steps(5, lambda: seen.append("read")))) for _ in range(4)
    ]
    await steps(100, lambda: None)
    began = len(seen)  # the first has taken a step, since it was alone
    await steps(1_000, lambda: None)
    assert len(seen) == began < 20
    seen.append("written")
    async with asyncio.timeout(60):
        await asyncio.gather(*reading)
    assert seen.count("read") == 20


@pytest.mark.parametrize(("writes", "pauses"), [(1, PAUSES), (2, PAUSES // 2), (PAUSES, 1), (100, 1)])
async def test_reads_go_on_where_writes_never_end(writes: int, pauses: int) -> None:
    """And wait the less between two steps, the more writes there are."""
    seen: list[str] = []

    def count_writes() -> int:
        seen.append("look")
        return writes

    turns = Turns(at_once=8, count_writes=count_writes)
    async with asyncio.timeout(60):
        await asyncio.gather(
            *(turns.take(next(ASKERS), steps(3, lambda: seen.append("read"))) for _ in range(4))
        )
    assert seen.count("read") == 12
    between = "".join(one[0] for one in seen).split("r")[2:-1]
    assert {len(looks) for looks in between} == {pauses + 1}


async def test_a_read_inside_the_pool_waits_for_no_turn() -> None:
    """Else a write, for whose end reads wait, would wait for one of them."""
    way = asyncio.Lock()

    async def pass_through() -> None:
        IS_IN_POOL.set(True)
        async with way:
            await asyncio.sleep(0)
        IS_IN_POOL.set(False)

    is_written = False
    turns = Turns(at_once=8, count_writes=lambda: not is_written, pauses=ENDLESS)
    reading = [asyncio.create_task(turns.take(next(ASKERS), pass_through())) for _ in range(4)]
    # The first read starts without a turn, since it is alone; the others wait for theirs.
    async with asyncio.timeout(60):
        await steps(50, lambda: None)
        await pass_through()
        is_written = True
        await asyncio.gather(*reading)
