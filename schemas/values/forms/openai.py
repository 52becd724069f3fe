"""A message as OpenAI's chat API takes it: the fields, parts and characters of its reference, and no others.

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any

from strandline.schemas.values.content_parts import named_text
from strandline.schemas.values.forms.tool_calls import Content, is_thinking, read_call, tool_parts

# By role the parts of a content, and by part its fields.
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
_IDS = frozenset({"id", "tool_call_id"})


def openai_messages(message: Mapping[str, Any], also: Collection[str] = ()) -> list[dict[str, Any]]:
    """A message (``Message.to_dict``) as one of the API, or several: there each result is a message.

    A part that the API does not take is given as text, as ``named_text``.

    Args:
        also: names of further fields and types of parts to give, for another server of the same protocol.
    """
    return [_chat_form(one, also) for one in chat_messages(message)]


def chat_messages(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A message with the calls of any provider's parts as ``tool_calls``, and each result as a message."""
    role, parts = message["role"], list(tool_parts(message["content"]))
    if not any(one for _, one in parts):
        return [message]
    is_answer = role == "assistant"
    own: Content = [part for part, one in parts if one is None or not (one.is_result or is_answer)]
    results: dict[str, Any] = {one.id: _output(one.value) for _, one in parts if one and one.is_result}
    if role == "tool":
        results.setdefault(message.get("tool_call_id", ""), own)
        own = None
    shown: list[Mapping[str, Any]] = [
        {"role": "tool", "tool_call_id": one, "content": output} for one, output in results.items()
    ]
    calls = list(message.get("tool_calls", ()))
    listed = {str(call.get("id")) for call in calls}
    for _, one in parts:
        if one and not one.is_result and is_answer and one.id not in listed:
            function = {"name": one.name, "arguments": _text(one.value) or "{}"}
            calls.append({"id": one.id, "type": "function", "function": function})
    if results and not own and not calls:
        return shown
    main = {**message, "content": own or (None if calls else "")}
    if calls:
        main["tool_calls"] = calls
    return [main, *shown] if is_answer else [*shown, main]


def _chat_form(message: Mapping[str, Any], also: Collection[str]) -> dict[str, Any]:
    role, content = message["role"], _content(message["role"], message["content"], also)
    if role == "tool":
        return {
            "role": role,
            "tool_call_id": _call_id(message.get("tool_call_id", ""), also),
            "content": content or "",
        }
    form: dict[str, Any] = {"role": role, **_further(message, also)}
    # Of calls with one id a read makes several ids; a message alone keeps the last.
    calls = {str(call.get("id")): _call(call, also) for call in message.get("tool_calls", ())}
    form["content"] = content or (None if calls else "")
    if calls:
        form["tool_calls"] = list(calls.values())
    return form


def _further(message: Mapping[str, Any], also: Collection[str]) -> dict[str, Any]:
    fields = {key: message[key] for key in also if key in message}
    if name := message.get("name"):
        fields["name"] = _NOT_IN_NAMES.sub("_", name)[:MAX_NAME]
    if message["role"] == "assistant":
        refusal, audio = message.get("refusal"), message.get("audio")
        if isinstance(refusal, str):
            fields["refusal"] = refusal
        if isinstance(audio, Mapping) and isinstance(audio.get("id"), str):
            fields["audio"] = {"id": audio["id"]}
    return fields


def _content(role: str, own: Content, also: Collection[str]) -> str | list[dict[str, Any]] | None:
    if own is None or isinstance(own, str):
        return own
    allowed = {*_PARTS.get(role, ("text",)), *also}
    return [_part(part, allowed, also) for part in own if part["type"] in allowed or not is_thinking(part)]


def _part(part: Mapping[str, Any], allowed: Collection[str], also: Collection[str]) -> dict[str, Any]:
    kind = part["type"]
    if kind in also:
        return dict(part)
    value = part.get(kind)
    if kind == "image_url" and isinstance(value, str):
        value = {"url": value}
    if kind in allowed and kind in _FIELDS and isinstance(value, Mapping):
        return {"type": kind, kind: {key: value[key] for key in _FIELDS[kind] if value.get(key) is not None}}
    if kind in allowed and kind == "refusal" and isinstance(value, str):
        return {"type": kind, kind: value}
    return {"type": "text", "text": named_text(part)}


def _call(call: Mapping[str, Any], also: Collection[str]) -> dict[str, Any]:
    called, kind = read_call(call), str(call.get("type", "function"))
    form: dict[str, Any] = {"id": _call_id(str(called.id), also), "type": "function"}
    name = function_name(called.name or kind)
    custom = call.get("custom", call)
    if kind == "custom" and isinstance(custom, Mapping):
        form |= {"type": kind, kind: {"name": name, "input": _text(custom.get("input"))}}
    else:
        form["function"] = {"name": name, "arguments": _text(called.arguments) or "{}"}
    return form | {key: call[key] for key in also if key in call}


def function_name(name: str) -> str:
    return _NOT_IN_FUNCTIONS.sub("_", name)[:MAX_NAME] or "_"


def _call_id(call_id: str, also: Collection[str]) -> str:
    """An id within the API's limit, or whole if ``also`` names it of calls or of results."""
    if len(call_id) <= MAX_CALL_ID or not _IDS.isdisjoint(also):
        return call_id
    return blake2b(call_id.encode(), digest_size=MAX_CALL_ID // 2).hexdigest()


def _output(value: object) -> Any:
    if isinstance(value, Mapping) and isinstance(value.get("value"), str):  # the AI SDK's
        return value["value"]
    if isinstance(value, list) and all(isinstance(part, Mapping) and "type" in part for part in value):
        return "\n".join(_part(part, (), ())["text"] for part in value)
    return _text(value)


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)
