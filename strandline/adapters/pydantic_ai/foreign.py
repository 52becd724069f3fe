"""Messages that were not put by way of Pydantic AI, in its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.adapters.converter import read_call, read_data_url
from strandline.schemas.values.message import HEAD_ROLES, Message

Json = dict[str, Any]


def is_of_request(message: Message) -> bool:
    """Whether a message goes into a request, and not into a model's response."""
    return message.role != "assistant"


def foreign_parts(message: Message, tool_names: Mapping[str, str]) -> list[Json]:
    """The parts that say the same as ``message``; one, if it belongs to a request.

    ``tool_names`` gives the names of tools by the ids of their calls.
    """
    at = {} if message.created_at is None else {"timestamp": message.created_at.isoformat()}
    if message.role in HEAD_ROLES:
        return [{"part_kind": "system-prompt", "content": message.text, **at}]
    if message.role == "user":
        return [{"part_kind": "user-prompt", "content": _items(message), **at}]
    if message.role == "tool":
        call_id = message.tool_call_id or ""
        name = tool_names.get(call_id, "tool")
        return [
            {
                "part_kind": "tool-return",
                "tool_name": name,
                "content": message.text,
                "tool_call_id": call_id,
                **at,
            }
        ]
    text = [{"part_kind": "text", "content": message.text}] if message.text else []
    return text + [_call(call) for call in message.tool_calls or ()]


def _call(call: Mapping[str, Any]) -> Json:
    called = read_call(call, no_arguments="{}")
    arguments = called.arguments
    return {
        "part_kind": "tool-call",
        "tool_name": called.name or "tool",
        "args": arguments if isinstance(arguments, (str, dict)) else str(arguments),
        "tool_call_id": call["id"],
    }


def _items(message: Message) -> str | list[Any]:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return [_item(part) for part in content]


def _item(part: Mapping[str, Any]) -> Any:
    image = part.get("image_url")
    if part["type"] == "image_url" and isinstance(image, Mapping) and isinstance(image.get("url"), str):
        if inline := read_data_url(image["url"]):
            media_type, data = inline
            data = data.replace("+", "-").replace("/", "_")
            return {"kind": "binary", "data": data, "media_type": media_type}
        return {"kind": "image-url", "url": image["url"]}
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part['type']}]"
