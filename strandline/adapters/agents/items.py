"""Maps items of OpenAI's Agents SDK (as of the Responses API) to our messages and back, without loss.

One item is one message, so that the newest item can be popped.  Calls of every kind become tool calls and
their outputs tool results, so that a flush keeps them together.  Fields without a place in a ``Message``
(ids, status, annotations) are kept in the metadata; they may change the form in which an item comes back, but
never its text or its speaker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from strandline.adapters.converter import (
    LEVELS_ABOVE,
    SPEAKERS,
    as_said,
    in_chat_form,
    is_name,
    whole_content,
    whole_text,
    with_leftovers,
    without,
    without_leftovers,
)
from strandline.adapters.storable import Encoder
from strandline.schemas.values.content_parts import is_part, spoken_text
from strandline.schemas.values.forms.openai import body_of, function_name, given_parts
from strandline.schemas.values.forms.tool_calls import read_call, tool_parts
from strandline.schemas.values.message import Content, Message

LIBRARY = "openai_agents"
Item = dict[str, Any]

_TEXT_PARTS = frozenset({"input_text", "output_text"})
# Kept of an item that the API refuses, by which it is told from another library's message.
_OWN = {"own": True}
_REASONING_TEXTS = {"summary": "summary_text", "content": "reasoning_text"}


def message_of(item: Mapping[str, Any]) -> Message:
    """The message that an item is stored as."""
    encoder = Encoder()
    item = encoder.value(item, LEVELS_ABOVE + 1)
    for form in (_spoken_message, _call, _result, _reasoning_message):
        message = form(item)
        if message is not None and _item(message) == item:
            return encoder.marked(message)
    kind = item.get("type")
    parts = [{"type": kind if isinstance(kind, str) and kind else "item", "item": item}]
    return encoder.marked(Message("assistant", parts))


def items_of(message: Message) -> list[Item]:
    """The item that a message was stored from; for other messages, equivalent items."""
    try:
        item = None if spoken_text(message.extra) else _item(message)
        if item is not None and message_of(item) == replace(as_said(message), name=None, extra={}):
            return [item]
    except (AttributeError, KeyError, TypeError, ValueError):
        pass  # the kept fields are not ours
    plain, _left = without_leftovers(message, LIBRARY)
    return [item for form in in_chat_form([plain], LIBRARY) for item in _foreign(form)]


# From items.


def _spoken_message(item: Mapping[str, Any]) -> Message | None:
    role = SPEAKERS.get(str(item.get("role")))
    content: Any = item.get("content")
    if item.get("type", "message") != "message" or role is None:
        return None
    left = without(item, "role", "content")
    if isinstance(content, str):
        return _kept(Message(role, content), left)
    if not _are_parts(content):
        return None
    if len(content) == 1 and content[0]["type"] in _TEXT_PARTS and isinstance(content[0].get("text"), str):
        return _kept(Message(role, content[0]["text"]), left, part=without(content[0], "text"))
    return _kept(Message(role, list(content)), left, parts=True)


def _call(item: Mapping[str, Any]) -> Message | None:
    kind: Any = item.get("type")
    call_id: Any = item.get("call_id")
    if not isinstance(kind, str) or kind.endswith(("_output", "program")) or not is_name(call_id):
        return None
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        left = without(item, "type", "call_id", "name", "arguments")
        is_odd = function_name(str(item.get("name"))) != item.get("name")
        return _kept(_call_message(call_id, function), left, **(_OWN if is_odd else {}))
    arguments = json.dumps(without(item, "type", "call_id"), ensure_ascii=False)
    return _kept(_call_message(call_id, {"name": kind, "arguments": arguments}), {}, kind=kind)


def _result(item: Mapping[str, Any]) -> Message | None:
    kind, output = item.get("type"), item.get("output")
    # OpenAI's type of a local shell's output has no other id.
    field = "id" if kind == "local_shell_call_output" and "call_id" not in item else "call_id"
    call_id: Any = item.get(field)
    if not isinstance(kind, str) or not kind.endswith("_output") or not is_name(call_id):
        return None
    if kind == "program_output":
        return None  # the calls that its program made stand between them
    beside: dict[str, Any] = {} if kind == "function_call_output" else {"kind": kind, "field": field}
    if isinstance(output, str) or _are_parts(output):
        left = without(item, "type", field, "output")
        if isinstance(output, list) and any(_input_part(part) != part for part in output):
            beside |= _OWN
        return _kept(Message("tool", output, tool_call_id=call_id), left, **beside)
    part = {**without(item, field), "call_id": call_id}
    return _kept(Message("tool", [part], tool_call_id=call_id), {}, **beside, opaque=True)


def _reasoning_message(item: Mapping[str, Any]) -> Message | None:
    if item.get("type") != "reasoning":
        return None
    parts: list[Mapping[str, Any]] = []
    rest = without(item, "type")
    for field, kind in _REASONING_TEXTS.items():
        texts = item.get(field)
        if isinstance(texts, list) and texts and all(_is_text(text, kind) for text in texts):
            parts += [{"type": "thinking", "thinking": text["text"], "of": field} for text in texts]
            del rest[field]
    return Message("assistant", [*parts, {"type": "reasoning", "item": rest}])


def _call_message(call_id: str, function: Mapping[str, Any]) -> Message:
    return Message("assistant", None, tool_calls=[{"id": call_id, "type": "function", "function": function}])


def _kept(message: Message, rest: Mapping[str, Any], **left: Any) -> Message:
    return with_leftovers(message, LIBRARY, {**({"item": dict(rest)} if rest else {}), **left})


# Back to items.


def _item(message: Message) -> Item | None:
    plain, left = without_leftovers(message, LIBRARY)
    rest = dict(left.get("item", {}))
    if plain.tool_calls:
        return _call_item(plain.tool_calls[0], rest, left.get("kind")) if len(plain.tool_calls) == 1 else None
    if plain.role == "tool":
        output = plain.content
        if not left and any(one for _, one in tool_parts(output)):
            return None
        field = left.get("field", "call_id")
        if left.get("opaque"):
            part: Any = output  # or this is not ours
            return {**without(part[0], "call_id"), field: plain.tool_call_id}
        kind = left.get("kind", "function_call_output")
        return {**rest, "type": kind, field: plain.tool_call_id, "output": output}
    if isinstance(plain.content, str):
        content: Any = plain.content
        if "part" in left:
            content = [{**left["part"], "text": content}]
        return {**rest, "role": plain.role, "content": content}
    if left.get("parts"):
        return {**rest, "role": plain.role, "content": [dict(part) for part in plain.content or ()]}
    return _opaque(plain.content)


def _call_item(call: Mapping[str, Any], rest: Item, kind: str | None) -> Item:
    function = call["function"]
    if kind is not None:
        return {"type": kind, "call_id": call["id"], **json.loads(function["arguments"])}
    return {**rest, "type": "function_call", "call_id": call["id"], **function}


def _opaque(content: Content) -> Item | None:
    if not content or isinstance(content, str):
        return None
    *texts, last = content
    if last["type"] != "reasoning":
        return None if texts else dict(last["item"])
    item: Item = {"type": "reasoning", **last["item"]}
    for part in texts:
        field = part["of"]
        item.setdefault(field, []).append({"type": _REASONING_TEXTS[field], "text": part["thinking"]})
    return item


def _foreign(message: Message) -> list[Item]:
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": _input(message)}]
    if message.role == "assistant":
        text = whole_text(message)
        items: list[Item] = [{"role": "assistant", "content": text}] if text else []
        return items + [_called_by_others(call) for call in message.tool_calls or ()]
    return [{"role": message.role, "content": _input(message)}]


def _called_by_others(call: Mapping[str, Any]) -> Item:
    called = read_call(call)
    arguments = called.arguments or "{}"
    return {
        "type": "function_call",
        "call_id": called.id,
        "name": function_name(called.name),
        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
    }


def _input(message: Message) -> list[Mapping[str, Any]] | str:
    content = whole_content(message)
    if isinstance(content, str):
        return content
    return list(given_parts(content, _input_part, lambda text: {"type": "input_text", "text": text})) or ""


def _input_part(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A part of a message or an output as the API takes it; None: it takes no such part."""
    kind, body = part["type"], body_of(part)
    if kind == "input_text" and isinstance(part.get("text"), str):
        return {"type": kind, "text": part["text"]}
    if kind == "image_url" and body:
        return {"type": "input_image", "image_url": body["url"], "detail": body.get("detail", "auto")}
    if kind in ("file", "input_file", "input_image") and body:
        return {"type": kind if kind != "file" else "input_file", **body}
    return None


def _are_parts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(is_part, value))


def _is_text(part: object, kind: str) -> bool:
    return (
        isinstance(part, Mapping)
        and part.keys() == {"type", "text"}
        and part["type"] == kind
        and isinstance(part["text"], str)
    )
