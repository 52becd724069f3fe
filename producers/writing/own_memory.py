"""Memory that comes back: a framework may put what a read gave, with the memory in its system message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from strandline.producers.blocks.base import BaseMemoryBlock
from strandline.producers.blocks.render import without_memory
from strandline.schemas.values.foreign_values import plain_text
from strandline.schemas.values.message import HEAD_ROLES, Message


def without_own_memory(message: Message, blocks: Sequence[BaseMemoryBlock] = ()) -> Message | None:
    """A system message without the memory of a read, which is derived already; None if it is nothing else.

    A memory that a template of the application's own lays out is not recognised.
    """
    # What an application gave, of any kind: it is checked behind this.
    role: object = message.role
    content: Any = message.content
    is_instruction = isinstance(role, str) and plain_text(role) in HEAD_ROLES
    if not is_instruction or type(content) not in (str, list):
        return message
    names = [block.name for block in blocks]
    if type(content) is str:
        kept: Any = without_memory(content, names)
    else:
        stripped = [(part, _without_memory(part, names)) for part in content]
        kept = [new for part, new in stripped if new is part or new["text"]]
    if kept == content:
        return message
    return replace(message, content=kept) if kept else None


def _without_memory(part: Any, names: Sequence[str]) -> Any:
    if type(part) is not dict or type(part.get("text")) is not str:
        return part
    text = without_memory(part["text"], names)
    return part if text == part["text"] else {**part, "text": text}
