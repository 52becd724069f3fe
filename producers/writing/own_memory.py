"""Memory that comes back: a framework may put what a read gave, with the memory in its system message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from strandline.producers.blocks.base import BaseMemoryBlock
from strandline.producers.blocks.render import without_memory
from strandline.schemas.values.message import HEAD_ROLES, Message


def without_own_memory(message: Message, blocks: Sequence[BaseMemoryBlock] = ()) -> Message | None:
    """A system message without the memory of a read, which is derived already; None if it is nothing else.

    A memory that a template of the application's own lays out is not recognised.
    """
    if message.role not in HEAD_ROLES:
        return message
    content: Any = message.content
    if type(content) is str:
        stripped: Any = without_memory(content, (block.name for block in blocks))
    elif type(content) is list:
        stripped = [part for part in (_without(part, blocks) for part in content) if part is not None]
    else:
        return message
    if stripped == content:
        return message
    return replace(message, content=stripped) if stripped else None


def _without(part: Any, blocks: Sequence[BaseMemoryBlock]) -> Any:
    """A part of a content; None if it is a text that is nothing but memory."""
    text = part.get("text") if type(part) is dict else None
    if type(text) is not str:
        return part
    stripped = without_memory(text, (block.name for block in blocks))
    if stripped == text:
        return part
    return {**part, "text": stripped} if stripped else None
