"""The tables in which LlamaIndex's ``Memory`` keeps its messages (``SQLAlchemyChatStore``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.chat_import.llamaindex.messages import read_chat_message
from strandline.chat_import.records import Omission, Place, Portion, Record, SourceMessage
from strandline.chat_import.tables.opening import choose_tables
from strandline.chat_import.tables.reader import SourceRow, SourceTable, TableReader
from strandline.chat_import.tables.values import read_mapping, read_moment

_COLUMNS = ("id", "key", "timestamp", "role", "data")


class LlamaIndexTables:
    """One or more tables; the key of a row is its session, and no row names a user.

    Messages that were flushed there ("archived") are part of the session as well.

    Args:
        reader: the database.
        names: only these tables.

    Raises:
        ConfigurationError: the database has no such table.
    """

    def __init__(self, reader: TableReader, names: Sequence[str] = ()) -> None:
        self._reader = reader
        self._tables = choose_tables(
            reader, names, fits=lambda table: table.columns >= set(_COLUMNS), library="LlamaIndex"
        )
        self._portion = Portion(0, sum(map(reader.count, self._tables)))

    @property
    def portion(self) -> Portion:
        return self._portion

    def close(self) -> None:
        self._reader.close()

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
