"""A message as OpenAI's chat API takes it: the fields, parts and characters of its reference, and no others.

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any, Protocol

from strandline.schemas.values.forms.tool_calls import Parts, ToolPart, is_thinking, tool_parts

Content = str | Parts | None


class Spoken(Protocol):
    """What a message is made of (``schemas.values.message.Message``)."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> Content: ...
    @property
    def name(self) -> str | None: ...
    @property
    def tool_calls(self) -> Parts | None: ...
    @property
    def tool_call_id(self) -> str | None: ...
    @property
    def extra(self) -> Mapping[str, Any]: ...


# By role, the parts of a content, and by part the fields of what it holds.
_PARTS = {"user": {"text", "image_url", "input_audio", "file"}, "assistant": {"text", "refusal"}}
_FIELDS = {
    "image_url": ("url", "detail"),
    "input_audio": ("data", "format"),
    "file": ("file_id", "filename", "file_data"),
}
_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]")
_NOT_IN_FUNCTIONS = re.compile(r"[^a-zA-Z0-9_-]")
MAX_NAME = 64
MAX_CALL_ID = 40


def openai_messages(message: Spoken, also: Collection[str] = ()) -> list[dict[str, Any]]:
    """A message as one message of the API, or several: there a result is a message of its own.

    A part that the API does not take is given as text: its own, or its type in brackets.

    Args:
        also: names of further fields and types of parts to give, for another server of the same protocol.
    """
    own, of_tools = _taken_apart(message.content)
    results: dict[str, Any] = {part.id: _output(part.value) for part in of_tools if part.is_result}
    if message.role == "tool":
        results.setdefault(message.tool_call_id or "", _content("tool", own, also) or "")
        own = None
    shown = [
        {"role": "tool", "tool_call_id": _call_id(one), "content": output} for one, output in results.items()
    ]
    calls = {str(call.get("id")): _call(call, also) for call in message.tool_calls or ()}
    for part in of_tools:
        if not part.is_result and part.id not in calls:
            calls[part.id] = _function(part.id, part.name, part.value)
    if results and not own and not calls:
        return shown
    main = _main(message, own, calls, also)
    return [main, *shown] if message.role == "assistant" else [*shown, main]


def _taken_apart(content: Content) -> tuple[Content, list[ToolPart]]:
    """The content without calls and results, and these."""
    if content is None or isinstance(content, str):
        return content, []
    parts = list(tool_parts(content))
    return [part for part, of_tool in parts if of_tool is None], [of_tool for _, of_tool in parts if of_tool]


def _main(
    message: Spoken, own: Content, calls: Mapping[str, dict[str, Any]], also: Collection[str]
) -> dict[str, Any]:
    main: dict[str, Any] = {"role": message.role}
    main["content"] = _content(message.role, own, also) or (None if calls else "")
    if message.name:
        main["name"] = _NOT_IN_NAMES.sub("_", message.name)[:MAX_NAME]
    if calls:
        main["tool_calls"] = list(calls.values())
    refusal, audio = message.extra.get("refusal"), message.extra.get("audio")
    if message.role == "assistant" and isinstance(refusal, str):
        main["refusal"] = refusal
    if message.role == "assistant" and isinstance(audio, Mapping) and isinstance(audio.get("id"), str):
        main["audio"] = {"id": audio["id"]}
    return main | {key: message.extra[key] for key in also if key in message.extra}


def _content(role: str, own: Content, also: Collection[str]) -> str | list[dict[str, Any]] | None:
    if own is None or isinstance(own, str):
        return own
    allowed = {*_PARTS.get(role, ("text",)), *also}
    return [_part(part, allowed, also) for part in own if part["type"] in allowed or not is_thinking(part)]


def _part(part: Mapping[str, Any], allowed: Collection[str], also: Collection[str]) -> dict[str, Any]:
    kind, text = part["type"], part.get("text")
    if kind in also:
        return dict(part)
    value = part.get(kind)
    if kind == "image_url" and isinstance(value, str):
        value = {"url": value}
    if kind in allowed and kind in _FIELDS and isinstance(value, Mapping):
        return {"type": kind, kind: {key: value[key] for key in _FIELDS[kind] if value.get(key) is not None}}
    if kind in allowed and kind == "refusal" and isinstance(value, str):
        return {"type": kind, kind: value}
    return {"type": "text", "text": text if isinstance(text, str) else f"[{kind}]"}


def _call(call: Mapping[str, Any], also: Collection[str]) -> dict[str, Any]:
    kind, call_id = str(call.get("type", "function")), str(call.get("id"))
    body = call.get("function", call.get(kind))
    body = body if isinstance(body, Mapping) else {}
    if kind == "custom":
        name = _function_name(str(body.get("name", kind)))
        form = {
            "id": _call_id(call_id),
            "type": kind,
            kind: {"name": name, "input": _text(body.get("input"))},
        }
    else:
        arguments = body.get("arguments") if kind == "function" else body
        form = _function(call_id, str(body.get("name", kind)), arguments)
    return form | {key: call[key] for key in also if key in call}


def _function(call_id: str, name: str, arguments: object) -> dict[str, Any]:
    function = {"name": _function_name(name), "arguments": _text(arguments) or "{}"}
    return {"id": _call_id(call_id), "type": "function", "function": function}


def _function_name(name: str) -> str:
    return _NOT_IN_FUNCTIONS.sub("_", name)[:MAX_NAME] or "_"


def _call_id(call_id: str) -> str:
    """An id within the length that the API takes; the same for a call and its result."""
    if len(call_id) <= MAX_CALL_ID:
        return call_id
    return blake2b(call_id.encode(), digest_size=MAX_CALL_ID // 2).hexdigest()


def _output(value: object) -> str:
    """The text of a result: of its parts, if it has texts, else its JSON."""
    if isinstance(value, Mapping) and isinstance(value.get("value"), str):  # the AI SDK's
        return str(value["value"])
    if isinstance(value, list) and all(isinstance(part, Mapping) and "type" in part for part in value):
        parts: Parts = value
        return "\n".join(str(_part(part, (), ())["text"]) for part in parts)
    return _text(value)


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    """A value of the caller's own classes, before it is stored."""
    if isinstance(value, Mapping):
        return dict(value)
    try:
        return list(value)  # type: ignore[call-overload]
    except TypeError:
        return str(value)
