"""The tables of Agno 1, 2 and 3: which release made a table is seen by its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.chat_import.agno.memories import (
    FIRST_COLUMNS,
    LATER_COLUMNS,
    read_first_memory,
    read_later_memory,
)
from strandline.chat_import.agno.messages import SessionRuns
from strandline.chat_import.records import Omission, Place, Portion, Record
from strandline.chat_import.tables.opening import choose_tables
from strandline.chat_import.tables.reader import SourceRow, SourceTable, TableReader
from strandline.chat_import.tables.values import read_json, read_mapping

_SESSION = ("session_id", "user_id", "session_type", "workflow_id", "memory", "runs", "summary")
_RUN = ("run_id", "session_id", "parent_run_id", "status", "run_data")


def _is_session(table: SourceTable) -> bool:
    return table.columns >= {"session_id", "user_id", "session_data"}


def _is_run(table: SourceTable) -> bool:
    return table.columns >= {"run_id", "session_id", "run_data"}


def _is_first_memory(table: SourceTable) -> bool:
    return table.columns == set(FIRST_COLUMNS)


def _is_later_memory(table: SourceTable) -> bool:
    return table.columns >= {"memory_id", "memory", "user_id", "topics"}


def _fits(table: SourceTable) -> bool:
    return any(is_one(table) for is_one in (_is_session, _is_first_memory, _is_later_memory))


class AgnoTables:
    """Tables of sessions and of memories; sessions of workflows are not chats, and are left out.

    Args:
        reader: the database.
        names: only these tables; runs are read with their sessions.

    Raises:
        ConfigurationError: the database has no such table.
    """

    def __init__(self, reader: TableReader, names: Sequence[str] = ()) -> None:
        self._reader = reader
        self._tables = choose_tables(reader, names, fits=_fits, library="Agno")
        self._run_tables = [table for table in reader.tables() if _is_run(table)]
        self._portion = Portion(0, sum(map(reader.count, self._tables)))

    @property
    def portion(self) -> Portion:
        return self._portion

    def close(self) -> None:
        self._reader.close()

    def records(self) -> Iterator[Record]:
        for table in self._tables:
            for row in self._rows(table):
                self._portion = Portion(self._portion.done + 1, self._portion.total)
                if row.long_column is not None:
                    place = Place("agno", table.label, row.text(_key_of(table)))
                    yield Omission(place, f"column {row.long_column} is too long to be read")
                elif _is_session(table):
                    yield from self._read_session(table, row)
                elif _is_first_memory(table):
                    yield from read_first_memory(table, row)
                else:
                    yield from read_later_memory(table, row)

    def _rows(self, table: SourceTable) -> Iterator[SourceRow]:
        if _is_session(table):
            return self._reader.rows(table, _SESSION, order=("created_at", "session_id"))
        if _is_first_memory(table):
            return self._reader.rows(table, FIRST_COLUMNS, order=("user_id", "created_at", "id"))
        return self._reader.rows(table, LATER_COLUMNS, order=("user_id", "created_at", "memory_id"))

    def _read_session(self, table: SourceTable, row: SourceRow) -> Iterator[Record]:
        place = Place("agno", table.label, row.text("session_id"))
        if row["session_type"] == "workflow" or row["workflow_id"] is not None:
            yield Omission(place, "is the session of a workflow, which is not a chat")
            return
        try:
            stored_runs = _stored_runs(row)
        except ValueError as error:
            yield Omission(place, f"its runs: the column {error}")
            stored_runs = []
        if row["summary"] not in (None, "null"):
            yield Omission(place.at("summary"), "is a summary; workers derive one from the messages")
        session = SessionRuns(place, row.text("session_id"), row["user_id"])
        if not self._run_tables:
            yield from session.read(stored_runs)
            return
        yield from self._read_runs(table, place, session, stored_runs)

    def _read_runs(
        self, table: SourceTable, place: Place, session: SessionRuns, stored_runs: Sequence[object]
    ) -> Iterator[Record]:
        """The runs of Agno 3 from their table, after those that Agno 2 left in the session's row."""
        seen: set[object] = set()
        moved = {run_id for run_id, _ in self._runs_of(table, place)} if stored_runs else set()
        yield from session.read([run for run in stored_runs if _run_id(run) not in moved])
        for run_id, row in self._runs_of(table, place):
            if run_id in seen:
                continue
            seen.add(run_id)
            try:
                run = read_mapping(row["run_data"])
            except ValueError as error:
                yield Omission(place.at(run_id), f"column run_data {error}")
                continue
            if row.long_column is not None:
                yield Omission(place.at(run_id), f"column {row.long_column} is too long to be read")
                continue
            columns = {"parent_run_id": row["parent_run_id"], "status": row["status"]}
            known = {name: value for name, value in columns.items() if value is not None}
            yield from session.read([run | known | {"run_id": run_id}])

    def _runs_of(self, table: SourceTable, place: Place) -> Iterator[tuple[str, SourceRow]]:
        for runs in self._run_tables:
            if runs.schema != table.schema:
                continue
            order = ("run_index", "created_at", "run_id")
            for row in self._reader.rows(runs, _RUN, order=order, where=("session_id", place.row)):
                yield row.text("run_id"), row


def _key_of(table: SourceTable) -> str:
    if _is_session(table):
        return "session_id"
    return "id" if _is_first_memory(table) else "memory_id"


def _run_id(run: object) -> object:
    return run.get("run_id") if isinstance(run, dict) else None


def _stored_runs(row: SourceRow) -> list[object]:
    """The runs in the session's own row: in its memory (Agno 1) or its runs (Agno 2)."""
    if "memory" in row.values:
        memory = read_mapping(row["memory"]) if row["memory"] not in (None, "null") else {}
        runs = memory.get("runs")
    else:
        runs = read_json(row["runs"])
    return runs if isinstance(runs, list) else []
