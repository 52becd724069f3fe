"""Tables of a SQLite file, or of Postgres in one transaction of one moment; opened for reading only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from strandline.chat_import.tables.reader import SourceTable, TableReader
from strandline.schemas.display.shown_url import shown_url
from strandline.schemas.errors import ConfigurationError

HEADER = b"SQLite format 3\0"
# Rows in memory at once, each of which may hold a whole session.
ROWS_PER_FETCH = 10
CONNECT_SECONDS = 30
_TABLES = """
    SELECT CASE WHEN table_schema = current_schema() THEN '' ELSE table_schema END, table_name,
        array_agg(column_name::text)
    FROM information_schema.columns
    WHERE table_schema NOT IN ('information_schema', 'pg_catalog')
    GROUP BY table_schema, table_name ORDER BY 1, 2
"""


class SqliteReader(TableReader):
    """A SQLite file, to which other processes may write at the same time."""

    _parameter = "?"

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                header = file.read(len(HEADER))
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
        if header != HEADER:
            raise ConfigurationError(
                f"{path} is not a SQLite database; give such a file, or the URL of a database."
            )
        try:
            self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        except sqlite3.Error as error:
            raise self._unreadable(error) from None
        # The check of a message refuses invalid UTF-8, instead of ending the import.
        self._connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")

    def tables(self) -> list[SourceTable]:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        names = [str(name) for (name,) in self._fetch(named, (), stream=False)]
        columns = "SELECT name FROM pragma_table_info(?)"
        return [
            SourceTable(
                "", name, frozenset(str(row[0]) for row in self._fetch(columns, [name], stream=False))
            )
            for name in names
        ]

    def _fetch(
        self, statement: str, parameters: Sequence[str], *, stream: bool
    ) -> Iterator[Sequence[object]]:
        try:
            yield from self._connection.execute(statement, parameters)
        except sqlite3.Error as error:
            raise self._unreadable(error) from None

    def close(self) -> None:
        self._connection.close()

    def _unreadable(self, error: sqlite3.Error) -> ConfigurationError:
        return ConfigurationError(f"{self._path} cannot be read as a SQLite database: {error}.")


class PostgresReader(TableReader):
    """A database by its URL."""

    _parameter = "%s"

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._connection = psycopg.connect(url, connect_timeout=CONNECT_SECONDS)
            self._connection.read_only = True
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        except psycopg.Error as error:
            raise self._unreadable(error) from None
        self._cursors = 0

    def tables(self) -> list[SourceTable]:
        return [
            SourceTable(str(schema), str(name), frozenset(columns))  # type: ignore[call-overload]
            for schema, name, columns in self._fetch(_TABLES, (), stream=False)
        ]

    def _fetch(
        self, statement: str, parameters: Sequence[str], *, stream: bool
    ) -> Iterator[Sequence[object]]:
        try:
            with self._cursor(stream=stream) as cursor:
                cursor.execute(statement.encode(), parameters or None)
                yield from cursor
        except psycopg.Error as error:
            raise self._unreadable(error) from None

    def _cursor(self, *, stream: bool) -> Any:
        if not stream:
            return self._connection.cursor()
        self._cursors += 1
        cursor = self._connection.cursor(f"import_{self._cursors}")
        cursor.itersize = ROWS_PER_FETCH
        return cursor

    def close(self) -> None:
        self._connection.close()

    def _unreadable(self, error: psycopg.Error) -> ConfigurationError:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return ConfigurationError(f"The database {shown_url(self._url)} cannot be read: {reason}.")
