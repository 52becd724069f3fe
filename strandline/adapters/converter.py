"""Converts messages of other libraries to ours and back: what all adapters and importers do alike.

A ``Message`` has the roles, content parts, calls and results of OpenAI's chat API.  Fields of a library's
message that it lacks are kept in its metadata, which no model receives, so that the message comes back as it
was; fields too large for that go into a separate content part, which costs no tokens and holds no text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

from strandline.adapters.storable import MARK, Encoder
from strandline.schemas.values.content_parts import KEPT, named_text, spoken_text
from strandline.schemas.values.forms.openai import chat_messages
from strandline.schemas.values.forms.tool_calls import NO_ID as NO_CALL_ID
from strandline.schemas.values.forms.tool_calls import read_call, tool_parts
from strandline.schemas.values.message import SHOWN, Content, Message, Role

Theirs = TypeVar("Theirs")

MAX_METADATA_CHARACTERS = 4_000
# Of a content part, in which leftover fields may be kept.
LEVELS_ABOVE = 3
NO_ID = NO_CALL_ID

# Who speaks in a message of any role but a tool's, and whom the names of other libraries mean.
SPEAKERS: Mapping[str, Role] = {role: role for role in get_args(Role) if role != "tool"}
ROLES: Mapping[str, Role] = {
    **SPEAKERS,
    "tool": "tool",
    "function": "tool",
    "human": "user",
    "ai": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
}

# Errors of code that reads kept fields that are not ours.
_NOT_OURS = (AttributeError, LookupError, StopIteration, TypeError, ValueError)


# Fields that a message lacks.


def as_said(message: Message) -> Message:
    """``message`` without the fields that the log adds (id, seq, tokens and time), and without its mark."""
    return replace(
        message,
        id=None,
        seq=None,
        tokens=None,
        created_at=None,
        metadata=without(message.metadata, MARK, SHOWN),
    )


def with_leftovers(
    message: Message, library: str, leftovers: Mapping[str, Any], encoder: Encoder | None = None
) -> Message:
    """``message`` with the leftover fields of the library's message, each of them as it can be stored.

    ``encoder``: the encoder of a part of it, if any.
    """
    encoder = encoder or Encoder()
    message, kept = encoder.message(message), encoder.value(leftovers, LEVELS_ABOVE)
    if kept and len(json.dumps(kept)) <= MAX_METADATA_CHARACTERS:
        message = replace(message, metadata={**message.metadata, library: kept})
    elif kept:
        parts, form = _parts(message.content)
        message = replace(message, content=[*parts, {"type": library, library: kept, KEPT: form}])
    return encoder.marked(message)


def without_leftovers(message: Message, library: str) -> tuple[Message, Mapping[str, Any]]:
    """The message without the fields that ``with_leftovers`` added, and these fields, or an empty mapping."""
    if isinstance(leftovers := message.metadata.get(library), Mapping):
        return replace(message, metadata=without(message.metadata, library)), leftovers
    if message.content is None or isinstance(message.content, str):
        return message, {}
    added = [part for part in message.content if part.get("type") == library]
    if not added or not isinstance(added[0].get(library), Mapping):
        return message, {}
    parts = [part for part in message.content if part is not added[0]]
    return replace(message, content=_content(parts, added[0].get(KEPT))), added[0][library]


def try_restore(
    message: Message,
    library: str,
    restore: Callable[[Message, Mapping[str, Any]], Theirs],
    is_stored_so: Callable[[Theirs], bool],
) -> Theirs | None:
    """The library's message that ``message`` was stored from; None for one of another origin.

    ``restore`` makes it of the message and the kept fields.  As these may have been changed or foreign,
    ``is_stored_so`` tells whether the result is stored as this message again.
    """
    plain, left = without_leftovers(message, library)
    if not left:
        return None
    try:
        theirs = restore(plain, left)
        return theirs if is_stored_so(theirs) else None
    except _NOT_OURS:
        return None


def in_chat_form(messages: Iterable[Message], library: str) -> Iterator[Message]:
    """Messages with their calls where ``library`` looks for them, whichever provider's parts they are in.

    The library's own stay as they are.
    """
    for message in messages:
        listed = {call.get("id") for call in message.tool_calls or ()}
        new = [
            one for _, one in tool_parts(message.content) if one and (one.is_result or one.id not in listed)
        ]
        if not new or without_leftovers(message, library)[1]:
            yield message
            continue
        for form in chat_messages(message.to_dict()):
            fields: dict[str, Any] = {
                name: form.get(name) for name in ("content", "tool_calls", "tool_call_id")
            }
            yield replace(message, role=form["role"], **fields)


def _parts(content: Content) -> tuple[Sequence[Mapping[str, Any]], str]:
    if content is None:
        return (), "none"
    if isinstance(content, str):
        return ({"type": "text", "text": content},), "text"
    return content, "parts"


def _content(parts: list[Mapping[str, Any]], form: object) -> Content:
    """The content in its original form, unless memory was inserted since."""
    if form == "none" and not parts:
        return None
    if form == "text" and len(parts) == 1:
        return str(parts[0].get("text", ""))
    return parts


def whole_text(message: Message) -> str:
    """All that a message says as text, for a library without a place for a part or a refusal."""
    return "\n".join(filter(None, (*map(named_text, _parts(message.content)[0]), spoken_text(message.extra))))


def whole_content(message: Message) -> str | Sequence[Mapping[str, Any]]:
    """The content, with the text of further fields, for a library without a place for these."""
    if beside := spoken_text(message.extra):
        return [*_parts(message.content)[0], {"type": "text", "text": beside}]
    return message.content or ""


# Calls of tools.


def tool_call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    """A call in OpenAI's form."""
    function = {"name": name_or("", name), "arguments": arguments}
    return {"id": name_or(NO_ID, call_id), "type": "function", "function": function}


def provider_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call that a library stored as its model's provider gave it: in OpenAI's form, or name and input."""
    if isinstance(call.get("function"), Mapping):
        return {**call, "id": name_or(NO_ID, call.get("id"))}
    return tool_call(*read_call(call))


def read_arguments(arguments: object) -> dict[str, Any] | None:
    """The object that arguments are, or that their text holds; None if it holds another value."""
    arguments = arguments or {}
    if isinstance(arguments, Mapping):
        return dict(arguments)
    try:
        parsed = json.loads(str(arguments))
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


# Content parts.


def read_data_url(url: object) -> tuple[str, str] | None:
    """Media type and base64 of a ``data:`` URL; None for any other URL."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, comma, data = url.partition(";base64,")
    return (head.removeprefix("data:"), data) if comma else None


def media_part(
    kind: str, data: str | None, media_type: str | None, url: object, **fields: Any
) -> dict[str, Any] | None:
    """A picture, sound, video or document in OpenAI's form; None if that form cannot hold it.

    Args:
        kind: ``image``, ``audio``, ``video`` or ``document``.
        data: its bytes as base64.
        media_type: of the bytes; of sound its format.
        url: where it is, if its bytes are not given.
        fields: ``detail`` of an image, ``title`` of a document.
    """
    inline = f"data:{media_type};base64,{data}" if data and media_type else None
    place = inline or (str(url) if url else "")
    if kind == "image" and place:
        detail = {"detail": fields["detail"]} if fields.get("detail") is not None else {}
        return {"type": "image_url", "image_url": {"url": place, **detail}}
    if kind == "video" and place:
        return {"type": "video_url", "video_url": {"url": place}}
    if kind == "audio" and inline:
        return {"type": "input_audio", "input_audio": {"data": data, "format": media_type}}
    if kind == "document" and inline:
        return {"type": "file", "file": {"filename": fields.get("title"), "file_data": inline}}
    return None


def quoting_part(kind: str, quoted: Sequence[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
    """What LlamaIndex quotes, in parts, as one with their words."""
    is_text = len(quoted) == 1 and quoted[0]["type"] == "text"
    parts = {} if is_text else {"content": quoted}
    return {"type": kind, "text": "\n".join(map(named_text, quoted)), **parts, **fields}


# Agno's fields of media, those of a model's output last, and the kinds of our content parts.
AGNO_MEDIA = {
    "images": "image", "audio": "audio", "videos": "video", "files": "document", "image_output": "image",
    "audio_output": "audio", "video_output": "video", "file_output": "document",
}  # fmt: skip
_WORDS_OF_MEDIA = ("alt_text", "filename", "name", "revised_prompt", "transcript")


def agno_media_part(kind: str, item: Mapping[str, Any], content: object) -> dict[str, Any]:
    """A medium without its bytes: an image by its URL as OpenAI has it, others by name; with its words.

    ``content``: of the message, which may be its transcript.
    """
    texts = {name: item.get(name) for name in _WORDS_OF_MEDIA}
    words = {name: text for name, text in texts.items() if isinstance(text, str) and text != content}
    url = item.get("url")
    if kind == "image" and isinstance(url, str):
        return {"type": "image_url", "image_url": {"url": url}, **words}
    place = url or item.get("filepath") or item.get("id")
    return {"type": kind, **({} if place is None else {"source": str(place)}), **words}


# Values.


def name_or(default: str, value: object) -> str:
    """``value`` if it is a text that is not empty."""
    return value if isinstance(value, str) and value else default


def is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def without(fields: Mapping[str, Any], *taken: str) -> dict[str, Any]:
    """A copy of the fields without the taken ones."""
    return {key: value for key, value in fields.items() if key not in taken}
