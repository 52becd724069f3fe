"""Maps messages of Pydantic AI to ours and back, as far as its own JSON form goes without loss.

A request is one message for each of its parts: a prompt is the user's, each result a tool's.  A response is
one message, with its calls.  Fields without a place in a ``Message`` (ids, signatures, details of providers,
usage) are kept beside it; they may change the form in which a message comes back, but never its text or its
speaker.  A request's ``instructions`` are not kept: they are the agent's, which gives them with each request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from strandline.adapters.converter import (
    LEVELS_ABOVE,
    as_said,
    is_name,
    try_restore,
    with_leftovers,
    without,
    without_leftovers,
)
from strandline.adapters.pydantic_ai.foreign import foreign_parts, is_of_request
from strandline.adapters.pydantic_ai.prompt_content import content_items, content_parts
from strandline.adapters.pydantic_ai.responses import response_json, response_message
from strandline.adapters.storable import Encoder
from strandline.schemas.values.message import Message, Role

LIBRARY = "pydantic_ai"
Json = dict[str, Any]

# Who speaks in which parts of a request.  What is in none of them is Pydantic AI's own, and a system's.
_SPEAKERS: Mapping[str, tuple[Role, ...]] = {
    "user-prompt": ("user",),
    "tool-return": ("tool",),
    "retry-prompt": ("tool", "user"),
    "retry-feedback": ("user",),
}

# What is kept of a request itself.
_REQUEST_FIELDS = ("conversation_id", "metadata", "run_id", "state", "timestamp")


def messages_of(message: ModelMessage) -> list[Message]:
    """The messages that one of Pydantic AI is stored as; a request without parts is none."""
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

    for message in messages:
        tool_names.update(_names_of_calls(message))
        if not is_of_request(message):
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
        return with_leftovers(Message("user", content_parts(content)), LIBRARY, {**left, "part": own})
    if kind == "system-prompt":
        return with_leftovers(Message("system", content), LIBRARY, {**left, "part": own})
    if kind not in _SPEAKERS:
        return with_leftovers(Message("system", [{"type": kind, LIBRARY: part}]), LIBRARY, left)
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
    """A part of a request as JSON, and what else was kept of it."""
    plain, left = without_leftovers(message, LIBRARY)
    for form in (_own_part, _own_part_as_text) if left else ():
        try:
            part = form(plain, left)
            if _load({**_request_fields(left), "kind": "request", "parts": [part]}):
                return part, left
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            pass  # what is kept beside it is not ours, or not in a form that Pydantic AI reads
    return foreign_parts(plain, tool_names)[0], {}


def _request_fields(left: Mapping[str, Any]) -> Json:
    kept = left.get("request", {})
    return {key: kept[key] for key in _REQUEST_FIELDS if key in kept}


def _own_part(plain: Message, left: Mapping[str, Any]) -> Json:
    part = left.get("part")
    if part is None:
        opaque: Any = plain.content
        if plain.role != "system" or opaque[0][LIBRARY]["part_kind"] == "user-prompt":
            raise ValueError("not a part that is stored whole")
        return dict(opaque[0][LIBRARY])
    kind = part["part_kind"]
    if plain.role not in _SPEAKERS.get(kind, ("system",)) or (plain.role == "system") != (
        kind == "system-prompt"
    ):
        raise ValueError("another speaker")
    content: Any = plain.content
    if not isinstance(content, str):
        content = content_items(content)
    elif left.get("form") == "json":
        content = json.loads(content)
    own: Json = {**part, "content": content}
    if plain.role == "tool":
        own["tool_call_id"] = plain.tool_call_id
    return own


def _own_part_as_text(plain: Message, left: Mapping[str, Any]) -> Json:
    """The part with a text for content that Pydantic AI writes and does not read: a retry stays a retry."""
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


def _names_of_calls(message: Message) -> dict[str, str]:
    """The names of the tools that a message calls, by the ids of the calls."""
    return {
        call["id"]: str(call["function"].get("name", "tool"))
        for call in message.tool_calls or ()
        if isinstance(call.get("function"), Mapping)
    }


# The JSON form of Pydantic AI.


def _dump(message: ModelMessage, encoder: Encoder) -> Json:
    """The message as JSON, without fields that are null, if it is the same without them."""
    try:
        whole = _dump_whole(message)
    except (TypeError, ValueError):  # pydantic cannot write out what a tool returned, or a call was given
        encoder.changed.add("value")
        odd: Any = message
        whole = _dump_whole(replace(odd, parts=[_encode_part(part, encoder) for part in odd.parts]))
    short = cast(Json, _without_nulls(whole))
    try:
        return short if _dump_whole(_load(short)[0]) == whole else whole
    except ValueError:
        return whole


def _encode_part(part: Any, encoder: Encoder) -> Any:
    """A part with what tools and models filled in as JSON."""
    names = (
        ("content", "args", "metadata") if part.part_kind in ("tool-return", "tool-call") else ("metadata",)
    )
    values = {name: encoder.value(getattr(part, name)) for name in names if hasattr(part, name)}
    return replace(part, **values)


def _dump_whole(message: ModelMessage) -> Json:
    dump: Json = ModelMessagesTypeAdapter.dump_python([message], mode="json")[0]
    return dump


def _load(dump: Json) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_python([dump])


def _without_nulls(value: Any) -> Any:
    """Of fields of messages and parts; what tools and users gave stays as it is."""
    parts = [{key: one for key, one in part.items() if one is not None} for part in value["parts"]]
    return {**{key: one for key, one in value.items() if one is not None}, "parts": parts}
