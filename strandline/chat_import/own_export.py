"""An export of Strandline, for another installation, namespace or user.

Messages keep their ids, times and metadata, and facts are taken as they stand: none are derived again from
messages that had been delivered, so deleted facts stay deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from strandline.chat_import.file_lines import object_in, read_lines
from strandline.chat_import.records import Omission, Place, Portion, Record, SourceFact, SourceMessage
from strandline.schemas.errors import ConfigurationError

Line = Mapping[str, Any]

NAME = "strandline"


class OwnExport:
    """The lines of an export, read twice: for its sessions and marks, then for its messages and facts.

    Args:
        session: a name for its only session.

    Raises:
        ConfigurationError: the file cannot be read, or is not a whole export.
    """

    def __init__(self, path: Path, max_line_bytes: int, session: str | None = None) -> None:
        self._path = path
        self._max_line_bytes = max_line_bytes
        self._sessions: dict[str, tuple[str, int]] = {}
        self._delivered: dict[str, int] = {}
        self._generation = 0
        self._user: str | None = None
        self._owner = ""
        self._read_marks()
        if session is not None and len(self._sessions) != 1:
            raise ConfigurationError(
                f"{path} has {len(self._sessions)} sessions, and --session names one; export that one alone."
            )
        if session is not None:
            self._sessions = {key: (session, start) for key, (_, start) in self._sessions.items()}
        self._portion = Portion(0, path.stat().st_size)

    @property
    def portion(self) -> Portion:
        return self._portion

    def close(self) -> None:
        """Nothing is open between two readings."""

    def records(self) -> Iterator[Record]:
        for line in self._lines():
            record = _RECORDS.get(line["kind"])
            if record is not None:
                yield record(self, line)

    def _read_marks(self) -> None:
        kind = None
        for kind, line in ((line["kind"], line) for line in self._lines()):
            if kind == "header":
                self._user, self._owner = line["user_id"], line["owner_key"]
            elif kind == "session":
                self._sessions[line["session_key"]] = line["session_id"], line["log_start_seq"]
            elif kind == "flush":
                key = line["session_key"]
                self._delivered[key] = max(line["through_seq"], self._delivered.get(key, 0))
            elif kind == "fact":
                self._generation = max(self._generation, line["generation_id"])
        if kind != "trailer":
            raise ConfigurationError(f"{self._path} is cut: an export ends with its trailer.")

    def _lines(self) -> Iterator[Line]:
        done, number = 0, 0
        for number, text in enumerate(read_lines(self._path, self._max_line_bytes, lambda: None), start=1):
            done += len(text)
            self._portion = Portion(done, 0)
            try:
                line = object_in(text)
            except ValueError as error:
                raise ConfigurationError(f"{self._path}, line {number} {error}.") from None
            if number == 1 and line.get("format") != "strandline-export":
                break
            yield line
        if number <= 1:
            raise ConfigurationError(f"{self._path} was not written by `strandline export`.")

    def message(self, line: Line) -> Record:
        key, seq = line["session_key"], line["seq"]
        place = Place(NAME, "message", f"{key}/{seq}")
        session, start = self._sessions[key]
        if seq < start:
            return Omission(place, "is from before a reset of its session")
        known = seq <= self._delivered.get(key, 0)
        return SourceMessage(place, session, self._user, line["message"], is_own=True, has_facts=known)

    def fact(self, line: Line) -> Record:
        place = Place(NAME, f"fact of {self._owner}", line["fact_id"])
        if line["generation_id"] != self._generation:
            return Omission(place, "is of an earlier derivation")
        if line.get("doubt_reason") is not None:
            return Omission(place, "is doubtful; settle it, and export again")
        if not line["live"]:
            return Omission(place, "has ended, or was condensed into another fact")
        return SourceFact(
            place,
            self._user,
            line["text"],
            topics=line["topics"],
            input=line["input"],
            agent_id=line["agent_id"],
            team_id=line["team_id"],
            feedback=line["feedback"],
            created_at=datetime.fromisoformat(line["valid_from"]),
            updated_at=datetime.fromisoformat(line["said_at"]),
            about_date=None if line["about_date"] is None else date.fromisoformat(line["about_date"]),
        )


_RECORDS: dict[str, Callable[[OwnExport, Line], Record]] = {
    "message": OwnExport.message,
    "fact": OwnExport.fact,
}
