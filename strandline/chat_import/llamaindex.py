"""The tables in which LlamaIndex's ``Memory`` keeps its messages (``SQLAlchemyChatStore``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strandline.adapters.converter import NO_ID, ROLES, media_part, name_or, quoting_part
from strandline.chat_import.records import (
    Omission,
    Place,
    Portion,
    Record,
    SourceMessage,
    openai_call,
    tool_call,
)
from strandline.chat_import.tables.reader import (
    ChosenTables,
    SourceRow,
    SourceTable,
    TableReader,
    choose_tables,
)
from strandline.chat_import.tables.values import read_mapping, read_moment

# Fields of `additional_kwargs` with a place in a message; pictures are among the blocks.
_PLACED = ("tool_calls", "tool_call_id", "name", "images")
# The fields with a block's bytes, as base64, and with their media type.
_MEDIA = {
    "image": ("image", "image_mimetype"),
    "audio": ("audio", "format"),
    "video": ("video", "video_mimetype"),
    "document": ("data", "document_mimetype"),
}


def read_chat_message(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The message, and what of it cannot be taken: the part, and why.

    Raises:
        ValueError: it has no role; the text is worded to follow the column's name.
    """
    role = data.get("role")
    if not isinstance(role, str):
        raise ValueError("has no role")
    role = ROLES.get(role, role)
    kwargs = data.get("additional_kwargs")
    kwargs = kwargs if isinstance(kwargs, Mapping) else {}
    parts, calls, problems = _read_blocks(data)
    message: dict[str, Any] = {key: value for key, value in kwargs.items() if key not in _PLACED}
    message |= {"role": role, "content": _content(parts, has_calls=bool(calls))}
    if role == "assistant" and (calls := calls or _calls_of_provider(kwargs.get("tool_calls"))):
        message |= {"tool_calls": calls, "content": _content(parts, has_calls=True)}
    if role == "tool":
        message["tool_call_id"] = name_or(NO_ID, kwargs.get("tool_call_id"))
    if isinstance(kwargs.get("name"), str):
        message["name"] = kwargs["name"]
    return message, problems


def _content(parts: list[dict[str, Any]], *, has_calls: bool) -> object:
    if not parts:
        return None if has_calls else ""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _calls_of_provider(calls: object) -> list[dict[str, Any]]:
    listed = calls if isinstance(calls, list) else []
    return [call for call in map(openai_call, listed) if call is not None]


def _read_blocks(
    data: Mapping[str, Any],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[tuple[str, str]]]:
    blocks = data.get("blocks")
    if not isinstance(blocks, list):  # as releases before 0.12 wrote it
        content = data.get("content")
        return ([{"type": "text", "text": content}] if isinstance(content, str) else []), [], []
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    problems: list[tuple[str, str]] = []
    for index, block in enumerate(blocks):
        kind = block.get("block_type") if isinstance(block, Mapping) else None
        if not isinstance(kind, str):
            problems.append((f"blocks[{index}]", "is not a content block"))
        elif kind == "tool_call":
            calls.append(
                tool_call(block.get("tool_call_id"), block.get("tool_name"), block.get("tool_kwargs"))
            )
        elif (part := _part(kind, block)) is not None:
            parts.append(part)
        else:
            problems.append(
                (f"blocks[{index}]", "names a file by its path, and the file is not in the table")
            )
    return parts, calls, problems


def _part(kind: str, block: Mapping[str, Any]) -> dict[str, Any] | None:
    if kind == "text":
        text = block.get("text")
        return {"type": "text", "text": text if isinstance(text, str) else ""}
    if kind == "thinking":
        fields = _fields(block, "block_type", "content")
        return {"type": "thinking", "thinking": block.get("content"), **fields}
    if kind in ("citable", "citation"):
        return _quoting_part(kind, block)
    if kind in _MEDIA:
        return _media_part(kind, block)
    return {"type": kind, **_fields(block, "block_type")}


def _media_part(kind: str, block: Mapping[str, Any]) -> dict[str, Any] | None:
    data_field, kind_field = _MEDIA[kind]
    data, url = block.get(data_field), block.get("url")
    own = {"type": kind, **_fields(block, "block_type", "path")} if data or url else None
    fields = {"detail": block.get("detail"), "title": block.get("title")}
    return media_part(kind, data, block.get(kind_field), url, **fields) or own


def _quoting_part(kind: str, block: Mapping[str, Any]) -> dict[str, Any]:
    nested = block.get("content", block.get("cited_content"))
    quoted = nested if isinstance(nested, list) else [nested]
    blocks = [(str(one.get("block_type")), one) for one in quoted if isinstance(one, Mapping)]
    parts = [part for part in (_part(name, one) for name, one in blocks) if part is not None]
    return quoting_part(kind, parts, **_fields(block, "block_type", "content", "cited_content", "text"))


def _fields(block: Mapping[str, Any], *left_out: str) -> dict[str, Any]:
    taken = {"type", *left_out}
    return {key: value for key, value in block.items() if key not in taken and value is not None}


_COLUMNS = ("id", "key", "timestamp", "role", "data")


class LlamaIndexTables(ChosenTables):
    """One or more tables; the key of a row is its session, and no row names a user.

    Messages that were flushed there ("archived") are part of the session as well.

    Args:
        reader: the database.
        names: only these tables.

    Raises:
        ConfigurationError: the database has no such table.
    """

    def __init__(self, reader: TableReader, names: Sequence[str] = ()) -> None:
        def fits(table: SourceTable) -> bool:
            return table.columns >= set(_COLUMNS)

        super().__init__(reader, choose_tables(reader, names, fits=fits, library="LlamaIndex"))

    def records(self) -> Iterator[Record]:
        for table in self._tables:
            for row in self._reader.rows(table, _COLUMNS, order=("key", "timestamp", "id")):
                self._portion = Portion(self._portion.done + 1, self._portion.total)
                yield from _read_row(table, row)


def _read_row(table: SourceTable, row: SourceRow) -> Iterator[Record]:
    place = Place("llamaindex", table.label, row.text("id"))
    if row.long_column is not None:
        yield Omission(place, f"column {row.long_column} is too long to be read")
        return
    try:
        message, problems = read_chat_message(read_mapping(row["data"]))
    except ValueError as error:
        yield Omission(place, f"column data {error}")
        return
    for part, reason in problems:
        yield Omission(place.at(part), reason)
    moment = read_moment(row["timestamp"])
    if moment is not None:
        message["created_at"] = moment.isoformat()
    yield SourceMessage(place, row.text("key"), None, message)
