"""LangChain's ``BaseChatMessageHistory`` over a session's memory."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from types import CodeType
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import ensure_config
from langchain_core.runnables.history import RunnableWithMessageHistory

from strandline.adapters.converter import in_chat_form, without_leftovers
from strandline.adapters.langchain.messages import LIBRARY, langchain_message_of, message_of
from strandline.adapters.storable import parts_of, storable
from strandline.adapters.twins import Act, call, twins
from strandline.memory import Memory
from strandline.schemas.values.message import Message, shown_with

# Of so many turns at once on one object it is known what each was shown.
MAX_OPEN_TURNS = 100
# Among so many of the newest messages of the log, one of a graph's state is looked for; then among so many
# that may be speeches, since a turn may have any number of calls and results.
_NEWEST = 20
_NEWEST_SPOKEN = 500
_SPEAKERS = ("user", "assistant")
_SUMMARY = "summarization"  # a middleware's, in the place of what was said, as words of the user

# Where ``RunnableWithMessageHistory`` ends a turn: it asks how many messages of its input are not new.
TURN_ENDS: frozenset[CodeType] = frozenset(
    getattr(RunnableWithMessageHistory, name).__code__
    for name in ("_exit_history", "_aexit_history")
    if hasattr(RunnableWithMessageHistory, name)
)
_is_whole_input: ContextVar[bool] = ContextVar("strandline_langchain_whole_input", default=False)


class StrandlineHistory(BaseChatMessageHistory):
    """A chat message history whose messages are a window with long-term memory before it.

    ``RunnableWithMessageHistory`` also asks at the end of a turn how many messages its input began with,
    which may have changed: it is told none, and the messages shown to the turn are left out of its addition.
    So one object serves concurrent turns, and turns of other processes.

    Args:
        session_id: the conversation; default: a new random one.
        user_id: the owner of facts, across sessions.
        options: as ``strandline.Memory.from_defaults`` takes them (``token_limit``, ``memory_blocks``,
            ``database_url``, …).

    Attributes:
        memory: the session's memory itself, for operations that LangChain lacks (``flush``, ``facts``, …).

    Raises: as ``strandline.Memory.from_defaults``.
    """

    def __init__(self, session_id: str | None = None, *, user_id: str | None = None, **options: Any) -> None:
        super().__init__()
        self.memory = Memory.from_defaults(session_id, user_id=user_id, **options)
        # The messages that open turns were shown: their number, and a digest.
        self._turns: deque[tuple[int, int]] = deque(maxlen=MAX_OPEN_TURNS)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # LangChain's own classes do so too
        """The messages for the next model call: memory as a system message, then the window."""
        return [] if _ends_turn(sys._getframe(1).f_code) else self._show(self.memory.get())

    async def aget_messages(self) -> list[BaseMessage]:
        """Async twin of ``messages``."""
        caller = sys._getframe(1).f_code
        return [] if _ends_turn(caller) else self._show(await self.memory.aget())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Accept messages in one round trip, all or none."""
        self.memory.put_messages(self._storable(map(message_of, self._without_shown(messages))))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Async twin of ``add_messages``."""
        await self.memory.aput_messages(self._storable(map(message_of, self._without_shown(messages))))

    def _add_state(self, messages: Sequence[BaseMessage]) -> Act[None]:
        """Accept those messages of a graph's state that are new: the state of a checkpointer has all of them.

        They are known by the ids that LangGraph gives them, so doing it again adds nothing; or, if an
        application hands in the history again without ids, by the speeches before the log ends.  A message
        that was edited in the state stays in the log as it was said: ``memory.replace`` edits it there.
        """
        newest = yield from call(self.memory.history, limit=_NEWEST)
        if not _count_known(messages, newest):
            newest = yield from call(self.memory.history, limit=_NEWEST_SPOKEN, roles=_SPEAKERS)
        for part in _new_parts(messages, newest):
            yield from call(self.memory.put_messages, self._storable(part))

    add_state, aadd_state = twins(_add_state)

    def _storable(self, messages: Iterable[Message]) -> list[Message]:
        kept = ((one, without_leftovers(one, LIBRARY)[1].get("fields", {})) for one in messages)
        own = (one for one, left in kept if left.get("additional_kwargs", {}).get("lc_source") != _SUMMARY)
        return storable(own, self.memory.put_limits)

    def clear(self) -> None:
        """Start the session over; facts of its user stay (``memory.reset(derived=True)`` deletes them)."""
        self.memory.reset()

    async def aclear(self) -> None:
        """Async twin of ``clear``."""
        await self.memory.areset()

    def _show(self, context: Iterable[Message]) -> list[BaseMessage]:
        messages = [langchain_message_of(message) for message in in_chat_form(context, LIBRARY)]
        if ensure_config().get("configurable", {}).get("message_history") is self:
            messages = _without_open_end(messages)
            self._turns.append((len(messages), _digest(messages)))
        return messages

    def _without_shown(self, messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        if not _is_whole_input.get():
            return messages
        _is_whole_input.set(False)
        for turn in sorted(set(self._turns), reverse=True):
            if _digest(messages[: turn[0]]) == turn[1]:
                self._turns.remove(turn)
                return messages[turn[0] :]
        return messages


def _ends_turn(caller: CodeType) -> bool:
    is_end = caller in TURN_ENDS
    if is_end:
        _is_whole_input.set(True)
    return is_end


def _without_open_end(messages: list[BaseMessage]) -> list[BaseMessage]:
    last = next((message for message in reversed(messages) if not isinstance(message, ToolMessage)), None)
    if not isinstance(last, AIMessage):
        return messages
    place = max(place for place, message in enumerate(messages) if message is last)
    answered = {message.tool_call_id for message in messages[place + 1 :] if isinstance(message, ToolMessage)}
    return messages[:place] if {call["id"] for call in last.tool_calls} - answered else messages


def _digest(messages: Sequence[BaseMessage]) -> int:
    return hash(repr(list(messages)))


def _count_known(state: Sequence[BaseMessage], newest: Sequence[Message]) -> int:
    """How many messages of a state the log has, by the last whose id is known."""
    known = {message.id for message in newest}
    return max((place for place, message in enumerate(state, 1) if message.id in known), default=0)


def _new_parts(state: Sequence[BaseMessage], newest: Sequence[Message]) -> Iterator[list[Message]]:
    last = _count_known(state, newest) or _count_repeated(list(map(message_of, state)), newest)
    for part in parts_of(state[last:]):
        # As shown: of an id that the log has, the log's message stays.
        yield [
            shown_with(message_of(one), id=one.id) if one.id is not None else message_of(one) for one in part
        ]


def _count_repeated(state: Sequence[Message], newest: Sequence[Message]) -> int:
    """How many messages of a state without known ids the log ends with: an application handed them in again.

    Speeches are compared, since an application may keep those alone; there is an answer among them.
    """
    logged = [(message.role, message.text) for message in newest if _is_speech(message)][-_NEWEST:]
    places = [place for place, message in enumerate(state, 1) if _is_speech(message)]
    speeches = [(state[place - 1].role, state[place - 1].text) for place in places]
    for length in range(len(speeches), 1, -1):
        same = speeches[max(0, length - len(logged)) : length]
        if len(same) > 1 and same == logged[-length:] and "assistant" in dict(same):
            return places[length - 1]
    return 0


def _is_speech(message: Message) -> bool:
    return message.role in _SPEAKERS and bool(message.text)
