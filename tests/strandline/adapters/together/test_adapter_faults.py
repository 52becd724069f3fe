"""Thirty turns of an agent of each adapter that goes wrong: the next is accepted, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import sys
from importlib import import_module

import pytest

from tests.support.agents.faulty.driving import (
    STEPS,
    Driver,
    Fault,
    Happen,
    cancel,
    raise_error,
)
from tests.support.processes import forking
from tests.support.providers.rules import chat_problems

TURNS = 30
ADAPTERS = {
    "agents_sdk": "agents",
    "agno": "agno.session.agent",
    "langchain": "langchain_core",
    "langgraph": "langchain.agents",
    "llamaindex": "llama_index.core",
    "pydantic_ai": "pydantic_ai",
}
# LangChain deprecates the class of the history.
pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")


class Talk:
    """A conversation, and what it acknowledged."""

    def __init__(self, adapter: str, url: str) -> None:
        library = ADAPTERS[adapter]
        pytest.importorskip(library, reason=f"needs {library}")
        self.fault = Fault()
        self.driver: Driver = import_module(f"tests.support.agents.faulty.{adapter}").Faulty(
            self.fault, database_url=url
        )
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


in_each_adapter = pytest.mark.parametrize("adapter", ADAPTERS)


@in_each_adapter
@pytest.mark.parametrize("happen", [raise_error, cancel])
async def test_a_turn_that_fails_at_any_step(adapter: str, database_url: str, happen: Happen) -> None:
    """The tool or the model raises, or the task is cancelled: every second turn, at each step in turn."""

    talk = Talk(adapter, database_url)
    for number in range(0, TURNS, 2):
        await talk.failing_turn(f"turn {number}", STEPS[number // 2 % len(STEPS)], happen)
        await talk.turn(f"turn {number + 1}")
    await talk.end()


@in_each_adapter
async def test_a_process_that_is_killed_at_any_step(adapter: str, database_url: str) -> None:
    talk = Talk(adapter, database_url)
    numbers = iter(range(TURNS))
    for step in STEPS:
        for _turn in range(8):
            await talk.turn(f"turn {next(numbers)}")
        number = next(numbers)
        module = "tests.support.agents.faulty.child"
        command = [sys.executable, "-m", module, adapter, database_url, str(number), step]
        killed = await asyncio.to_thread(forking.run, command, capture_output=True)
        assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "acknowledged\n"), killed.stderr
        talk.acknowledged.append(f"turn {number}")
        next(numbers)
    await talk.turn("and now?")
    await talk.end()


@in_each_adapter
async def test_an_approval_that_comes_three_turns_later(adapter: str, database_url: str) -> None:
    talk = Talk(adapter, database_url)
    for number in range(0, TURNS, 5):
        waiting = await talk.driver.ask_approval(f"turn {number}")
        for later in range(1, 4):
            await talk.turn(f"turn {number + later}")
        await talk.driver.approve(waiting)
        talk.acknowledged.append(f"turn {number}")
        await talk.turn(f"turn {number + 4}")
    await talk.end()


@in_each_adapter
def test_an_output_with_a_character_that_cannot_be_stored(adapter: str, database_url: str) -> None:
    asyncio.run(talk_with_odd_outputs(adapter, database_url, "page\x00text \ud83d", "page"))


@in_each_adapter
def test_an_output_of_three_megabytes(adapter: str, database_url: str) -> None:
    asyncio.run(talk_with_odd_outputs(adapter, database_url, "boats " * 500_000, "boats"))


async def talk_with_odd_outputs(adapter: str, url: str, output: str, shown: str) -> None:
    """The result of each third turn begins as it did, and the others are as they were."""
    talk = Talk(adapter, url)
    for number in range(0, TURNS, 3):
        talk.fault.output = output
        await talk.turn(f"turn {number}")
        talk.fault.output = "noted"
        for later in (1, 2):
            await talk.turn(f"turn {number + later}")
    results = [message for message in await talk.driver.memory.aget_all() if message.role == "tool"]
    assert [result.text.startswith(shown) for result in results] == [True, False, False] * 10
    await talk.end()
