"""Keeps the fields of a library's message that a ``Message`` lacks, so that it comes back as it was.

They go into the message's metadata, which no model receives.  Fields too large for that go into a separate
content part, which costs no tokens and holds no text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from strandline.adapters.storable import MARK, Encoder
from strandline.schemas.values.message import Content, Message

MAX_METADATA_CHARACTERS = 4_000
# Of a content part, in which they may be kept.
LEVELS_ABOVE = 3


def as_said(message: Message) -> Message:
    """``message`` without the fields that the log adds (id, seq, tokens and time), and without its mark."""
    metadata = {key: value for key, value in message.metadata.items() if key != MARK}
    return replace(message, id=None, seq=None, tokens=None, created_at=None, metadata=metadata)


def with_leftovers(
    message: Message, library: str, leftovers: Mapping[str, Any], encoder: Encoder | None = None
) -> Message:
    """``message`` with the leftover fields of the library's message, each of them as it can be stored.

    ``encoder``: what has encoded a part of it, if something has.
    """
    encoder = encoder or Encoder()
    message, kept = encoder.message(message), encoder.value(leftovers, LEVELS_ABOVE)
    if kept and len(json.dumps(kept)) <= MAX_METADATA_CHARACTERS:
        message = replace(message, metadata={**message.metadata, library: kept})
    elif kept:
        parts, form = _parts(message.content)
        message = replace(message, content=[*parts, {"type": library, library: kept, "content": form}])
    return encoder.marked(message)


def without_leftovers(message: Message, library: str) -> tuple[Message, Mapping[str, Any]]:
    """The message without the fields that ``with_leftovers`` added, and these fields, or an empty mapping."""
    if isinstance(leftovers := message.metadata.get(library), Mapping):
        metadata = {key: value for key, value in message.metadata.items() if key != library}
        return replace(message, metadata=metadata), leftovers
    if message.content is None or isinstance(message.content, str):
        return message, {}
    added = [part for part in message.content if part.get("type") == library]
    if not added or not isinstance(added[0].get(library), Mapping):
        return message, {}
    parts = [part for part in message.content if part is not added[0]]
    return replace(message, content=_content(parts, added[0].get("content"))), added[0][library]


def _parts(content: Content) -> tuple[Sequence[Mapping[str, Any]], str]:
    if content is None:
        return (), "none"
    if isinstance(content, str):
        return ({"type": "text", "text": content},), "text"
    return content, "parts"


def _content(parts: list[Mapping[str, Any]], form: object) -> Content:
    """The content in its original form; with memory inserted since, there are more parts, and it stays so."""
    if form == "none" and not parts:
        return None
    if form == "text" and len(parts) == 1:
        return str(parts[0].get("text", ""))
    return parts
