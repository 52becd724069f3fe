"""Maps LlamaIndex's ``ChatMessage`` to our ``Message`` and back, without loss.

Tool calls become tool calls, whether they are in ``ToolCallBlock`` or in ``additional_kwargs``, so that a
flush keeps a call and its result together.  Further ``additional_kwargs`` are further fields of the message.
Fields without a place in a ``Message`` are kept in the metadata; they may change the form in which a message
comes back, but never its text or its speaker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from llama_index.core.base.llms.types import (
    BaseContentBlock,
    ChatMessage,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)

from strandline.adapters.converter import (
    NO_ID,
    ROLES,
    as_said,
    in_chat_form,
    name_or,
    provider_call,
    read_arguments,
    tool_call,
    try_restore,
    whole_content,
    with_leftovers,
    without_leftovers,
)
from strandline.adapters.llamaindex.content_blocks import own_block, part_of
from strandline.schemas.values.forms.openai import given_parts
from strandline.schemas.values.forms.tool_calls import read_call
from strandline.schemas.values.message import Content, Message

LIBRARY = "llama_index"

# Fields of `additional_kwargs` that share a name with a message's own go into the metadata.
_TAKEN = frozenset(one.name for one in fields(Message))

# Kept metadata never replaces these fields of an API message.
_SAID = frozenset({"role", "content"})


def message_of(chat: ChatMessage) -> Message:
    """The message that a ``ChatMessage`` is stored as.

    Raises:
        InvalidMessageError: one of its files or streams cannot be read.
    """
    role = ROLES.get(chat.role.value, "assistant")
    kwargs = _plain_kwargs(chat)
    blocks = [block for block in chat.blocks if not isinstance(block, ToolCallBlock)]
    called = [block for block in chat.blocks if isinstance(block, ToolCallBlock)]
    calls = _calls(called, kwargs) if role == "assistant" else []
    name = kwargs.get("name")
    message = Message(
        role,
        _content(blocks, has_calls=bool(calls)),
        name=name if isinstance(name, str) else None,
        tool_calls=calls or None,
        tool_call_id=name_or(NO_ID, kwargs.get("tool_call_id")) if role == "tool" else None,
        extra={key: value for key, value in kwargs.items() if key not in _TAKEN},
    )
    return with_leftovers(message, LIBRARY, _leftovers(chat, kwargs, message))


def chat_message_of(message: Message) -> ChatMessage:
    """The ``ChatMessage`` that a message was stored from; for one of another origin, an equivalent one."""
    theirs = try_restore(
        message, LIBRARY, _restore_message, lambda theirs: message_of(theirs) == as_said(message)
    )
    return _restore_message(without_leftovers(message, LIBRARY)[0], {}) if theirs is None else theirs


def chat_messages_of(messages: Iterable[Message]) -> list[ChatMessage]:
    """Messages of any origin, their calls where LlamaIndex looks for them."""
    return [chat_message_of(message) for message in in_chat_form(messages, LIBRARY)]


def _restore_message(message: Message, left: Mapping[str, Any]) -> ChatMessage:
    role = MessageRole(left.get("role", message.role))
    calls = [_call_block(call) for call in message.tool_calls or ()]
    # LlamaIndex would take pictures here for documents of its own.
    kwargs, content = dict(message.extra), message.content
    if pictures := kwargs.pop("images", None):
        content = whole_content(replace(message, extra={"images": pictures}))
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
    blocks: list[Any] = _placed(_blocks(content), calls, left.get("places"))
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


def _plain_kwargs(chat: ChatMessage) -> dict[str, Any]:
    """``additional_kwargs`` as JSON values; ``images`` are among the blocks already."""
    try:
        dumped = chat.model_copy(update={"blocks": []}).model_dump()["additional_kwargs"]
    except ValueError:  # what pydantic cannot write out
        dumped = chat.additional_kwargs
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
    if isinstance(content, str):
        return [TextBlock(text=content)]
    return list(given_parts(content, own_block, lambda text: TextBlock(text=text)))


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


def _calls(blocks: Sequence[ToolCallBlock], kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Its calls; in OpenAI's first form its ``function_call``, which the role ``function`` answers."""
    if blocks:
        return [tool_call(block.tool_call_id, block.tool_name, block.tool_kwargs) for block in blocks]
    in_kwargs, function = kwargs.get("tool_calls"), kwargs.get("function_call")
    calls = in_kwargs if isinstance(in_kwargs, list) else []
    if not calls and isinstance(function, Mapping):
        calls = [{"function": function}]
    return [provider_call(call) for call in calls if isinstance(call, Mapping)]


def _call_block(call: Mapping[str, Any]) -> ToolCallBlock:
    called = read_call(call)
    arguments = read_arguments(called.arguments)
    kwargs = str(called.arguments) if arguments is None else arguments
    return ToolCallBlock(tool_call_id=called.id, tool_name=called.name, tool_kwargs=kwargs)
