"""Maps messages of Pydantic AI to ours and back, within its own JSON form without loss.

A request is one message for each of its parts: a prompt is the user's, each result a tool's.  A response is
one message, with its calls.  Fields without a place in a ``Message`` (ids, signatures, details of providers,
usage) are kept in the metadata; they may change the form in which a message comes back, but never its text or
its speaker.  A request's ``instructions`` are not kept: they are the agent's, which gives them with each
request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from strandline.adapters.converter import (
    LEVELS_ABOVE,
    as_said,
    in_chat_form,
    is_name,
    read_data_url,
    tool_call,
    try_restore,
    whole_content,
    whole_text,
    with_leftovers,
    without,
    without_leftovers,
)
from strandline.adapters.storable import Encoder
from strandline.schemas.values.forms.openai import body_of, given_parts
from strandline.schemas.values.forms.tool_calls import read_call
from strandline.schemas.values.message import HEAD_ROLES, Content, Message, Role

LIBRARY = "pydantic_ai"
Json = dict[str, Any]

# The kinds of items that are files, by address or by name; other files tell their media type.
_FILES = {"audio-url": "audio", "document-url": "document", "video-url": "video"}
# Of parts of others.
_URLS = {"image_url": "image-url", "video_url": "video-url"}
# An identifier that a file is given where it has no name.
_OF_ITS_DATA = re.compile("[0-9a-f]{6}")
_AUDIO_TYPES = {"mp3": "mpeg"}
_TO_STANDARD = str.maketrans("-_", "+/")
_FROM_STANDARD = str.maketrans("+/", "-_")


# The content of a user's prompt.


def _part(item: Any) -> Json:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    kind, media_type = item.get("kind"), str(item.get("media_type", ""))
    if kind == "text-content":
        return {"type": "text", "text": item["content"], LIBRARY: without(item, "content")}
    name = str(item.get("identifier") or "")
    named = {"name": name} if name and not _OF_ITS_DATA.fullmatch(name) else {}
    if kind == "image-url":
        return {
            "type": "image_url",
            "image_url": {"url": item["url"]},
            LIBRARY: without(item, "url"),
            **named,
        }
    if kind == "binary" and media_type.startswith("image/"):
        url = f"data:{media_type};base64,{item['data'].translate(_TO_STANDARD)}"
        return {"type": "image_url", "image_url": {"url": url}, LIBRARY: without(item, "data"), **named}
    return {"type": _FILES.get(kind, _kind_of_media(media_type)), LIBRARY: dict(item), **named}


def _item(part: Mapping[str, Any]) -> Any:
    rest = part.get(LIBRARY)
    if rest is None:
        return part["text"]
    if part["type"] == "text":
        return {**rest, "kind": "text-content", "content": part["text"]}
    if part["type"] != "image_url":
        return dict(rest)
    url = part["image_url"]["url"]
    if rest["kind"] == "image-url":
        return {**rest, "url": url}
    return {**rest, "data": url.partition(";base64,")[2].translate(_FROM_STANDARD)}


def _kind_of_media(media_type: str) -> str:
    kind = media_type.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"


# The field of a content part that holds the text of a part, by the kind of the part.
_TEXTS = {"text": "text", "thinking": "thinking"}
_CALL = "tool-call"
_CALL_FIELDS = ("tool_name", "args", "tool_call_id")


# Responses of a model.


def response_message(parts: Sequence[Json], rest: Json) -> tuple[Message, Json]:
    """The message for a response, and what else it consists of: its own fields, and those of its parts."""
    content: list[Json] = []
    calls: list[Json] = []
    left: list[Json] = []
    for part in parts:
        kind = part["part_kind"]
        if kind == _CALL and is_name(part["tool_call_id"]):
            arguments = part.get("args")
            calls.append(
                tool_call(part["tool_call_id"], part["tool_name"], "" if arguments is None else arguments)
            )
            left.append({**without(part, *_CALL_FIELDS), **_form(part.get("args"))})
        elif kind in _TEXTS:
            content.append({"type": kind, _TEXTS[kind]: part["content"]})
            left.append(without(part, "content"))
        else:
            content.append({"type": kind, LIBRARY: part})
            left.append({"part_kind": kind, "whole": True})
    message = Message("assistant", _short(content, has_calls=bool(calls)), tool_calls=calls or None)
    return message, {"response": rest, "parts": left}


def response_json(message: Message, left: Mapping[str, Any]) -> Json:
    """The response that a message was made from; raises as Python does if it was not."""
    content = iter(_long(message.content))
    calls = iter(message.tool_calls or ())
    parts = [_restore_part(one, content, calls) for one in left["parts"]]
    if message.role != "assistant" or next(content, None) or next(calls, None):
        raise ValueError("not a response that was stored")
    return {**left["response"], "kind": "response", "parts": parts}


def _restore_part(left: Mapping[str, Any], content: Any, calls: Any) -> Json:
    kind = left["part_kind"]
    if left.get("whole"):
        whole: Json = next(content)[LIBRARY]
        return whole
    if kind == _CALL:
        return {**without(left, "form"), **_call_fields(next(calls), left.get("form"))}
    return {**left, "content": next(content)[_TEXTS[kind]]}


def _call_fields(call: Mapping[str, Any], form: object) -> Json:
    function = call["function"]
    arguments = function["arguments"]
    if form == "object":
        arguments = json.loads(arguments)
    fields = {"tool_name": function["name"], "tool_call_id": call["id"]}
    return fields if form == "none" else {**fields, "args": arguments}


def _form(arguments: object) -> Json:
    if arguments is None:
        return {"form": "none"}
    return {"form": "object"} if isinstance(arguments, dict) else {}


def _short(content: list[Json], *, has_calls: bool) -> Content:
    # An empty text stays a part: without any part the content is empty as well.
    if len(content) == 1 and content[0].get("text"):
        return str(content[0]["text"])
    return content or (None if has_calls else "")


def _long(content: Content) -> Sequence[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content or []


# Messages that were not put by way of Pydantic AI.


def foreign_parts(message: Message, tool_names: Mapping[str, str]) -> list[Json]:
    """The parts that say the same as ``message``; one, if it belongs to a request.

    ``tool_names`` gives the names of tools by the ids of their calls.
    """
    at = {} if message.created_at is None else {"timestamp": message.created_at.isoformat()}
    if message.role in HEAD_ROLES:
        return [{"part_kind": "system-prompt", "content": whole_text(message), **at}]
    if message.role == "user":
        return [{"part_kind": "user-prompt", "content": _foreign_items(message), **at}]
    if message.role == "tool":
        call_id = message.tool_call_id or ""
        return [
            {
                "part_kind": "tool-return",
                "tool_name": tool_names.get(call_id, "tool"),
                "content": _foreign_items(message),
                "tool_call_id": call_id,
                **at,
            }
        ]
    calls = [_foreign_call(call) for call in message.tool_calls or ()]
    text = whole_text(message)
    return [{"part_kind": "text", "content": text}, *calls] if text or not calls else calls


def _foreign_call(call: Mapping[str, Any]) -> Json:
    called = read_call(call)
    arguments = called.arguments or "{}"
    return {
        "part_kind": "tool-call",
        "tool_name": called.name or "tool",
        "args": arguments if isinstance(arguments, (str, dict)) else str(arguments),
        "tool_call_id": call["id"],
    }


def _foreign_items(message: Message) -> str | list[Any]:
    content = whole_content(message)
    if isinstance(content, str):
        return content
    items: list[Any] = list(given_parts(content, _foreign_item, str))
    is_text = message.role == "tool" and all(isinstance(one, str) for one in items)
    return "\n".join(items) if is_text else items


def _foreign_item(part: Mapping[str, Any]) -> Any:
    kind, body = part["type"], body_of(part) or {}
    url = body.get("url", body.get("file_data", ""))
    inline = read_data_url(url)
    if kind == "input_audio" and body:
        inline = f"audio/{_AUDIO_TYPES.get(body['format'], body['format'])}", body["data"]
    if inline:
        media_type, data = inline
        name = {"identifier": body["filename"]} if "filename" in body else {}
        return {"kind": "binary", "data": data.translate(_FROM_STANDARD), "media_type": media_type, **name}
    return {"kind": _URLS[kind], "url": url} if url and kind in _URLS else None


# The speakers of a request's parts.  Other parts are Pydantic AI's own, and a system's.
_SPEAKERS: Mapping[str, tuple[Role, ...]] = {
    "speech": ("user",),
    "user-prompt": ("user",),
    "tool-return": ("tool",),
    "retry-prompt": ("tool", "user"),
    "retry-feedback": ("user",),
}

# Kept of a request itself.
_REQUEST_FIELDS = ("conversation_id", "metadata", "run_id", "state", "timestamp")


def messages_of(message: ModelMessage) -> list[Message]:
    """The messages that one of Pydantic AI is stored as; a request without parts is not stored."""
    encoder = Encoder()
    dump = encoder.value(_dump(message, encoder), LEVELS_ABOVE)
    parts = dump.pop("parts")
    if dump["kind"] == "response":
        plain, left = response_message(parts, dump)
        return [with_leftovers(plain, LIBRARY, left, encoder)]
    kept = {key: dump[key] for key in _REQUEST_FIELDS if key in dump}
    return [
        encoder.marked(_request_message(part, {"place": place, **({"request": kept} if place == 0 else {})}))
        for place, part in enumerate(parts)
    ]


def model_messages_of(messages: Iterable[Message]) -> list[ModelMessage]:
    """The messages that these were stored from; for those of another origin, equivalent ones."""
    restored: list[ModelMessage] = []
    request: list[tuple[Json, int]] = []
    rest: Json = {}
    tool_names: dict[str, str] = {}

    def end_request() -> None:
        nonlocal rest
        if request:
            restored.extend(_load({**rest, "kind": "request", "parts": [part for part, _place in request]}))
        request.clear()
        rest = {}

    for message in in_chat_form(messages, LIBRARY):
        called = map(read_call, message.tool_calls or ())
        tool_names.update((str(one.id), one.name or "tool") for one in called)
        if message.role == "assistant":
            end_request()
            restored.append(_response(message))
            continue
        part, left = _request_part(message, tool_names)
        place = left.get("place", 0)
        if not request or place != request[-1][1] + 1 or "request" in left:
            end_request()
            rest = _request_fields(left)
        request.append((part, place if isinstance(place, int) else 0))
    end_request()
    return restored


# Requests.


def _request_message(part: Json, left: Json) -> Message:
    kind = part["part_kind"]
    own = without(part, "content", "tool_call_id")
    content: Any = part.get("content")
    if kind == "user-prompt" and isinstance(content, list) and content:
        return with_leftovers(
            Message("user", [_part(item) for item in content]), LIBRARY, {**left, "part": own}
        )
    if kind == "system-prompt":
        return with_leftovers(Message("system", content), LIBRARY, {**left, "part": own})
    if kind == "speech" or kind not in _SPEAKERS:
        role: Role = "user" if kind == "speech" else "system"
        return with_leftovers(Message(role, [{"type": kind, LIBRARY: part}]), LIBRARY, left)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    form = {} if isinstance(content, str) else {"form": "json"}
    call_id = part.get("tool_call_id")
    if kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
        if is_name(call_id):
            message = Message("tool", text, tool_call_id=call_id)
            return with_leftovers(message, LIBRARY, {**left, "part": own, **form})
        return with_leftovers(Message("system", [{"type": kind, LIBRARY: part}]), LIBRARY, left)
    if call_id is not None:
        own["tool_call_id"] = call_id
    return with_leftovers(Message("user", text), LIBRARY, {**left, "part": own, **form})


def _request_part(message: Message, tool_names: Mapping[str, str]) -> tuple[Json, Mapping[str, Any]]:
    plain, left = without_leftovers(message, LIBRARY)
    for form in (_own_part, _own_part_as_text) if left else ():
        try:
            part = form(plain, left)
            if _load({**_request_fields(left), "kind": "request", "parts": [part]}):
                return part, left
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            pass  # the kept fields are not ours, or unreadable to Pydantic AI
    return foreign_parts(plain, tool_names)[0], {}


def _request_fields(left: Mapping[str, Any]) -> Json:
    kept = left.get("request", {})
    return {key: kept[key] for key in _REQUEST_FIELDS if key in kept}


def _own_part(plain: Message, left: Mapping[str, Any]) -> Json:
    part = left.get("part")
    if part is None:
        opaque: Any = plain.content
        whole = dict(opaque[0][LIBRARY])
        role = "user" if whole["part_kind"] == "speech" else "system"
        if plain.role != role or whole["part_kind"] == "user-prompt":
            raise ValueError("not a part that is stored whole")
        return whole
    kind = part["part_kind"]
    if plain.role not in _SPEAKERS.get(kind, ("system",)) or (plain.role == "system") != (
        kind == "system-prompt"
    ):
        raise ValueError("another speaker")
    content: Any = plain.content
    if not isinstance(content, str):
        content = [_item(part) for part in content or ()]
    elif left.get("form") == "json":
        content = json.loads(content)
    own: Json = {**part, "content": content}
    if plain.role == "tool":
        own["tool_call_id"] = plain.tool_call_id
    return own


def _own_part_as_text(plain: Message, left: Mapping[str, Any]) -> Json:
    """The part with text for content that Pydantic AI writes and does not read: a retry stays a retry."""
    part = _own_part(plain, left)
    if plain.role == "user" and part["part_kind"] == "user-prompt":
        raise ValueError("its items are more than their text")
    return {**part, "content": json.dumps(part["content"], ensure_ascii=False)}


# Responses.


def _response(message: Message) -> ModelMessage:
    theirs = try_restore(
        message,
        LIBRARY,
        lambda plain, left: _load(response_json(plain, left))[0],
        lambda theirs: messages_of(theirs) == [as_said(message)],
    )
    if theirs is not None:
        return theirs
    plain, _left = without_leftovers(message, LIBRARY)
    (foreign,) = _load({"kind": "response", "parts": foreign_parts(plain, {})})
    return foreign


# The JSON form of Pydantic AI.


def _dump(message: ModelMessage, encoder: Encoder) -> Json:
    try:
        whole = _dump_whole(message)
    except (TypeError, ValueError):  # pydantic cannot encode a tool's result or a call's arguments
        encoder.changed.add("value")
        odd: Any = _encode_free(message, encoder)
        whole = _dump_whole(replace(odd, parts=[_encode_free(part, encoder) for part in odd.parts]))
    short = cast(Json, _without_nulls(whole))
    try:
        return short if _dump_whole(_load(short)[0]) == whole else whole
    except ValueError:
        return whole


def _encode_free(one: Any, encoder: Encoder) -> Any:
    """A message or part with its fields of any value as JSON."""
    names = ["args", "metadata", "provider_details"]
    if getattr(one, "part_kind", None) in ("retry-prompt", "tool-return"):
        names.append("content")
    return replace(one, **{name: encoder.value(getattr(one, name)) for name in names if hasattr(one, name)})


def _dump_whole(message: ModelMessage) -> Json:
    dump: Json = ModelMessagesTypeAdapter.dump_python([message], mode="json")[0]
    return dump


def _load(dump: Json) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_python([dump])


def _without_nulls(value: Any) -> Any:
    parts = [{key: one for key, one in part.items() if one is not None} for part in value["parts"]]
    return {**{key: one for key, one in value.items() if one is not None}, "parts": parts}
