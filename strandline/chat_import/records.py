"""An import's input from another system: messages, facts and omissions, each with its place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from hashlib import blake2b
from typing import Any, Protocol
from uuid import UUID

from strandline.adapters import converter


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in another system.

    Attributes:
        source: the system: ``llamaindex``, ``agno``, ``openai``, ``anthropic`` or ``strandline``.
        table: the table, with its schema unless that is the default one; ``conversations`` in an export.
        row: the primary key of the row; the conversation's id in an export.
        part: one of several things in the row, such as a message of a run; empty for a whole row.
        name: the importer's name for this database, to tell it from another; empty: none.
    """

    source: str
    table: str
    row: str
    part: str = ""
    name: str = ""

    @property
    def digest(self) -> bytes:
        """16 bytes that are the same whenever this place is read."""
        parts = [self.source, self.table, self.row, self.part, *([self.name] if self.name else [])]
        text = json.dumps(parts)
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    @property
    def message_id(self) -> str:
        return self.digest.hex()

    @property
    def fact_id(self) -> UUID:
        return UUID(bytes=self.digest)

    @property
    def metadata(self) -> dict[str, str]:
        """The place in a message's metadata."""
        fields = {"import_source": self.source, "import_table": self.table, "import_row": self.row}
        optional = {"import_part": self.part, "import_name": self.name}
        return fields | {name: value for name, value in optional.items() if value}

    def at(self, part: str) -> Place:
        """A part of this place."""
        return replace(self, part=f"{self.part}/{part}" if self.part else part)


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message of another system, in OpenAI's form, without an id.

    Attributes:
        user: the session's user there; None if the other system names none.
        is_own: it has its own id and metadata, which stay.
        has_facts: its facts are imported as well, so none are derived from it.
    """

    place: Place
    session: str
    user: str | None
    message: Mapping[str, Any]
    is_own: bool = False
    has_facts: bool = False


@dataclass(frozen=True, slots=True)
class SourceFact:
    """A fact about a user that another system keeps."""

    place: Place
    user: str | None
    text: str
    topics: Sequence[str] = ()
    input: str | None = None
    agent_id: str | None = None
    team_id: str | None = None
    feedback: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    about_date: date | None = None


@dataclass(frozen=True, slots=True)
class Omission:
    """Something that an import cannot take, or takes only in part, and why."""

    place: Place
    reason: str


Record = SourceMessage | SourceFact | Omission


@dataclass(frozen=True, slots=True)
class Portion:
    """How much of a source has been read: of ``total`` rows, or bytes of a file; 0 if it is unknown."""

    done: int = 0
    total: int = 0


class HistorySource(Protocol):
    """Another system's chats.

    ``records`` gives the messages of a session one after another, in their order.
    """

    @property
    def portion(self) -> Portion: ...

    def records(self) -> Iterator[Record]: ...

    def close(self) -> None: ...


def tool_call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    """A call; arguments that are not text are written as JSON."""
    text = arguments if isinstance(arguments, str) else _as_json({} if arguments is None else arguments)
    return converter.tool_call(call_id, name, text)


def openai_call(call: object) -> dict[str, Any] | None:
    """A call that a library stored as its model's provider gave it; None if it is none."""
    if not isinstance(call, Mapping):
        return None
    function = call.get("function")
    if isinstance(function, Mapping):
        return tool_call(call.get("id"), function.get("name"), function.get("arguments"))
    return tool_call(call.get("id"), call.get("name"), call.get("input", call.get("arguments")))


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (ValueError, RecursionError):
        return "{}"
