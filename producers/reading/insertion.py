"""Inserts the memory into copies of the messages; the stored log stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from strandline.producers.blocks.base import InsertMethod
from strandline.producers.reading.budget.contributions import SEPARATOR
from strandline.schemas.values.message import HEAD_ROLES, Content, Message

Parts = Sequence[Mapping[str, Any]]


def assemble_messages(
    *,
    pinned: Sequence[Message],
    tail: Sequence[Message],
    window: Sequence[Message],
    memory: str,
    parts: Parts,
    method: InsertMethod,
) -> tuple[Message, ...]:
    """Pinned head, tail and window in order, with the memory in the message that ``method`` names.

    ``SYSTEM``: after the text of the first pinned system message, or as a separate system message at the
    front. ``USER``: before the text of the window's latest user message; without one, as for ``SYSTEM``.
    """
    if not memory and not parts:
        return (*pinned, *tail, *window)
    if method == InsertMethod.USER and (place := _latest_user(window)) is not None:
        asking = window[place]
        copy = replace(asking, content=_before(asking.content, memory, parts))
        return (*pinned, *tail, *window[:place], copy, *window[place + 1 :])
    head = next((index for index, message in enumerate(pinned) if message.role in HEAD_ROLES), None)
    if head is None:
        return (Message("system", _behind(None, memory, parts)), *pinned, *tail, *window)
    copy = replace(pinned[head], content=_behind(pinned[head].content, memory, parts))
    return (*pinned[:head], copy, *pinned[head + 1 :], *tail, *window)


def question_in_order(
    tail: Sequence[Message], window: Sequence[Message], question: int
) -> tuple[Sequence[Message], Sequence[Message]]:
    """Tail and window where the window's first message, the question, may belong into the tail."""
    if not question or not tail or window[0].seq != question:
        return tail, window
    return insert_in_order(window[0], tail), window[1:]


def insert_in_order(message: Message, tail: Sequence[Message]) -> Sequence[Message]:
    """The tail with a message in its place, which is never between a call and its results."""
    behind = (at for at, one in enumerate(tail) if (one.seq or 0) > (message.seq or 0) and not one.answers)
    at = next(behind, len(tail))
    return (*tail[:at], message, *tail[at:])


def _latest_user(window: Sequence[Message]) -> int | None:
    places = range(len(window) - 1, -1, -1)
    return next((place for place in places if window[place].is_new_turn), None)


def _behind(content: Content, memory: str, parts: Parts) -> Content:
    if not parts and (content is None or isinstance(content, str)):
        return _joined(content or "", memory)
    return [*_as_parts(content), *_as_parts(memory), *parts]


def _before(content: Content, memory: str, parts: Parts) -> Content:
    if not parts and (content is None or isinstance(content, str)):
        return _joined(memory, content or "")
    return [*_as_parts(memory), *parts, *_as_parts(content)]


def _joined(first: str, second: str) -> str:
    return SEPARATOR.join(text for text in (first, second) if text)


def _as_parts(content: Content) -> Parts:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content
