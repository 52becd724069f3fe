"""Redacts a message before its digest is computed and it is stored: so a repeated put is the same put."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from strandline.pipelines.redaction.hook import Redaction
from strandline.pipelines.redaction.json_texts import Visit, visit_message, visit_object
from strandline.producers.redacting import redact_texts
from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.values.message import Content, Message

_Object = dict[str, Any]


def redact_message(message: Message, where: str, limits: PutLimits, redaction: Redaction) -> Message:
    """The message as its hooks leave it: role, id, ids of calls and time stay.

    The message is checked first, so that a hook sees only what could be stored, in plain values.

    Raises:
        InvalidMessageError: the message cannot be stored as given, or a hook refuses it.
        RedactionError: a hook failed, was late, or returned no text.
    """
    prepared = prepare(message, where, limits)
    body = json.loads(prepared.envelope)
    metadata = {} if prepared.metadata is None else json.loads(prepared.metadata)
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    _visit(body, metadata, note)
    results = redact_texts(redaction, texts, where)
    if results == texts:
        return message
    left = iter(results)
    body, metadata = _visit(body, metadata, lambda _text: next(left))
    return replace(
        message,
        content=body.get("content"),
        name=body.get("name"),
        tool_calls=body.get("tool_calls"),
        metadata=metadata,
        extra=body.get("extra", {}),
    )


def redact_content(content: Content, where: str, limits: PutLimits, redaction: Redaction) -> Content:
    """Content that is to take the place of a message's; raises as ``redact_message``."""
    if content is None:
        return None
    return redact_message(Message("user", content), where, limits, redaction).content


def _visit(
    body: dict[str, Any], metadata: dict[str, Any], visit: Visit
) -> tuple[dict[str, Any], dict[str, Any]]:
    return visit_message(body, visit), visit_object(metadata, visit)
