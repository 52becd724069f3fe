"""Compaction items of OpenAI's Responses API, each of which stands for the items before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.adapters.agents.items import Item
from strandline.schemas.values.message import HEAD_ROLES

COMPACTION = "compaction"


def without_compacted(items: Sequence[Item]) -> list[Item]:
    """The items without those that the newest compaction item stands for; instructions before them stay.

    If only the user's messages are before it, it belongs to a window that was compacted as a whole, by
    ``responses.compact``: such a window has these messages beside the item, and has to be sent as it is.
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
    """How many instructions stand first: memory, and the pinned head."""
    return next((place for place, item in enumerate(items) if item.get("role") not in HEAD_ROLES), len(items))


def _is_users(item: Mapping[str, Any]) -> bool:
    return item.get("role") == "user" or item.get("type") == COMPACTION
