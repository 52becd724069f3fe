"""Opens the database that an import reads, by its URL or file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from strandline.chat_import.tables.postgres import PostgresReader
from strandline.chat_import.tables.reader import SourceTable, TableReader
from strandline.chat_import.tables.sqlite import SqliteReader
from strandline.schemas.display.shown_text import quote
from strandline.schemas.display.shown_url import shown_url
from strandline.schemas.errors import ConfigurationError


def open_database(location: str) -> TableReader:
    """A database by its URL, as these libraries spell it (``postgresql+asyncpg://``), or a SQLite file.

    Raises:
        ConfigurationError: it is of another kind, or cannot be opened.
    """
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


def choose_tables(
    reader: TableReader, names: Sequence[str], *, fits: Callable[[SourceTable], bool], library: str
) -> list[SourceTable]:
    """The tables that ``fits`` recognises; of these, if ``names`` has any, only those.

    Raises:
        ConfigurationError: there is none, or not one that is named.
    """
    tables = [table for table in reader.tables() if fits(table)]
    if not tables:
        raise ConfigurationError(f"The database has no tables of {library}.")
    unknown = [name for name in names if not any(name in (one.label, one.name) for one in tables)]
    if unknown:
        labels = ", ".join(quote(table.label) for table in tables)
        raise ConfigurationError(
            f"{quote(unknown[0])} is not a table of {library}; the database has {labels}."
        )
    return [table for table in tables if not names or table.label in names or table.name in names]
