"""Reads tables of another library, in SQLite or Postgres: which there are, and their rows one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from strandline.chat_import.records import Portion
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

# The longest value that is read: a session of Agno 1 or 2 is one of them.
MAX_VALUE_CHARACTERS = 32_000_000


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the database; ``schema`` is empty if it is the default one."""

    schema: str
    name: str
    columns: frozenset[str]

    @property
    def label(self) -> str:
        """Its name, after its schema's if that is not the default one."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row with its values as text; ``long_column`` names a column too long to be read, if any."""

    values: dict[str, str | None]
    long_column: str | None

    def __getitem__(self, column: str) -> str | None:
        return self.values.get(column)

    def text(self, column: str) -> str:
        """The column's text; empty for NULL."""
        return self.values.get(column) or ""


class TableReader(ABC):
    """A database that is only read."""

    @abstractmethod
    def tables(self) -> list[SourceTable]:
        """All tables, in the order of their labels."""

    @abstractmethod
    def _fetch(
        self, statement: str, parameters: Sequence[str], *, stream: bool
    ) -> Iterator[Sequence[object]]:
        """The rows of a statement; with ``stream``, a few at a time."""

    @abstractmethod
    def close(self) -> None: ...

    # How the driver writes a parameter.
    _parameter: str

    def count(self, table: SourceTable) -> int:
        """The number of rows; raises ConfigurationError if the database cannot be read."""
        (row,) = self._fetch(f"SELECT count(*) FROM {_quoted_name(table)}", (), stream=False)  # noqa: S608
        return int(str(row[0]))

    def rows(
        self,
        table: SourceTable,
        columns: Sequence[str],
        *,
        order: Sequence[str],
        where: tuple[str, str] | None = None,
    ) -> Iterator[SourceRow]:
        """The rows, with those of ``columns`` that the table has.

        Args:
            order: the columns to order by; missing ones are skipped.
            where: a column, and the text that it must hold.

        Raises:
            ConfigurationError: the database cannot be read.
        """
        present = [column for column in columns if column in table.columns]
        values = ", ".join(
            f"substr(CAST({_quoted(column)} AS TEXT), 1, {MAX_VALUE_CHARACTERS + 1})" for column in present
        )
        ordered = ", ".join(_quoted(column) for column in order if column in table.columns)
        condition = f" WHERE {_quoted(where[0])} = {self._parameter}" if where is not None else ""
        statement = f"SELECT {values} FROM {_quoted_name(table)}{condition} ORDER BY {ordered}"  # noqa: S608
        parameters = [] if where is None else [where[1]]
        for row in self._fetch(statement, parameters, stream=True):
            yield _row(present, row)


class ChosenTables:
    """Tables of which the rows are read one by one, and how far they are."""

    def __init__(self, reader: TableReader, tables: Sequence[SourceTable]) -> None:
        self._reader = reader
        self._tables = tables
        self._portion = Portion(0, sum(map(reader.count, tables)))

    @property
    def portion(self) -> Portion:
        return self._portion

    def close(self) -> None:
        self._reader.close()


def _row(columns: Sequence[str], row: Sequence[object]) -> SourceRow:
    values = {
        column: None if value is None else str(value) for column, value in zip(columns, row, strict=True)
    }
    long = [column for column, value in values.items() if value and len(value) > MAX_VALUE_CHARACTERS]
    return SourceRow(values, long[0] if long else None)


def _quoted_name(table: SourceTable) -> str:
    return f"{_quoted(table.schema)}.{_quoted(table.name)}" if table.schema else _quoted(table.name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def choose_tables(
    reader: TableReader, names: Sequence[str], *, fits: Callable[[SourceTable], bool], library: str
) -> list[SourceTable]:
    """The tables that ``fits`` recognises; of these, if ``names`` has any, only those.

    Raises:
        ConfigurationError: there is none, or a named one is missing.
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
