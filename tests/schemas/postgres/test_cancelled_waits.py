"""A wait that is cancelled ends, also where a lock or a pool has lost the cancellation."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from strandline.schemas.postgres.async_database import drive
from strandline.schemas.postgres.operations import Operation, Pause
from strandline.schemas.queries.inspection.status import StatusTotals


class Swallowing:
    """Loses a cancellation, as ``asyncio.wait_for`` of Python 3.11 does where its result comes just then."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()

    async def fetch(self, _query: Any) -> list[Any]:
        self.is_asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return []


def waiting() -> Operation[None]:
    yield StatusTotals()
    while True:
        yield Pause(0.001)


async def test_a_lost_cancellation_ends_the_wait() -> None:
    runner: Any = Swallowing()
    task = asyncio.create_task(drive(waiting(), runner))
    await runner.is_asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), 60)


async def test_a_wait_within_a_cancelled_task_goes_on() -> None:
    def twice() -> Operation[int]:
        yield Pause(0.001)
        yield Pause(0.001)
        return 1

    async def clean_up() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            runner: Any = Swallowing()
            return await drive(twice(), runner)
        return 0

    task = asyncio.create_task(clean_up())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 1
