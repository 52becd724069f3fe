"""A message as OpenAI's chat API takes it: the fields, parts and characters of its reference, and no others.

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from strandline.schemas.values.content_parts import (
    KEPT,
    beside_texts,
    is_part,
    kind_of,
    named_text,
    spoken_text,
    without_payloads,
)
from strandline.schemas.values.forms.tool_calls import Content, Parts, is_thinking, read_call, tool_parts

T = TypeVar("T")

# By role the parts of a content, and by part its fields; those of `input_image` and `input_file`, which the
# Responses API has, stand in the part itself.
_PARTS = {"user": {"text", "image_url", "input_audio", "file"}, "assistant": {"text", "refusal"}}
_FIELDS: Mapping[str, Sequence[str]] = {
    "image_url": ("url", "detail"),
    "input_audio": ("data", "format"),
    "file": ("file_id", "filename", "file_data"),
    "video_url": ("url",),  # of other servers of its protocol
    "input_image": ("image_url", "file_id", "detail"),
    "input_file": ("file_id", "filename", "file_data", "file_url", "detail"),
}
# The parts that stand in chat for the Responses API's.
_IN_CHAT = {"input_image": "image_url", "input_file": "file"}
# The API takes one of these sets of fields and refuses a second; ours is the first that a part has.
_NEEDED: Mapping[str, Sequence[set[str]]] = {
    "image_url": ({"url"},),
    "input_audio": ({"data", "format"},),
    "file": ({"file_data"}, {"file_id"}),
    "video_url": ({"url"},),
    "input_image": ({"image_url"}, {"file_id"}),
    "input_file": ({"file_data"}, {"file_url"}, {"file_id"}),
}
_AUDIO_FORMATS = ("wav", "mp3")
_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]")
_NOT_IN_FUNCTIONS = re.compile(r"[^a-zA-Z0-9_-]")
MAX_NAME = 64
MAX_CALL_ID = 40
_IDS = frozenset({"id", "tool_call_id"})


def openai_messages(message: Mapping[str, Any], also: Collection[str] = ()) -> list[dict[str, Any]]:
    """A message (``Message.to_dict``) as one of the API, or several: there each result is a message.

    Whatever the API does not take as it is is given as text, as ``named_text``: nothing leaves in silence.

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
    own = [part for part, one in parts if one is None or not (one.is_result or is_answer)]
    results: dict[str, Any] = {one.id: output_text(one.value) for _, one in parts if one and one.is_result}
    if role == "tool":
        called = message.get("tool_call_id", "")
        if own and called in results:
            own = [{"type": "text", "text": results[called]}, *own]
        if own or called not in results:
            results[called] = own
        own = []
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
    form: dict[str, Any] = {"role": role}
    if role == "tool":
        form |= {"tool_call_id": _call_id(message.get("tool_call_id", ""), also), "content": content or ""}
    else:
        # Of calls with one id a read makes several ids; a message alone keeps the last.
        calls = {str(call.get("id")): _call(call, also) for call in message.get("tool_calls", ())}
        form |= {**_further(message, also), "content": content or (None if calls else "")}
        if calls:
            form["tool_calls"] = list(calls.values())
    others = {key: value for key, value in message.items() if key not in form}
    if beside := spoken_text(others):
        own = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
        form["content"] = [*own, {"type": "text", "text": beside}] if own else beside
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
    allowed = _PARTS.get(role, ("text",))

    def own_form(part: Mapping[str, Any]) -> dict[str, Any] | None:
        return dict(part) if part["type"] in also else _part(part, allowed)

    return list(given_parts(own, own_form, lambda text: {"type": "text", "text": text}))


def _part(part: Mapping[str, Any], allowed: Collection[str]) -> dict[str, Any] | None:
    kind = _IN_CHAT.get(part["type"], part["type"])
    if kind not in allowed:
        return None
    if kind in ("text", "refusal"):
        return {"type": kind, kind: part[kind]} if isinstance(part.get(kind), str) else None
    body = body_of(part)
    if body and kind != part["type"]:
        body = body_of({"type": kind, kind: {**body, "url": body.get("image_url")}})
    return {"type": kind, kind: body} if body and body.get("format", "wav") in _AUDIO_FORMATS else None


def given_parts(
    parts: Parts, own_form: Callable[[Mapping[str, Any]], T | None], text_form: Callable[[str], T]
) -> Iterator[T]:
    """The parts that a model may read, as an API or a library has them, each with all its words.

    Args:
        own_form: the form of a part there, which the texts that stand with it follow; None: it has none.
        text_form: the form of the words of such a part.
    """
    for part in parts:
        if KEPT in part or (is_thinking(part) and part["type"] == "text"):
            continue
        form = own_form(part)
        if form is None:
            text = named_text(part)
        else:
            yield form
            # A part that is given as it is holds them.
            text = "\n".join(beside_texts(part)) if form != part and part["type"] in _NEEDED else ""
        if text:
            yield text_form(text)


def body_of(part: Mapping[str, Any]) -> dict[str, str] | None:
    """The fields of a picture, sound or file in OpenAI's form; None if it lacks what the API needs."""
    kind = part["type"]
    value = part if kind in ("input_file", "input_image") else part.get(kind)
    if kind.endswith("_url") and isinstance(value, str):
        value = {"url": value}
    if kind not in _FIELDS or not isinstance(value, Mapping):
        return None
    texts = {key: value[key] for key in _FIELDS[kind] if isinstance(value.get(key), str) and value[key]}
    body = {key: text for key, text in texts.items() if _is_sound(key, text)}
    needed = next((fields for fields in _NEEDED[kind] if fields <= body.keys()), None)
    if needed is None:
        return None
    others = set().union(*_NEEDED[kind]) - needed
    return {key: text for key, text in body.items() if key not in others}


def _is_sound(name: str, value: str) -> bool:
    """Whether a field holds base64 where it is data, or a ``data:`` URL."""
    is_url = name != "data" and value.startswith("data:")
    if not is_url and name not in ("data", "file_data"):
        return True
    try:
        return bool(b64decode(value.partition(";base64,")[2] if is_url else value, validate=True))
    except ValueError:
        return False


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


def output_text(value: object) -> str:
    """The output of a tool as text: parts by their words, JSON without data in base64."""
    if isinstance(value, Mapping) and isinstance(value.get("value"), str | list):  # the AI SDK's
        return output_text(value["value"])
    parts: list[Any] = value if isinstance(value, list) else [value]
    if all(is_part(part) for part in parts) and (isinstance(value, list) or kind_of(parts[0])):
        return "\n".join(filter(None, map(named_text, parts)))
    return value if isinstance(value, str) else without_payloads(_text(value))


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)
