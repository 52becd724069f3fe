"""Thirty turns of an agent of any adapter that goes wrong: the next is accepted, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from tests.support.agents.faulty.driving import STEPS, Driver, Fault, Happen, cancel, raise_error
from tests.support.processes import forking
from tests.support.providers.rules import chat_problems

TURNS = 30


class Talk:
    """A conversation, and what it acknowledged.

    Args:
        adapter: the name of the module with its driver.
    """

    def __init__(self, adapter: str, url: str) -> None:
        self.adapter, self.url = adapter, url
        self.fault = Fault()
        self.driver: Driver = import_module(adapter).Faulty(self.fault, database_url=url)
        self.acknowledged: list[str] = []

    async def turn(self, text: str) -> None:
        """A turn that ends with its answer; whatever was before it, a provider takes what it is sent."""
        first = len(self.driver.requests)
        await self.driver.turn(text)
        self.acknowledged.append(text)
        sent = self.driver.requests[first:]
        for request in [*sent, await self.driver.shown()]:
            assert chat_problems(request) == []
        for request in sent[:1]:
            assert text in [message["content"] for message in request]

    async def failing_turn(self, text: str, step: str, happen: Happen) -> None:
        self.fault.arm(step, happen)
        turn = asyncio.create_task(self.driver.turn(text))
        self.fault.begin(turn)
        await asyncio.wait([turn])
        self.fault.arm("", happen)
        if not turn.cancelled() and turn.exception() is None:
            self.acknowledged.append(text)

    async def end(self) -> None:
        """Nothing that was acknowledged is missing, or there twice."""
        texts = [message.text for message in await self.driver.memory.aget_all()]
        for text in self.acknowledged:
            assert (texts.count(text), texts.count(f"Done: {text}")) == (1, 1), text
        await self.driver.memory.aclose()


async def _fail(talk: Talk, happen: Happen) -> None:
    """Every second turn, at each step in turn."""
    for number in range(0, TURNS, 2):
        await talk.failing_turn(f"turn {number}", STEPS[number // 2 % len(STEPS)], happen)
        await talk.turn(f"turn {number + 1}")


async def _be_killed(talk: Talk) -> None:
    numbers = iter(range(TURNS))
    for step in STEPS:
        for _turn in range(8):
            await talk.turn(f"turn {next(numbers)}")
        number = next(numbers)
        module = "tests.support.agents.faulty.child"
        command = [sys.executable, "-m", module, talk.adapter, talk.url, str(number), step]
        killed = await asyncio.to_thread(forking.run, command, capture_output=True)
        assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "acknowledged\n"), killed.stderr
        talk.acknowledged.append(f"turn {number}")
        next(numbers)
    await talk.turn("and now?")


async def _approve_three_turns_later(talk: Talk) -> None:
    for number in range(0, TURNS, 5):
        waiting = await talk.driver.ask_approval(f"turn {number}")
        for later in range(1, 4):
            await talk.turn(f"turn {number + later}")
        await talk.driver.approve(waiting)
        talk.acknowledged.append(f"turn {number}")
        await talk.turn(f"turn {number + 4}")


async def _return_odd_outputs(talk: Talk, output: str, shown: str) -> None:
    """The result of each third turn begins as it did, and the others are as they were."""
    for number in range(0, TURNS, 3):
        talk.fault.output = output
        await talk.turn(f"turn {number}")
        talk.fault.output = "noted"
        for later in (1, 2):
            await talk.turn(f"turn {number + later}")
    results = [message for message in await talk.driver.memory.aget_all() if message.role == "tool"]
    assert [result.text.startswith(shown) for result in results] == [True, False, False] * 10


EVENTS: Mapping[str, Callable[[Talk], Coroutine[Any, Any, None]]] = {
    "a step raises": partial(_fail, happen=raise_error),
    "the task is cancelled": partial(_fail, happen=cancel),
    "the process is killed": _be_killed,
    "the approval comes three turns later": _approve_three_turns_later,
    "an output has odd characters": partial(_return_odd_outputs, output="page\x00text \ud83d", shown="page"),
    "an output has three megabytes": partial(_return_odd_outputs, output="boats " * 500_000, shown="boats"),
}


def have_talk(adapter: str, url: str, event: str) -> None:
    """Thirty turns with an agent of an adapter, in which the event happens again and again."""

    async def whole() -> None:
        talk = Talk(adapter, url)
        await EVENTS[event](talk)
        await talk.end()

    asyncio.run(whole())
