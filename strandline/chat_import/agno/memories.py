"""The memories of Agno's users, as facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from strandline.chat_import.records import Omission, Place, Record, SourceFact
from strandline.chat_import.tables.reader import SourceRow, SourceTable
from strandline.chat_import.tables.values import read_json, read_mapping, read_moment

FIRST_COLUMNS = ("id", "user_id", "memory", "created_at", "updated_at")
LATER_COLUMNS = (
    "memory_id", "memory", "input", "agent_id", "team_id", "user_id", "topics", "feedback", "created_at",
    "updated_at",
)  # fmt: skip

# The user under whom Agno keeps memories of nobody in particular.
_NOBODY = "default"


def read_first_memory(table: SourceTable, row: SourceRow) -> Iterator[Record]:
    """A row of Agno 1: JSON in Postgres, and in SQLite what ``str`` makes of a dict."""
    place = Place("agno", table.label, row.text("id"))
    try:
        memory = read_mapping(row["memory"])
    except ValueError as error:
        yield Omission(place, f"column memory {error}")
        return
    # An update writes the whole memory anew, and says so in it.
    changed = read_moment(memory.get("last_updated")) or read_moment(row["updated_at"])
    yield from _fact(place, row, memory.get("memory"), memory, changed)


def read_later_memory(table: SourceTable, row: SourceRow) -> Iterator[Record]:
    """A row of Agno 2 or 3."""
    place = Place("agno", table.label, row.text("memory_id"))
    try:
        memory, topics = read_json(row["memory"]), read_json(row["topics"])
    except ValueError as error:
        yield Omission(place, f"column memory or topics {error}")
        return
    text = memory.get("memory") if isinstance(memory, Mapping) else memory
    yield from _fact(place, row, text, row.values | {"topics": topics}, read_moment(row["updated_at"]))


def _fact(
    place: Place, row: SourceRow, text: object, fields: Mapping[str, Any], updated_at: Any
) -> Iterator[Record]:
    if not isinstance(text, str):
        yield Omission(place, "has no text")
        return
    topics = fields.get("topics")
    user = row["user_id"]
    yield SourceFact(
        place,
        None if user == _NOBODY else user,
        text,
        topics=[topic for topic in topics if isinstance(topic, str)] if isinstance(topics, list) else (),
        input=_text(fields.get("input")),
        agent_id=_text(fields.get("agent_id")),
        team_id=_text(fields.get("team_id")),
        feedback=_text(fields.get("feedback")),
        created_at=read_moment(row["created_at"]) or updated_at,
        updated_at=updated_at,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
