"""The content of a user's prompt: its items in Pydantic AI's JSON form, and our content parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.adapters.converter import without

LIBRARY = "pydantic_ai"
Json = dict[str, Any]

# The kinds of items that are files, by address or by name; other files tell their media type.
_FILES = {"audio-url": "audio", "document-url": "document", "video-url": "video"}
_TO_STANDARD = str.maketrans("-_", "+/")
_FROM_STANDARD = str.maketrans("+/", "-_")


def content_parts(items: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The content parts for the items of a prompt."""
    return [_part(item) for item in items]


def content_items(parts: Sequence[Mapping[str, Any]] | None) -> list[Any]:
    """The items that content parts were made from; raises LookupError or TypeError if they were not."""
    return [_item(part) for part in parts or ()]


def _part(item: Any) -> Json:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    kind, media_type = item.get("kind"), str(item.get("media_type", ""))
    if kind == "text-content":
        return {"type": "text", "text": item["content"], LIBRARY: without(item, "content")}
    if kind == "image-url":
        return {"type": "image_url", "image_url": {"url": item["url"]}, LIBRARY: without(item, "url")}
    if kind == "binary" and media_type.startswith("image/"):
        url = f"data:{media_type};base64,{item['data'].translate(_TO_STANDARD)}"
        return {"type": "image_url", "image_url": {"url": url}, LIBRARY: without(item, "data")}
    return {"type": _FILES.get(kind, _kind_of_media(media_type)), LIBRARY: dict(item)}


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
