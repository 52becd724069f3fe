"""Maps LlamaIndex's content blocks to our content parts and back, without loss.

A block takes the form of OpenAI's chat API if that form can hold all of it, so that the log reads the same
for all clients; otherwise a separate form, with the block's fields. The content of a file is stored with the
message, because its path means nothing on another machine, and no path is ever read from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import (
    AudioBlock,
    BaseContentBlock,
    CachePoint,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    VideoBlock,
)

from strandline.adapters.converter import media_part, quoting_part, read_data_url, without
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.content_parts import named_text
from strandline.schemas.values.forms.openai import body_of

Part = Mapping[str, Any]
MediaBlock = ImageBlock | AudioBlock | VideoBlock | DocumentBlock

# The fields with the bytes (as base64) and with their media type.
_DATA = {
    ImageBlock: ("image", "image_mimetype"),
    AudioBlock: ("audio", "format"),
    VideoBlock: ("video", "video_mimetype"),
    DocumentBlock: ("data", "document_mimetype"),
}
_OWN: Mapping[str, type[BaseContentBlock]] = {
    "image": ImageBlock,
    "audio": AudioBlock,
    "video": VideoBlock,
    "document": DocumentBlock,
    "cache": CachePoint,
}


def part_of(block: BaseContentBlock) -> dict[str, Any]:
    """The content part that a block is stored as.

    Raises:
        InvalidMessageError: its file or stream cannot be read.
    """
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, (CitableBlock, CitationBlock)):
        return _quoting_part(block)
    if isinstance(block, ThinkingBlock):
        fields = block.model_dump(exclude={"block_type", "content"}, exclude_defaults=True)
        return {"type": "thinking", "thinking": block.content, **fields}
    if isinstance(block, (ImageBlock, AudioBlock, VideoBlock, DocumentBlock)):
        settled = _with_its_bytes(block)
        common = _openai_part(settled)
        if common is not None and block_of(common) == settled:
            return common
        block = settled
    return {"type": getattr(block, "block_type", "unknown"), **_fields(block)}


def block_of(part: Part) -> BaseContentBlock:
    """The block for a stored part of any origin; text that names the part if no block fits."""
    block = own_block(part)
    return TextBlock(text=named_text(part)) if block is None else block


def own_block(part: Part) -> BaseContentBlock | None:
    """The same; None if no block fits."""
    kind: Any = part.get("type")
    try:
        if kind in _READERS:
            return _READERS[kind](part)
        fields = without(part, "type", "path")
        if kind in _OWN and fields.keys() <= _OWN[kind].model_fields.keys():  # else another library's
            return _OWN[kind](**_with_bytes(_OWN[kind], fields))
    except (AttributeError, KeyError, TypeError, ValueError):
        pass  # malformed for its type: shown by its name, so that the read continues
    return None


def _quoting_part(block: CitableBlock | CitationBlock) -> dict[str, Any]:
    nested = [part_of(one) for one in block.nested_blocks]
    fields = block.model_dump(exclude={"block_type", block.nested_blocks_field_name()}, exclude_none=True)
    return quoting_part(block.block_type, nested, **fields)


def _quoted_block(part: Part) -> tuple[list[Any], dict[str, Any]]:
    fields = without(part, "type", "text", "content")
    nested = part.get("content")
    if nested is None:
        return [TextBlock(text=part["text"])], fields
    return [block_of(one) for one in nested], fields


def _citable(part: Part) -> BaseContentBlock:
    nested, fields = _quoted_block(part)
    return CitableBlock(content=nested, **fields)


def _citation(part: Part) -> BaseContentBlock:
    nested, fields = _quoted_block(part)
    return CitationBlock(cited_content=nested[0], **fields)


def _thinking_block(part: Part) -> BaseContentBlock:
    return ThinkingBlock(content=part.get("thinking"), **without(part, "type", "thinking"))


def _image_url(part: Part) -> BaseContentBlock:
    body = _body(part)
    if inline := read_data_url(body["url"]):
        return ImageBlock(image=inline[1].encode(), image_mimetype=inline[0], detail=body.get("detail"))
    return ImageBlock(url=body["url"], detail=body.get("detail"))


def _input_audio(part: Part) -> BaseContentBlock:
    body = _body(part)
    return AudioBlock(audio=body["data"].encode("ascii"), format=body["format"])


def _video_url(part: Part) -> BaseContentBlock:
    url = _body(part)["url"]
    if inline := read_data_url(url):
        return VideoBlock(video=inline[1].encode(), video_mimetype=inline[0])
    return VideoBlock(url=url)


def _file(part: Part) -> BaseContentBlock:
    body = _body(part)
    inline = read_data_url(body["file_data"])
    if inline is None:
        raise ValueError("a file is stored as a data: URL")
    return DocumentBlock(data=inline[1].encode(), document_mimetype=inline[0], title=body.get("filename"))


def _body(part: Part) -> dict[str, str]:
    return body_of(part) or {}


_READERS: Mapping[str, Callable[[Part], BaseContentBlock]] = {
    "text": lambda part: TextBlock(text=part["text"]),
    "thinking": _thinking_block,
    "citable": _citable,
    "citation": _citation,
    "image_url": _image_url,
    "input_audio": _input_audio,
    "video_url": _video_url,
    "file": _file,
}


def _openai_part(block: MediaBlock) -> dict[str, Any] | None:
    data_field, kind_field = _DATA[type(block)]
    data = getattr(block, data_field)
    return media_part(
        block.block_type,
        data.decode("ascii") if data else None,
        getattr(block, kind_field),
        block.url,
        detail=getattr(block, "detail", None),
        title=getattr(block, "title", None),
    )


def _with_its_bytes(block: MediaBlock) -> MediaBlock:
    data_field, _kind = _DATA[type(block)]
    data = getattr(block, data_field)
    if isinstance(data, bytes) or (data is None and block.path is None):
        return block
    try:
        if data is None:
            read = Path(str(block.path)).read_bytes()
        else:
            data.seek(0)
            read = data.read()
    except (OSError, ValueError) as error:
        raise InvalidMessageError(
            "message.blocks",
            f"{type(block).__name__} cannot be read: {error}; give its bytes or a URL",
            for_clients=InvalidMessageError.UNTOLD,
        ) from None
    fields: dict[str, Any] = block.model_dump(exclude={"block_type", "path", data_field})
    fields[data_field] = read
    return type(block)(**fields)


def _fields(block: BaseContentBlock) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in block.model_dump(exclude={"block_type", "path"}, exclude_none=True).items():
        if isinstance(value, bytes):
            plain[key] = value.decode("ascii")
        else:
            plain[key] = str(value) if key == "url" else value
    return plain


def _with_bytes(kind: type[BaseContentBlock], fields: dict[str, Any]) -> dict[str, Any]:
    data_field = next((names[0] for owner, names in _DATA.items() if owner is kind), None)
    if data_field is None or data_field not in fields:
        return fields
    if ":" in fields[data_field]:
        raise ValueError("another library's URL")
    return {**fields, data_field: fields[data_field].encode("ascii")}
