"""The tables of a Postgres database, read in one read-only transaction: all rows are of one moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from strandline.chat_import.tables.reader import SourceTable, TableReader
from strandline.schemas.display.shown_url import shown_url
from strandline.schemas.errors import ConfigurationError

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


class PostgresReader(TableReader):
    """A database by its URL.

    Raises:
        ConfigurationError: it cannot be reached, or the URL cannot be used.
    """

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
