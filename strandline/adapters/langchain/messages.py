"""Maps LangChain's messages to ours and back, without loss.

Text, content parts, tool calls and results go into the fields of a ``Message``.  The rest (ids, usage,
response metadata, artifacts, …) is kept in the metadata; it may change the form in which a message comes
back, but never its text or its speaker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.utils import message_chunk_to_message

from strandline.adapters.converter import (
    NO_ID,
    ROLES,
    SPEAKERS,
    as_said,
    read_arguments,
    tool_call,
    try_restore,
    with_leftovers,
    without,
    without_leftovers,
)
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.content_parts import is_part
from strandline.schemas.values.foreign_values import is_empty
from strandline.schemas.values.forms.tool_calls import read_call
from strandline.schemas.values.message import Content, Message, Role

LIBRARY = "langchain"

_KINDS: Mapping[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
    "chat": ChatMessage,
}
_USUAL_KINDS: Mapping[Role, str] = {
    "user": "human",
    "assistant": "ai",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}
# Where langchain-openai notes that a system message is a developer's.
_OPENAI_ROLE = "__openai_role__"

# Kept as it was, since it is not of a form that a content part may have.
_ODD_PART = "langchain_part"
_IN_MESSAGE = frozenset({"content", "type", "name", "tool_calls", "tool_call_id"})
# Of `additional_kwargs`: what an assistant of OpenAI's says beside its content.
_BESIDE = ("audio", "refusal")


def message_of(original: BaseMessage) -> Message:
    """The stored message for one of LangChain's; a chunk counts as the message that it is a part of.

    Raises:
        InvalidMessageError: it is not a conversation message.
    """
    source = message_chunk_to_message(original)
    if _KINDS.get(source.type) is not type(source):
        raise InvalidMessageError(
            "message", f"{type(original).__name__} is not a conversation message; leave it out of the history"
        )
    role = _role_of(source)
    calls = _calls(source) if isinstance(source, AIMessage) else ()
    call_id = getattr(source, "tool_call_id", None) or NO_ID
    message = Message(
        role,
        None if calls and source.content == "" else _content(source.content),
        name=source.name,
        tool_calls=[tool_call(call.get("id"), call["name"], call["args"]) for call in calls] or None,
        tool_call_id=call_id if role == "tool" else None,
        extra=_words_beside(source.additional_kwargs) if role == "assistant" else {},
    )
    return with_leftovers(message, LIBRARY, _leftovers(source, message))


def langchain_message_of(message: Message) -> BaseMessage:
    """The message that this one was stored from; for one of another origin, an equivalent message."""
    theirs = try_restore(
        message,
        LIBRARY,
        _restore_message,
        lambda theirs: message_of(theirs) == replace(as_said(message), extra=_words_beside(message.extra)),
    )
    if theirs is not None:
        return theirs
    plain, _left = without_leftovers(message, LIBRARY)
    return _restore_message(
        plain, {"fields": {"additional_kwargs": dict(plain.extra)}} if plain.extra else {}
    )


def _calls(source: AIMessage) -> Sequence[Mapping[str, Any]]:
    """Its calls, and those with arguments that are not JSON: they are sent and answered too.

    In OpenAI's first form its ``function_call``, which a ``FunctionMessage`` answers.
    """
    function = source.additional_kwargs.get("function_call")
    calls = [*source.tool_calls, *source.invalid_tool_calls]
    if calls or not isinstance(function, Mapping):
        return calls
    return [{"name": function.get("name"), "args": function.get("arguments", ""), "id": None}]


def _restore_message(message: Message, left: Mapping[str, Any]) -> BaseMessage:
    kind = left.get("kind", _USUAL_KINDS[message.role])
    fields: dict[str, Any] = dict(left.get("fields", {}))
    fields |= {"content": _given_content(message.content, left.get("texts", ()))}
    if beside := _words_beside(message.extra):
        fields["additional_kwargs"] = {**fields.get("additional_kwargs", {}), **beside}
    if message.name is not None:
        fields["name"] = message.name
    if message.role == "developer" and kind == "system":
        fields["additional_kwargs"] = {**fields.get("additional_kwargs", {}), _OPENAI_ROLE: "developer"}
    if kind == "tool":
        fields["tool_call_id"] = left.get("tool_call_id", message.tool_call_id)
    if kind == "ai":
        calls = [_given_call(call) for call in message.tool_calls or ()]
        fields["tool_calls"] = left.get("tool_calls", calls)
    return _KINDS[kind](**fields)


def _leftovers(source: BaseMessage, message: Message) -> dict[str, Any]:
    left: dict[str, Any] = {}
    if source.type != _USUAL_KINDS[message.role]:
        left["kind"] = source.type
    fields = _fields(source)
    if message.extra:
        fields["additional_kwargs"] = without(source.additional_kwargs, *message.extra)
    if fields:
        left["fields"] = fields
    if not isinstance(source.content, str) and (texts := _places_of_texts(source.content)):
        left["texts"] = texts
    if isinstance(source, AIMessage):
        calls = [dict(call) for call in source.tool_calls]
        if calls != [_given_call(call) for call in message.tool_calls or ()]:
            left["tool_calls"] = calls
    if isinstance(source, ToolMessage) and source.tool_call_id != message.tool_call_id:
        left["tool_call_id"] = source.tool_call_id
    return left


def _fields(source: BaseMessage) -> dict[str, Any]:
    try:
        return source.model_dump(exclude=set(_IN_MESSAGE), exclude_defaults=True)
    except (TypeError, ValueError):  # what pydantic cannot write out
        fields = {name: getattr(source, name) for name in source.model_fields_set - _IN_MESSAGE}
        return {name: value for name, value in fields.items() if not is_empty(value)}


def _words_beside(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in _BESIDE if fields.get(name)}


def _role_of(source: BaseMessage) -> Role:
    if isinstance(source, ChatMessage):
        return SPEAKERS.get(source.role, "assistant")
    if source.type == "system" and source.additional_kwargs.get(_OPENAI_ROLE) == "developer":
        return "developer"
    return ROLES[source.type]


def _content(content: str | Sequence[str | Mapping[Any, Any]]) -> Content:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: str | Mapping[Any, Any]) -> Mapping[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not is_part(part) or part["type"] == _ODD_PART:
        return {"type": _ODD_PART, "value": dict(part)}
    return dict(part)


def _given_content(content: Content, texts: Sequence[int]) -> str | list[str | dict[Any, Any]]:
    if content is None or isinstance(content, str):
        return content or ""
    return [_given_part(part, place in texts) for place, part in enumerate(content)]


def _given_part(part: Mapping[str, Any], as_text: bool) -> str | dict[Any, Any]:
    if part["type"] == _ODD_PART:
        return dict(part["value"])
    return str(part["text"]) if as_text else dict(part)


def _places_of_texts(content: Sequence[object]) -> list[int]:
    return [place for place, part in enumerate(content) if isinstance(part, str)]


def _given_call(call: Mapping[str, Any]) -> dict[str, Any]:
    called = read_call(call)
    arguments = read_arguments(called.arguments)
    return {
        "name": called.name,
        "args": {"arguments": called.arguments} if arguments is None else arguments,
        "id": called.id,
        "type": "tool_call",
    }
