"""The systems that an import can read, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from strandline.chat_import.agno import AgnoTables
from strandline.chat_import.exports import anthropic, openai
from strandline.chat_import.llamaindex import LlamaIndexTables
from strandline.chat_import.records import HistorySource
from strandline.chat_import.tables.databases import PostgresReader, SqliteReader
from strandline.chat_import.tables.reader import TableReader
from strandline.schemas.display.shown_url import shown_url
from strandline.schemas.errors import ConfigurationError

SourceName = Literal["llamaindex", "agno", "openai", "anthropic"]


def open_source(name: SourceName, location: str, tables: Sequence[str] = ()) -> HistorySource:
    """A system's chats.

    Args:
        location: of tables the URL of their database, or a SQLite file; of an export its zip, folder or file.
        tables: only these tables.

    Raises:
        ConfigurationError: it cannot be read, or has nothing of this system.
    """
    if name == "openai":
        return openai.open_export(Path(location))
    if name == "anthropic":
        return anthropic.open_export(Path(location))
    reader = _open_database(location)
    try:
        return LlamaIndexTables(reader, tables) if name == "llamaindex" else AgnoTables(reader, tables)
    except BaseException:
        reader.close()
        raise


def _open_database(location: str) -> TableReader:
    """A database by its URL as these libraries spell it (``postgresql+asyncpg://``), or a SQLite file."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return SqliteReader(Path(location))
    kind = scheme.partition("+")[0]
    if kind in ("postgresql", "postgres"):
        return PostgresReader(f"postgresql://{rest}")
    if kind == "sqlite":
        return SqliteReader(Path(rest.removeprefix("/").partition("?")[0]))
    raise ConfigurationError(
        f"{shown_url(location)} is neither a Postgres nor a SQLite database; give one of these, or export the"
        " chats as JSON Lines and import that file."
    )
