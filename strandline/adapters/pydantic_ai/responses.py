"""Responses of a model: their parts in Pydantic AI's JSON form, and one message of the assistant."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from strandline.adapters.converter import is_name, tool_call, without
from strandline.schemas.values.message import Content, Message

LIBRARY = "pydantic_ai"
Json = dict[str, Any]

# The field of a content part that holds the text of a part, by the kind of the part.
_TEXTS = {"text": "text", "thinking": "thinking"}
_CALL = "tool-call"
_CALL_FIELDS = ("tool_name", "args", "tool_call_id")


def response_message(parts: Sequence[Json], rest: Json) -> tuple[Message, Json]:
    """The message for a response, and what else it consists of: its own fields, and those of its parts."""
    content: list[Json] = []
    calls: list[Json] = []
    left: list[Json] = []
    for part in parts:
        kind = part["part_kind"]
        if kind == _CALL and is_name(part["tool_call_id"]):
            calls.append(_call(part))
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


def _call(part: Mapping[str, Any]) -> Json:
    arguments = part.get("args")
    return tool_call(part["tool_call_id"], part["tool_name"], "" if arguments is None else arguments)


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
