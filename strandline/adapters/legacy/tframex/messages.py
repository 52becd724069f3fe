"""Maps messages of TFrameX to ours and back, without loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tframex.models.primitives import Message as FrameMessage

from strandline import Message
from strandline.adapters.converter import (
    NO_ID,
    as_said,
    in_chat_form,
    read_call,
    try_restore,
    with_leftovers,
    without_leftovers,
)

LIBRARY = "tframex"
_ROLES = {"developer": "system"}


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
    function = {"name": called.name, "arguments": str(called.arguments)}
    return {"id": str(called.id or NO_ID), "function": function}
