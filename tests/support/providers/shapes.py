"""Messages as tests of calls and results write them: OpenAI's form, and parts of Anthropic's."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
PIXEL = "data:image/png;base64,iVBORw0KGgo="
SOURCE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


def user(content: Any = "q", **fields: Any) -> Json:
    return {"role": "user", "content": content, **fields}


def says(*parts: Json | str, **fields: Any) -> Json:
    content = parts[0] if parts and isinstance(parts[0], str) else list(parts) or None
    return {"role": "assistant", "content": content, **fields}


def calls(*ids: str) -> Json:
    return says(tool_calls=[call(one) for one in ids])


def call(call_id: str, **fields: Any) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}


def result(call_id: str, content: Any = "r", **fields: Any) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def text(words: str, **fields: Any) -> Json:
    return {"type": "text", "text": words, **fields}


def use(call_id: str, kind: str = "tool_use") -> Json:
    return {"type": kind, "id": call_id, "name": "f", "input": {}}


def used(call_id: str, content: Any = "r", **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}
