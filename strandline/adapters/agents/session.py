"""A ``Session`` of OpenAI's Agents SDK over a session's memory: the interface that its runner calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from agents import SessionSettings, TResponseInputItem
from agents.memory import OpenAIResponsesCompactionArgs

from strandline.adapters.agents.items import Item, items_of, message_of
from strandline.adapters.converter import without
from strandline.adapters.storable import storable
from strandline.memory import Memory
from strandline.schemas.values.message import HEAD_ROLES, Message


class StrandlineSession:
    """A session of the Agents SDK whose history is a window with long-term memory before it.

    Args:
        session_id: the conversation; default: a new random one.
        user_id: the owner of facts, across sessions.
        session_settings: the SDK's own settings; a ``limit`` there is passed to ``get_items``.
        options: as ``strandline.Memory.from_defaults`` takes them (``token_limit``, ``memory_blocks``,
            ``database_url``, …).

    Attributes:
        memory: the session's memory itself, for operations that the SDK lacks (``flush``, ``facts``, …).

    Raises: as ``strandline.Memory.from_defaults``.
    """

    def __init__(
        self,
        session_id: str | None = None,
        *,
        user_id: str | None = None,
        session_settings: SessionSettings | None = None,
        **options: Any,
    ) -> None:
        self.memory = Memory.from_defaults(session_id, user_id=user_id, **options)
        self.session_id = self.memory.session_id
        self.session_settings = session_settings
        # The same session without memory blocks, for reading its items alone.
        without_blocks = {**options, "memory_blocks": []}
        self._bare = Memory.from_defaults(self.session_id, user_id=user_id, **without_blocks)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items for the next model call: memory as a system item, messages it does not cover, the window.

        Items that a compaction item of OpenAI replaces are left out, and stay in the log.

        Args:
            limit: return only this many of the latest items, without memory. Do not set it to bound a run's
                input: the memory's ``token_limit`` does that.
        """
        if limit is None:
            items = list(_with_known_reasoning(await self.memory.aget()))
            return _typed_items(_with_known_callers(without_compacted(items)))
        messages = (await self._bare.aget()).messages if limit > 0 else ()
        items = [item for message in messages for item in items_of(message)]
        return _typed_items(_with_known_callers(without_compacted(items)[-limit:]))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Accept items in one round trip, all or none; an empty list does nothing."""
        messages = (message_of(cast(Item, item)) for item in items)
        await self.memory.aput_messages(storable(messages, self.memory.put_limits))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it, or None if the session is empty.

        If it was delivered to the pipelines, everything derived from it goes as well.
        """
        items: list[Item] = []

        def keep_others(message: Message) -> Sequence[Message]:
            # Put by something else as one message, it is several items here: those before the newest stay.
            items[:] = items_of(message)
            return storable(map(message_of, items[:-1]), self.memory.put_limits)

        while await self.memory.apop(keep=keep_others) is not None:
            if items:
                return _typed_items(items[-1:])[0]
            # An answer without text belongs to something else: no list of items shows it either.
        return None

    async def clear_session(self) -> None:
        """Start the session over; facts of its user stay (``memory.areset(derived=True)`` deletes them)."""
        await self.memory.areset()

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> None:
        """Compact the conversation: with ``force``, deliver all but the last turn to memory.

        The SDK calls it after each turn.  Without ``force`` it does nothing: a put above the token mark
        delivers by itself.  No model of OpenAI is called; workers derive memory from the delivered messages.
        """
        if args is not None and args.get("force"):
            await self.memory.aflush()


def _typed_items(items: Sequence[Item]) -> list[TResponseInputItem]:
    return cast("list[TResponseInputItem]", list(items))


def _with_known_reasoning(messages: Iterable[Message]) -> Iterator[Item]:
    """The items, without the ids by which a provider looks for missing reasoning.

    The log may lack messages up to the next reasoning or turn.
    """
    is_cut, last = False, 0
    for message in messages:
        if message.seq is not None:
            is_cut, last = is_cut or message.seq != last + 1, message.seq
        for item in items_of(message):
            is_cut = is_cut and item.get("role") != "user" and item.get("type") != "reasoning"
            is_lost = is_cut and item.get("role") not in HEAD_ROLES and item.get("type") in _WITHOUT_ID
            yield {key: value for key, value in item.items() if key != "id"} if is_lost else item


def _with_known_callers(items: Sequence[Item]) -> list[Item]:
    """The items, of which none names a program that is not there: the API would look for it."""
    known = {None, *(item.get("call_id") for item in items if item.get("type") == "program")}
    lost = [(item.get("caller") or {}).get("caller_id") not in known for item in items]
    return [without(item, *["caller"] * is_lost) for item, is_lost in zip(items, lost, strict=True)]


COMPACTION = "compaction"
# Items that the API takes without an id; of others, such as calls of hosted tools, it is required.
_WITHOUT_ID = frozenset(
    {None, "message", "reasoning", "function_call", "custom_tool_call", "shell_call", "apply_patch_call"}
)


def without_compacted(items: Sequence[Item]) -> list[Item]:
    """The items that the newest compaction item does not replace; instructions before them stay.

    If only the user's messages precede it, ``responses.compact`` compacted a whole window: such a window has
    these messages next to the item, and is sent as it is.
    """
    places = [place for place, item in enumerate(items) if item.get("type") == COMPACTION]
    if not places:
        return list(items)
    head = _head_length(items)
    before = items[head : places[-1]]
    if all(_is_users(item) for item in before):
        return list(items)
    return [*items[:head], *items[places[-1] :]]


def _head_length(items: Sequence[Item]) -> int:
    return next((place for place, item in enumerate(items) if item.get("role") not in HEAD_ROLES), len(items))


def _is_users(item: Mapping[str, Any]) -> bool:
    return item.get("role") == "user" or item.get("type") == COMPACTION
