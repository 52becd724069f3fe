"""The systems that an import can read, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from strandline.chat_import.agno.source import AgnoTables
from strandline.chat_import.exports import anthropic, openai
from strandline.chat_import.llamaindex.source import LlamaIndexTables
from strandline.chat_import.records import HistorySource
from strandline.chat_import.tables.opening import open_database

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
    reader = open_database(location)
    try:
        return LlamaIndexTables(reader, tables) if name == "llamaindex" else AgnoTables(reader, tables)
    except BaseException:
        reader.close()
        raise
