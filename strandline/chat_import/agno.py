"""The tables of Agno 1, 2 and 3: which release made a table is seen by its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strandline.adapters.converter import AGNO_MEDIA, NO_ID, ROLES, agno_media_part, name_or
from strandline.chat_import.records import (
    Omission,
    Place,
    Portion,
    Record,
    SourceFact,
    SourceMessage,
    openai_call,
)
from strandline.chat_import.tables.reader import (
    ChosenTables,
    SourceRow,
    SourceTable,
    TableReader,
    choose_tables,
)
from strandline.chat_import.tables.values import read_json, read_mapping, read_moment

# Runs that Agno itself leaves out of a session's history.
_SKIPPED_STATUSES = frozenset({"PAUSED", "CANCELLED", "ERROR", "REGENERATED"})


class SessionRuns:
    """Reads the runs of one session, of any release.

    Repetitions in later runs are left out: copies of earlier messages, and the system message; of a changing
    one, only the first is part of the chat, as in Agno.
    """

    def __init__(self, place: Place, session: str, user: str | None) -> None:
        self._place = place
        self._session = session
        self._user = user
        self._system: object = None
        self._has_system = False
        self._places: set[Place] = set()

    def read(self, runs: Sequence[object]) -> Iterator[Record]:
        """The messages of the runs, in their order."""
        for index, run in enumerate(runs):
            yield from self._read_run(run, index)

    def _read_run(self, run: object, index: int) -> Iterator[Record]:
        if isinstance(run, Mapping) and isinstance(run.get("response"), Mapping):
            run = run["response"]  # as the first memory class of Agno 1 keeps it
        if not isinstance(run, Mapping):
            yield Omission(self._place.at(f"runs[{index}]"), "is not a run")
            return
        place = self._apart(self._place.at(name_or(f"runs[{index}]", run.get("run_id"))), index)
        if run.get("parent_run_id") is not None:
            yield Omission(place, "is a team member's run, of which the team's run has the answer")
        elif (status := str(run.get("status", "")).upper()) in _SKIPPED_STATUSES:
            yield Omission(
                place, f"is a run with the status {status}, which Agno leaves out of a chat as well"
            )
        else:
            yield from self._read_messages(run, place)

    def _read_messages(self, run: Mapping[str, Any], place: Place) -> Iterator[Record]:
        messages = run.get("messages")
        if not isinstance(messages, list) or not messages:
            messages = _messages_without_list(run)
        for index, message in enumerate(messages):
            identity = message.get("id") if isinstance(message, Mapping) else None
            at = self._apart(place.at(name_or(f"messages[{index}]", identity)), index)
            yield from self._read_message(message, at)

    def _apart(self, place: Place, index: int) -> Place:
        place = place if place not in self._places else place.at(f"[{index}]")
        self._places.add(place)
        return place

    def _read_message(self, message: object, place: Place) -> Iterator[Record]:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            yield Omission(place, "is not a message with a role")
            return
        if message.get("from_history"):
            return
        if message["role"] in ("system", "developer") and not self._is_first_system(message):
            if message.get("content") != self._system:
                yield Omission(place, "is a later system message; the session's first one is taken")
            return
        yield from self._take(message, place)

    def _is_first_system(self, message: Mapping[str, Any]) -> bool:
        if self._has_system:
            return False
        self._has_system, self._system = True, message.get("content")
        return True

    def _take(self, message: Mapping[str, Any], place: Place) -> Iterator[Record]:
        calls = [one for one in _list_of(message.get("tool_calls")) if isinstance(one, Mapping)]
        results = [one for one in calls if "tool_call_id" in one]
        if results:
            for number, one in enumerate(results):
                alone = {**message, "content": None, **one, "role": message["role"], "tool_calls": None}
                yield from self._take(alone, place.at(str(number)))
            return
        taken = _openai_message(message)
        text = taken["content"]
        media: list[dict[str, Any]] = []
        for name, kind in AGNO_MEDIA.items():
            own = message.get(name)
            items = [one for one in (own if isinstance(own, list) else [own]) if isinstance(one, Mapping)]
            pictures = [_picture(one) if kind == "image" else None for one in items]
            for item, picture in zip(items, pictures, strict=True):
                media.append({**agno_media_part(kind, item, text), **(picture or {})})
            if None in pictures:
                yield Omission(place.at(name), "are files, audio or video, of which only the words are taken")
        if media:
            parts = [{"type": "text", "text": text}] if isinstance(text, str) and text else _list_of(text)
            taken["content"] = [*parts, *media]
        yield SourceMessage(place, self._session, self._user, taken)


def _openai_message(message: Mapping[str, Any]) -> dict[str, Any]:
    role = ROLES.get(message["role"], message["role"])
    calls = [openai_call(call) for call in _list_of(message.get("tool_calls"))] if role == "assistant" else []
    calls = [call for call in calls if call is not None]
    content = message.get("content")
    taken: dict[str, Any] = {"role": role, "content": _content(content, may_be_none=bool(calls))}
    if calls:
        taken["tool_calls"] = calls
    if role == "tool":
        taken["tool_call_id"] = name_or(NO_ID, message.get("tool_call_id"))
        if isinstance(message.get("tool_name"), str):
            taken["name"] = message["tool_name"]
    elif isinstance(message.get("name"), str):
        taken["name"] = message["name"]
    reasoning = message.get("reasoning_content") or message.get("thinking")
    if role == "assistant" and isinstance(reasoning, str) and reasoning:
        taken["reasoning_content"] = reasoning
    moment = read_moment(message.get("created_at"))
    if moment is not None:
        taken["created_at"] = moment.isoformat()
    return taken


def _content(content: object, *, may_be_none: bool) -> object:
    if content is None:
        return None if may_be_none else ""
    if isinstance(content, list):
        return [
            part
            if isinstance(part, Mapping) and isinstance(part.get("type"), str)
            else {"type": "text", "text": part if isinstance(part, str) else str(part)}
            for part in content
        ]
    return content if isinstance(content, str) else str(content)


def _messages_without_list(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    asked = run.get("input")
    asked = asked.get("input_content") if isinstance(asked, Mapping) else asked
    at = run.get("created_at")
    turns = (("user", asked), ("assistant", run.get("content")))
    return [
        {"role": role, "content": text, "created_at": at}
        for role, text in turns
        if isinstance(text, str) and text
    ]


def _picture(image: object) -> dict[str, Any] | None:
    """A picture with its URL or bytes; None for a file elsewhere."""
    if not isinstance(image, Mapping):
        return None
    if isinstance(image.get("url"), str):
        return {"type": "image_url", "image_url": {"url": image["url"]}}
    data = image.get("content")
    if not isinstance(data, str) or not data:
        return None
    media = name_or("image/png", image.get("mime_type"))
    return {"type": "image_url", "image_url": {"url": f"data:{media};base64,{data}"}}


def _list_of(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


FIRST_COLUMNS = ("id", "user_id", "memory", "created_at", "updated_at")
LATER_COLUMNS = (
    "memory_id", "memory", "input", "agent_id", "team_id", "user_id", "topics", "feedback", "created_at",
    "updated_at",
)  # fmt: skip

# The user under whom Agno keeps memories without a user.
_NOBODY = "default"


def read_first_memory(table: SourceTable, row: SourceRow) -> Iterator[Record]:
    """A row of Agno 1: JSON in Postgres, and in SQLite what ``str`` makes of a dict."""
    place = Place("agno", table.label, row.text("id"))
    try:
        memory = read_mapping(row["memory"])
    except ValueError as error:
        yield Omission(place, f"column memory {error}")
        return
    # An update rewrites the whole memory, and says so in it.
    changed = read_moment(memory.get("last_updated")) or read_moment(row["updated_at"])
    yield from _fact(place, row, memory.get("memory"), memory, changed)


def read_later_memory(table: SourceTable, row: SourceRow) -> Iterator[Record]:
    """A row of Agno 2 or 3."""
    place = Place("agno", table.label, row.text("memory_id"))
    try:
        memory, topics = read_json(row["memory"]), read_json(row["topics"])
    except ValueError as error:
        yield Omission(place, f"column memory or topics {error}")
        return
    text = memory.get("memory") if isinstance(memory, Mapping) else memory
    yield from _fact(place, row, text, row.values | {"topics": topics}, read_moment(row["updated_at"]))


def _fact(
    place: Place, row: SourceRow, text: object, fields: Mapping[str, Any], updated_at: Any
) -> Iterator[Record]:
    if not isinstance(text, str):
        yield Omission(place, "has no text")
        return
    topics = fields.get("topics")
    user = row["user_id"]
    yield SourceFact(
        place,
        None if user == _NOBODY else user,
        text,
        topics=[topic for topic in topics if isinstance(topic, str)] if isinstance(topics, list) else (),
        input=_text(fields.get("input")),
        agent_id=_text(fields.get("agent_id")),
        team_id=_text(fields.get("team_id")),
        feedback=_text(fields.get("feedback")),
        created_at=read_moment(row["created_at"]) or updated_at,
        updated_at=updated_at,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


_SESSION = ("session_id", "user_id", "session_type", "workflow_id", "memory", "runs", "summary")
_RUN = ("run_id", "session_id", "parent_run_id", "status", "run_data")


def _is_session(table: SourceTable) -> bool:
    return table.columns >= {"session_id", "user_id", "session_data"}


def _is_first_memory(table: SourceTable) -> bool:
    return table.columns == set(FIRST_COLUMNS)


def _fits(table: SourceTable) -> bool:
    is_later_memory = table.columns >= {"memory_id", "memory", "user_id", "topics"}
    return _is_session(table) or _is_first_memory(table) or is_later_memory


class AgnoTables(ChosenTables):
    """Tables of sessions and of memories; sessions of workflows are not chats, and are left out.

    Args:
        reader: the database.
        names: only these tables; runs are read with their sessions.

    Raises:
        ConfigurationError: the database has no such table.
    """

    def __init__(self, reader: TableReader, names: Sequence[str] = ()) -> None:
        super().__init__(reader, choose_tables(reader, names, fits=_fits, library="Agno"))
        self._run_tables = [
            table for table in reader.tables() if table.columns >= {"run_id", "session_id", "run_data"}
        ]

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
    if "memory" in row.values:
        memory = read_mapping(row["memory"]) if row["memory"] not in (None, "null") else {}
        runs = memory.get("runs")
    else:
        runs = read_json(row["runs"])
    return runs if isinstance(runs, list) else []
