"""The tables of a SQLite file, opened for reading only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from strandline.chat_import.tables.reader import SourceTable, TableReader
from strandline.schemas.errors import ConfigurationError

HEADER = b"SQLite format 3\0"


class SqliteReader(TableReader):
    """A file, to which other processes may write at the same time.

    Raises:
        ConfigurationError: it is not a SQLite database, or cannot be opened.
    """

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
