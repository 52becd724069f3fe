"""Maps LlamaIndex's ``ChatMessage`` to our ``Message`` and back, without loss.

Tool calls become tool calls, whether they are in ``ToolCallBlock`` or in ``additional_kwargs``, so that a
flush keeps a call and its result together.  Further ``additional_kwargs`` are further fields of the message.
Fields without a place in a ``Message`` are kept beside it; they may change the form in which a message comes
back, but never its text or its speaker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

from llama_index.core.base.llms.types import (
    BaseContentBlock,
    ChatMessage,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)

from strandline.adapters.llamaindex.content_blocks import block_of, part_of
from strandline.adapters.round_trip import as_said, with_leftovers, without_leftovers
from strandline.schemas.values.message import Content, Message, Role

LIBRARY = "llama_index"

# Identifies a call and its result if the model gives no id.
NO_ID = "no-id"

_ROLES: Mapping[MessageRole, Role] = {
    MessageRole.FUNCTION: "tool",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
}
_COMMON_ROLES = get_args(Role)

# What `additional_kwargs` may call like a message's own fields is kept beside it.
_TAKEN = frozenset(one.name for one in fields(Message))

# Fields of an API message that nothing kept beside a message may put in their place.
_SAID = frozenset({"role", "content"})


def message_of(chat: ChatMessage) -> Message:
    """The message that a ``ChatMessage`` is stored as.

    Raises:
        InvalidMessageError: one of its files or streams cannot be read.
    """
    role = _role_of(chat.role)
    kwargs = _plain_kwargs(chat)
    blocks = [block for block in chat.blocks if not isinstance(block, ToolCallBlock)]
    called = [block for block in chat.blocks if isinstance(block, ToolCallBlock)]
    calls = _calls(called, kwargs.get("tool_calls")) if role == "assistant" else []
    name = kwargs.get("name")
    message = Message(
        role,
        _content(blocks, has_calls=bool(calls)),
        name=name if isinstance(name, str) else None,
        tool_calls=calls or None,
        tool_call_id=_name_or(NO_ID, kwargs.get("tool_call_id")) if role == "tool" else None,
        extra={key: value for key, value in kwargs.items() if key not in _TAKEN},
    )
    return with_leftovers(message, LIBRARY, _leftovers(chat, kwargs, message))


def chat_message_of(message: Message) -> ChatMessage:
    """The ``ChatMessage`` that a message was stored from; for one of another origin, an equivalent one."""
    plain, left = without_leftovers(message, LIBRARY)
    if left:
        try:
            restored = _restore_message(plain, left)
            if message_of(restored) == as_said(message):
                return restored
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # not what ``message_of`` leaves: of no use
    return _restore_message(plain, {})


def _restore_message(message: Message, left: Mapping[str, Any]) -> ChatMessage:
    role = MessageRole(left.get("role", message.role))
    calls = [_call_block(call) for call in message.tool_calls or ()]
    kwargs = dict(message.extra)
    if message.name is not None:
        kwargs["name"] = message.name
    if message.tool_call_id is not None:
        kwargs["tool_call_id"] = message.tool_call_id
    if left.get("calls") == "kwargs":
        kwargs["tool_calls"] = [dict(call) for call in message.tool_calls or ()]
        calls = []
    if "call_blocks" in left:
        calls = [ToolCallBlock(**fields) for fields in left["call_blocks"]]
    if "kwargs" in left and _SAID.isdisjoint(left["kwargs"]):
        kwargs = dict(left["kwargs"])
    blocks: list[Any] = _placed(_blocks(message.content), calls, left.get("places"))
    return ChatMessage(role=role, blocks=blocks, additional_kwargs=kwargs)


def _leftovers(chat: ChatMessage, kwargs: Mapping[str, Any], message: Message) -> dict[str, Any]:
    """The fields that ``_restored`` cannot infer from the message alone."""
    left: dict[str, Any] = {}
    called = [block for block in chat.blocks if isinstance(block, ToolCallBlock)]
    if chat.role.value != message.role:
        left["role"] = chat.role.value
    if not called and message.tool_calls:
        left["calls"] = "kwargs"
    elif called != [_call_block(call) for call in message.tool_calls or ()]:
        left["call_blocks"] = [block.model_dump(exclude={"block_type"}) for block in called]
    places = [index for index, block in enumerate(chat.blocks) if isinstance(block, ToolCallBlock)]
    if places and places[0] != len(chat.blocks) - len(places):
        left["places"] = places
    if _restore_message(message, left).additional_kwargs != kwargs:
        left["kwargs"] = dict(kwargs)
    return left


def _role_of(role: MessageRole) -> Role:
    return next((common for common in _COMMON_ROLES if common == role.value), _ROLES.get(role, "assistant"))


def _plain_kwargs(chat: ChatMessage) -> dict[str, Any]:
    """``additional_kwargs`` as JSON values; ``images`` are among the blocks already."""
    dumped = chat.model_copy(update={"blocks": []}).model_dump()["additional_kwargs"]
    return {key: value for key, value in dumped.items() if key != "images"}


def _content(blocks: Sequence[BaseContentBlock], *, has_calls: bool) -> Content:
    if not blocks and has_calls:
        return None
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock):
        return blocks[0].text
    return [part_of(block) for block in blocks]


def _blocks(content: Content) -> list[BaseContentBlock]:
    if content is None:
        return []
    return [TextBlock(text=content)] if isinstance(content, str) else [block_of(part) for part in content]


def _placed(
    blocks: list[BaseContentBlock], calls: list[ToolCallBlock], places: Sequence[int] | None
) -> list[BaseContentBlock]:
    placed = list(blocks)
    at = (
        places
        if places is not None and len(places) == len(calls)
        else range(len(blocks), len(blocks) + len(calls))
    )
    for place, call in zip(at, calls, strict=True):
        placed.insert(place, call)
    return placed


def _calls(blocks: Sequence[ToolCallBlock], in_kwargs: object) -> list[dict[str, Any]]:
    if blocks:
        return [_call(block.tool_call_id, block.tool_name, block.tool_kwargs) for block in blocks]
    if not isinstance(in_kwargs, list):
        return []
    return [_call_of_provider(call) for call in in_kwargs if isinstance(call, Mapping)]


def _call_of_provider(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call in a provider's form: OpenAI's own form stays, others (name, input) are converted to it."""
    function = call.get("function")
    if isinstance(function, Mapping):
        return {**call, "id": _name_or(NO_ID, call.get("id"))}
    return _call(call.get("id"), str(call.get("name", "")), call.get("input", call.get("arguments", {})))


def _call(call_id: object, name: str, arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": _name_or(NO_ID, call_id), "type": "function", "function": function}


def _call_block(call: Mapping[str, Any]) -> ToolCallBlock:
    function = call.get("function")
    named = function if isinstance(function, Mapping) else {}
    return ToolCallBlock(
        tool_call_id=call.get("id"),
        tool_name=str(named.get("name", "")),
        tool_kwargs=_arguments(named.get("arguments", "")),
    )


def _arguments(text: object) -> dict[str, Any] | str:
    if isinstance(text, dict):
        return text
    try:
        parsed = json.loads(str(text))
    except (ValueError, RecursionError):
        return str(text)
    return parsed if isinstance(parsed, dict) else str(text)


def _name_or(default: str, value: object) -> str:
    return value if isinstance(value, str) and value else default
