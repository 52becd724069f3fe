"""What the agents of all adapters share: the script of their turns, and where they go wrong.

In each turn the user says something, the model calls the tool ``note``, and answers when it has the result.
"""

from __future__ import annotations

import asyncio
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from strandline import Memory, Message

SESSION = "talks"
USER = "ana"
# Where a turn can go wrong: the model that is to call, the tool, the model that is to answer.
STEPS = ("ask", "tool", "answer")


class Fault:
    """What happens at one step of a turn, once.

    Attributes:
        output: what the tool returns.
    """

    def __init__(self) -> None:
        self._step: str | None = None
        self._happen: Happen = raise_error
        self._turn: asyncio.Task[None] | None = None
        self.output = "noted"

    def arm(self, step: str, happen: Happen) -> None:
        self._step, self._happen = step, happen

    def begin(self, turn: asyncio.Task[None]) -> None:
        """Say which task the turn is."""
        self._turn = turn

    def at(self, step: str) -> None:
        """Called by the model and the tool."""
        if step == self._step:
            self._step = None
            self._happen(self._turn)


Happen = Callable[["asyncio.Task[None] | None"], object]


def raise_error(_turn: object) -> None:
    raise LookupError("told to fail")


def kill_process(_turn: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def cancel(turn: asyncio.Task[None] | None) -> None:
    """Cancels the turn, from any thread."""
    assert turn is not None
    turn.get_loop().call_soon_threadsafe(turn.cancel)


class Driver(ABC):
    """An agent of one adapter, in one conversation.

    Attributes:
        requests: what the model was sent in each call, in the form of OpenAI's chat API.
    """

    def __init__(self, fault: Fault, **options: Any) -> None:
        self.fault = fault
        self.options = {"user_id": USER, "memory_blocks": [], **options}
        self.requests: list[list[dict[str, Any]]] = []
        self.memory = Memory.from_defaults(SESSION, **self.options)
        self._calls = 0

    @abstractmethod
    async def turn(self, text: str) -> None:
        """The user says a text, and gets the answer ``Done: text``."""

    @abstractmethod
    async def ask_approval(self, text: str) -> Any:
        """The user says a text, and the model calls a tool that waits for a person; returns what waits."""

    @abstractmethod
    async def approve(self, waiting: Any) -> None:
        """The person approves, the tool runs, and the model answers."""

    def note(self, text: str) -> str:
        """Note a text."""
        self.fault.at("tool")
        return self.fault.output

    def next_id(self) -> str:
        self._calls += 1
        return f"call-{os.getpid()}-{self._calls}"

    def sent(self, messages: Iterable[Message]) -> None:
        self.requests.append([message.to_openai() for message in messages])

    async def shown(self) -> list[dict[str, Any]]:
        return (await self.memory.aget()).to_openai()


def pair_problems(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What every provider refuses of calls and results."""
    problems: list[str] = []
    waiting: set[str] = set()
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                problems.append(f"{place}: a result without its call, or a second one")
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            problems.append(f"{place}: comes before the results of {sorted(waiting)}")
        waiting = {call["id"] for call in message.get("tool_calls") or ()}
    return problems + ([f"the end: without the results of {sorted(waiting)}"] if waiting else [])
