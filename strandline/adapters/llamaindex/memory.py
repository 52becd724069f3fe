"""LlamaIndex's ``BaseMemory`` over a session's memory: the interface of agents and chat engines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.memory import BaseMemory

from strandline.adapters.converter import as_said, in_chat_form
from strandline.adapters.llamaindex.messages import LIBRARY, chat_message_of, chat_messages_of, message_of
from strandline.adapters.storable import storable
from strandline.producers.memory import SessionMemory
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.values.message import HEAD_ROLES, Message


class ChatMemory(BaseMemory):
    """A session's memory in the form that LlamaIndex's agents, workflows and chat engines use.

    The async methods are really async; the sync ones may be called from any thread.
    """

    # The messages of the last read into which memory was, or may have been, inserted, and their ``seq``.
    _inserted: list[tuple[Message, int | None]] = PrivateAttr(default_factory=list)

    @property
    @abstractmethod
    def session_memory(self) -> SessionMemory:
        """The memory itself, for operations that LlamaIndex lacks: ``flush``, ``facts``, ``pop``, …"""

    def put(self, message: ChatMessage) -> None:
        """Accept one message: one round trip to Postgres, and no model call."""
        self.session_memory.put(*self._storable([message_of(message)]))

    async def aput(self, message: ChatMessage) -> None:
        """Async twin of ``put``."""
        await self.session_memory.aput(*self._storable([message_of(message)]))

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Accept several messages in one round trip, all or none; an empty list does nothing."""
        self.session_memory.put_messages(self._storable(map(message_of, messages)))

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Async twin of ``put_messages``."""
        await self.session_memory.aput_messages(self._storable(map(message_of, messages)))

    def get(self, input: str | ChatMessage | None = None, **kwargs: Any) -> list[ChatMessage]:
        """The messages for the next model call, memory inserted, within the token limit.

        Args:
            input: the text to search memory for; default: the latest messages.
            kwargs: ``messages`` (the same as a list), ``initial_token_count``, ``wait_for`` and ``timeout``
                as in ``Memory.get``.  Others are for blocks of your own, whose ``aget`` gets them; without
                such a block they are refused.
        """
        return self._show(self.session_memory.get(_query(input), **_reading(kwargs)))

    async def aget(self, input: str | ChatMessage | None = None, **kwargs: Any) -> list[ChatMessage]:
        """Async twin of ``get``."""
        return self._show(await self.session_memory.aget(_query(input), **_reading(kwargs)))

    def get_all(self) -> list[ChatMessage]:
        """The whole history, including messages that have left the window."""
        return chat_messages_of(self.session_memory.get_all())

    async def aget_all(self) -> list[ChatMessage]:
        """Async twin of ``get_all``."""
        return chat_messages_of(await self.session_memory.aget_all())

    def set(self, messages: list[ChatMessage]) -> None:
        """Replace the history; text that the last ``get`` inserted into these messages is not stored."""
        put_back = [message_of(message) for message in messages]
        originals = [
            next(self.session_memory.iterate(after_seq=seq - 1, page_size=1), None)
            for seq in self._seqs_of_inserted(put_back)
        ]
        self.session_memory.set(self._storable(self._as_said(put_back, originals)))

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Async twin of ``set``."""
        put_back = [message_of(message) for message in messages]
        originals = [
            await anext(self.session_memory.aiterate(after_seq=seq - 1, page_size=1), None)
            for seq in self._seqs_of_inserted(put_back)
        ]
        await self.session_memory.aset(self._storable(self._as_said(put_back, originals)))

    def reset(self) -> None:
        """Start the history over; facts stay (``session_memory.reset(derived=True)`` deletes them)."""
        self.session_memory.reset()

    async def areset(self) -> None:
        """Async twin of ``reset``."""
        await self.session_memory.areset()

    def _storable(self, messages: Iterable[Message]) -> list[Message]:
        return storable(messages, self.session_memory.put_limits)

    def _show(self, context: MemoryContext) -> list[ChatMessage]:
        forms = list(in_chat_form(context, LIBRARY))
        shown = [chat_message_of(message) for message in forms]
        self._inserted = [(message_of(shown[place]), forms[place].seq) for place in _places_of_memory(forms)]
        return shown

    def _seqs_of_inserted(self, put_back: Sequence[Message]) -> list[int]:
        """The seqs of stored messages in ``put_back``, where memory may be inserted."""
        return [seq for message, seq in self._inserted if seq is not None and message in put_back]

    def _as_said(self, put_back: Sequence[Message], originals: Sequence[Message | None]) -> list[Message]:
        """``put_back`` without memory: memory's own messages are dropped, others restored."""
        stored = {message.seq: as_said(message) for message in originals if message is not None}
        messages: list[Message] = []
        for message in put_back:
            seqs = [seq for shown, seq in self._inserted if shown == message]
            if not seqs:
                messages.append(message)
            elif seqs[0] is not None:
                messages.append(stored.get(seqs[0], message))
        return messages


def _places_of_memory(context: Sequence[Message]) -> list[int]:
    own = [place for place, message in enumerate(context) if message.seq is None]
    head = [place for place, message in enumerate(context) if message.role in HEAD_ROLES and message.seq]
    users = [place for place, message in enumerate(context) if message.role == "user"]
    return [*own, *head[:1], *users[-1:]]


def _query(query: str | ChatMessage | None) -> str | Message | None:
    return message_of(query) if isinstance(query, ChatMessage) else query


def _reading(kwargs: dict[str, Any]) -> dict[str, Any]:
    known = ("initial_token_count", "wait_for", "timeout")
    reading: dict[str, Any] = {key: kwargs[key] for key in known if key in kwargs}
    for_blocks = {key: value for key, value in kwargs.items() if key not in (*known, "messages")}
    reading["block_arguments"] = for_blocks or None
    if (messages := kwargs.get("messages")) is not None:
        reading["messages"] = [message_of(message) for message in messages]
    return reading
