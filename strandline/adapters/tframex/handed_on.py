"""Messages that a flow hands on: agents that share a store are each given the same object."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tframex.models.primitives import Message as FrameMessage

# So many of the messages stored last are recognised.
MAX_LATEST = 16


@dataclass(slots=True, eq=False)
class Entry:
    """A message that was stored; kept, so that no other one has the same place in RAM."""

    message: object
    agents: set[str | None]
    is_stored: bool = False
    end: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class HandedOn:
    """Stores a message once, though several agents of a flow add it."""

    def __init__(self) -> None:
        self._latest: deque[Entry] = deque(maxlen=MAX_LATEST)

    async def store_once(
        self, message: object, agent: str | None, store: Callable[[], Awaitable[object]]
    ) -> None:
        """Store a message, or wait until another agent that was given the same object has stored it."""
        while (entry := self._find(message, agent)) is not None:
            if not entry.end.done():
                await asyncio.shield(entry.end)
            if entry.is_stored:
                entry.agents.add(agent)
                return
        entry = Entry(message, {agent})
        self._latest.append(entry)
        try:
            await store()
            entry.is_stored = True
        finally:
            if not entry.is_stored and entry in self._latest:
                self._latest.remove(entry)
            entry.end.set_result(None)

    def forget(self) -> None:
        """Take every message for a new one, after the store was cleared."""
        self._latest.clear()

    def _find(self, message: object, agent: str | None) -> Entry | None:
        """The entry of an object that another agent stored, or of the answer that was stored last."""
        for entry in self._latest:
            if entry.message is message and agent not in entry.agents:
                return entry
        last = self._latest[-1] if self._latest else None
        is_answer = isinstance(message, FrameMessage) and message.role == "assistant"
        return last if last is not None and last.message is message and is_answer else None
