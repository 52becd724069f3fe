"""A memory store of TFrameX over a session's memory: the four methods that its agents know, and more.

It has no ``__len__``: TFrameX takes a store that is false for none, and keeps messages in RAM instead.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Self

from tframex.models.primitives import Message as FrameMessage
from tframex.util.memory import BaseMemoryStore

from strandline import ConfigurationError, Memory, MemoryContext, Message, sliding_window
from strandline.adapters.converter import (
    NO_ID,
    as_said,
    in_chat_form,
    try_restore,
    with_leftovers,
    without_leftovers,
)
from strandline.adapters.storable import storable
from strandline.producers.arguments import check_count
from strandline.producers.blocks.render import Section, render_memory
from strandline.producers.reading.call_pairs import settled
from strandline.schemas.display.shown_text import quote
from strandline.schemas.values.forms.tool_calls import read_call
from strandline.schemas.values.labels import Scalar

# As many messages as an agent of TFrameX asks for, unless it is configured otherwise.
AGENT_HISTORY = 10
DEFAULT_SCOPE = "default"
DEFAULT_CONTEXT_TOKENS = 4_000
# Of a long log so many messages are read first, and four times as many where these are too few.
FIRST_PAGE = 200


# So many of the messages stored last are recognised.
MAX_LATEST = 16
LIBRARY = "tframex"
_ROLES = {"developer": "system"}


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
        for entry in self._latest:
            if entry.message is message and agent not in entry.agents:
                return entry
        last = self._latest[-1] if self._latest else None
        is_answer = isinstance(message, FrameMessage) and message.role == "assistant"
        return last if last is not None and last.message is message and is_answer else None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that a store shows of its log: messages, and tokens; None: all."""

    messages: int | None = None
    tokens: int | None = None


class StrandlineMemoryStore(BaseMemoryStore):
    """A memory store of TFrameX: the newest messages of a session, with long-term memory before them.

    Safe to share between agents, tasks and processes; nothing is lost, and the order is kept.

    Args:
        session_id: the conversation; default: a new random one.
        user_id: the owner of facts, across sessions and scopes.
        max_messages: maximum number of messages that ``get_history`` gives; None: no bound.
            The log keeps all.
        max_tokens: the same in tokens; at least one message is given.
        eviction_strategy: ``"fifo"``; the oldest leave first.
        history_limit: your agents' ``history_limit``, if configured: memory covers the messages before these.
        options: as ``strandline.Memory.from_defaults`` takes them (``token_limit``, ``memory_blocks``,
            ``database_url``, …); ``deliver`` is ``"turn"`` here.

    Attributes:
        memory: the session's memory itself, for operations that TFrameX lacks (``flush``, ``facts``, …).

    Raises:
        ConfigurationError: an argument cannot be used, ``eviction_strategy`` another one included.
        InvalidMessageError: a name is not valid.
    """

    def __init__(
        self,
        session_id: str | None = None,
        *,
        user_id: str | None = None,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        eviction_strategy: str = "fifo",
        history_limit: int = AGENT_HISTORY,
        **options: Any,
    ) -> None:
        if eviction_strategy != "fifo":
            raise ConfigurationError(
                f"eviction_strategy is {quote(eviction_strategy)}; only 'fifo' is offered: the oldest"
                " messages leave the window first, and stay in the log and in memory."
            )
        self._bounds = bounds = Bounds(
            _check_bound("max_messages", max_messages), _check_bound("max_tokens", max_tokens)
        )
        shown = min(
            _check_bound("history_limit", history_limit) or AGENT_HISTORY, bounds.messages or history_limit
        )
        self.memory = Memory.from_defaults(
            session_id, user_id=user_id, **{"deliver": "turn", **sliding_window(shown), **options}
        )
        self._agent: str | None = None
        self._scope_stores: dict[str, Self] = {}
        self._handed_on = HandedOn()

    @property
    def session_id(self) -> str:
        return self.memory.session_id

    async def add_message(
        self,
        message: FrameMessage | Message | Mapping[str, Any],
        scope: str = DEFAULT_SCOPE,
        *,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> None:
        """Accept a message: one round trip to Postgres.

        A message that a flow hands on from one agent to another is the same object, and is stored once if
        both share the store.

        Args:
            message: TFrameX's, one of ours, or an OpenAI dict.
            scope: a scope of the store; default: the store itself.
            metadata: to be found by (``get_messages_by_metadata``).

        Raises:
            InvalidMessageError: it cannot be stored as given.
            OwnerError: the session belongs to another owner.
        """
        if scope != DEFAULT_SCOPE:
            await self.get_scope(scope).add_message(message, metadata=metadata)
            return
        (kept,) = storable([message_of(message, metadata=metadata, name=self._agent)], self.memory.put_limits)
        store = partial(self.memory.aput, kept)
        await self._handed_on.store_once(message, self._agent, store)

    async def get_history(
        self, limit: int | None = None, offset: int = 0, roles: Sequence[str] | None = None
    ) -> list[FrameMessage]:
        """Memory, and the newest messages within the store's bounds, in order.

        Memory (facts, summary, earlier messages that fit the latest ones) is one system message at the front,
        outside of ``limit``, which is not stored. It is left out if ``roles`` are given, or an ``offset``.

        Args:
            limit: maximum number of messages; None: as many as the bounds allow.
            offset: how many of the newest to leave out.
            roles: only messages of these roles, and no memory.

        Raises:
            ConfigurationError: an argument is not one of these.
        """
        messages = await self._messages(limit, offset, list(roles) if roles else None)
        if roles or offset:
            return frame_messages_of(messages)
        shown = frame_messages_of(settled(messages))
        memory = memory_text(await self.memory.aget())
        return [FrameMessage(role="system", content=memory), *shown] if memory else shown

    async def get_context_window(self, max_tokens: int = DEFAULT_CONTEXT_TOKENS) -> list[FrameMessage]:
        """The newest messages that fit ``max_tokens``, in order, calls with their results; no memory."""
        return frame_messages_of(await self.memory.acontext_window(max_tokens))

    async def clear(self) -> None:
        """Start the session over; its scopes and the user's facts stay (``memory.areset(derived=True)``)."""
        await self.memory.areset()
        self._handed_on.forget()

    async def search(self, query: str, top_k: int = 5) -> list[FrameMessage]:
        """The messages of the session that match ``query`` best, best first."""
        hits = await self.memory.asearch(query, limit=top_k)
        return frame_messages_of(hit.message for hit in hits)

    async def get_messages_by_metadata(self, **filters: Scalar) -> list[FrameMessage]:
        """The messages whose metadata has each of these keys with this value, in order."""
        return frame_messages_of(await self.memory.ahistory(metadata=filters))

    async def get_messages_by_date_range(
        self, start_date: datetime, end_date: datetime
    ) -> list[FrameMessage]:
        """The messages from ``start_date`` to ``end_date``, both included and with a time zone, in order."""
        return frame_messages_of(await self.memory.ahistory(since=start_date, until=end_date))

    def get_scope(self, scope_name: str) -> Self:
        """The store of a scope: a session of its own, with its own facts unless the store has a user.

        Raises:
            InvalidMessageError: ``scope_name`` is not a valid name.
        """
        if scope_name == DEFAULT_SCOPE:
            return self
        if scope_name not in self._scope_stores:
            scoped = copy(self)
            scoped.memory = self.memory.get_scope(scope_name)
            scoped._scope_stores = {}
            scoped._handed_on = HandedOn()
            self._scope_stores[scope_name] = scoped
        return self._scope_stores[scope_name]

    def for_agent(self, name: str) -> Self:
        """The same store for one of several agents, whose answers carry its name."""
        named = copy(self)
        named._agent = name
        return named

    async def aclose(self) -> None:
        """Close the resources that this process shares, on the event loop that used the store."""
        await self.memory.aclose()

    async def _messages(self, limit: int | None, offset: int, roles: list[str] | None) -> list[Message]:
        if self._bounds == Bounds():
            return await self.memory.ahistory(limit, offset, roles)
        most = check_count("limit", limit) if limit is not None else None
        first = check_count("offset", offset)
        messages = await self._bounded_messages()
        chosen = [message for message in messages if roles is None or message.role in roles]
        chosen = chosen[: max(0, len(chosen) - first)]
        return chosen if most is None else chosen[max(0, len(chosen) - most) :]

    async def _bounded_messages(self) -> list[Message]:
        """The newest messages within the bounds; of a long log, little more is read than fits."""
        most, tokens = self._bounds.messages, self._bounds.tokens
        if tokens is None:
            return await self.memory.ahistory(limit=most)
        size = FIRST_PAGE
        while True:
            limit = size if most is None else min(size, most)
            messages = await self.memory.ahistory(limit=limit)
            within = _newest_within(messages, tokens)
            if len(within) < len(messages) or len(messages) < limit or limit == most:
                return within
            size *= 4


def memory_text(context: MemoryContext) -> str:
    """The memory that a read inserted, without messages; empty if there is none."""
    first = next(iter(context.messages), None)
    if first is not None and first.seq is None and isinstance(first.content, str):
        return first.content
    return render_memory([Section(section.name, section.text) for section in context.memory.sections])


def _newest_within(messages: Sequence[Message], tokens: int) -> list[Message]:
    first = len(messages)
    left = tokens
    for place in range(len(messages) - 1, -1, -1):
        left -= messages[place].tokens or 0
        if left < 0 and first < len(messages):
            break
        first = place
    return list(messages[first:])


def _check_bound(name: str, value: int | None) -> int | None:
    return None if value is None else check_count(name, value, least=1)


def message_of(
    original: object, *, metadata: Mapping[str, Any] | None = None, name: str | None = None
) -> Message:
    """The stored message for one of TFrameX's, for one of ours, or for an OpenAI dict.

    Args:
        original: the message.
        metadata: to be found by.
        name: the agent that spoke, if the message is an assistant's and names none.

    Raises:
        InvalidMessageError: it is none of these.
    """
    message = (
        _frame_message(original) if isinstance(original, FrameMessage) else Message.from_openai(original)
    )
    if name is not None and message.role == "assistant" and message.name is None:
        message = replace(message, name=name)
    return with_leftovers(replace(message, metadata={**message.metadata, **(metadata or {})}), LIBRARY, {})


def frame_message_of(message: Message) -> FrameMessage:
    """The message that this one was stored from; for one of another origin, an equivalent message."""
    plain, left = without_leftovers(message, LIBRARY)

    def is_stored_so(theirs: FrameMessage) -> bool:
        stored = replace(message_of(theirs), metadata={**plain.metadata, LIBRARY: left})
        return as_said(stored) == replace(as_said(message), extra={})

    theirs = try_restore(message, LIBRARY, _restore_message, is_stored_so)
    return _restore_message(plain, {}) if theirs is None else theirs


def frame_messages_of(messages: Iterable[Message]) -> list[FrameMessage]:
    """Messages of any origin, their calls where TFrameX looks for them."""
    return [frame_message_of(message) for message in in_chat_form(messages, LIBRARY)]


def _frame_message(original: FrameMessage) -> Message:
    calls = [call.model_dump() for call in original.tool_calls or ()]
    is_result, is_answer = original.role == "tool", original.role == "assistant"
    message = Message(
        original.role,
        "" if original.content is None and not (calls and is_answer) else original.content,
        name=original.name,
        tool_calls=[{**one, "id": one["id"] or NO_ID} for one in calls] or None if is_answer else None,
        tool_call_id=(original.tool_call_id or NO_ID) if is_result else None,
    )
    left: dict[str, Any] = {}
    if message.content != original.content:
        left["content"] = original.content
    if calls and message.tool_calls != calls:
        left["tool_calls"] = calls
    if message.tool_call_id != original.tool_call_id:
        left["tool_call_id"] = original.tool_call_id
    return with_leftovers(message, LIBRARY, left)


def _restore_message(message: Message, left: Mapping[str, Any]) -> FrameMessage:
    content = message.text if isinstance(message.content, Sequence) else message.content
    fields: dict[str, Any] = {
        "role": _ROLES.get(message.role, message.role),
        "content": content,
        "name": message.name,
        "tool_calls": [_call(call) for call in message.tool_calls or ()] or None,
        "tool_call_id": message.tool_call_id,
    }
    return FrameMessage.model_validate({**fields, **left})


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    called = read_call(call)
    arguments = called.arguments or ""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": called.name, "arguments": text}
    return {"id": str(called.id or NO_ID), "function": function}
