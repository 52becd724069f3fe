"""LangChain's ``BaseChatMessageHistory`` over a session's memory."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage

from strandline.adapters.langchain.messages import langchain_message_of, message_of
from strandline.adapters.storable import storable
from strandline.producers.memory import SessionMemory


class MemoryHistory(BaseChatMessageHistory):
    """A session's memory as a chat message history.

    The messages are read once a turn, and again after the next write: ``RunnableWithMessageHistory`` reads
    them before and after a call, and infers from the difference in length which messages are new, so memory
    that workers derive meanwhile must not change it.  To see the current state of a session, use ``memory``.

    Args:
        memory: the memory to read and write.
    """

    def __init__(self, memory: SessionMemory) -> None:
        super().__init__()
        self.memory = memory
        self._read: list[BaseMessage] | None = None

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # LangChain's own classes do so too
        """The messages for the next model call: memory as a system message, then the window."""
        if self._read is None:
            self._read = [langchain_message_of(message) for message in self.memory.get()]
        return list(self._read)

    async def aget_messages(self) -> list[BaseMessage]:
        """Async twin of ``messages``."""
        if self._read is None:
            self._read = [langchain_message_of(message) for message in await self.memory.aget()]
        return list(self._read)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Accept messages in one round trip, all or none."""
        self._read = None
        self.memory.put_messages(storable(map(message_of, messages), self.memory.put_limits))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Async twin of ``add_messages``."""
        self._read = None
        await self.memory.aput_messages(storable(map(message_of, messages), self.memory.put_limits))

    def clear(self) -> None:
        """Start the session over; facts of its user stay (``memory.reset(derived=True)`` deletes them)."""
        self._read = None
        self.memory.reset()

    async def aclear(self) -> None:
        """Async twin of ``clear``."""
        self._read = None
        await self.memory.areset()
