"""Maps messages of Agno 1 to ours and back, in the form in which Agno's own storage keeps them.

Text, content parts, calls and results go into the fields of a ``Message``, the rest into its metadata.  The
latter may change the form in which it comes back, but never its text or its speaker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from agno.memory.v2.memory import Message as AgnoMessage

from strandline import InvalidMessageError, Message
from strandline.adapters.converter import NO_ID, as_said, try_restore, with_leftovers, without_leftovers
from strandline.adapters.storable import Encoder
from strandline.schemas.values.content_parts import is_part
from strandline.schemas.values.message import HEAD_ROLES, Content, Role, plain

LIBRARY = "agno_1"
_SPEAKERS: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool"}
_IN_MESSAGE = frozenset(
    {"role", "content", "name", "tool_call_id", "tool_calls", "created_at", "from_history", "metrics"}
)


@dataclass(frozen=True, slots=True)
class RunNote:
    """The owner of a run, kept with each of its messages."""

    run_id: str | None = None
    agent_id: str | None = None
    team_id: str | None = None
    status: str | None = None

    def as_json(self) -> dict[str, str]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: str(value) for name, value in fields.items() if value is not None}

    @classmethod
    def from_json(cls, stored: object) -> RunNote | None:
        """None if it is not a note of ours."""
        if not isinstance(stored, Mapping) or not all(isinstance(value, str) for value in stored.values()):
            return None
        return cls(**{name: stored.get(name) for name in cls.__slots__})


def message_of(original: AgnoMessage, note: RunNote | None = None) -> Message:
    """The stored message for one of Agno's.

    Raises:
        InvalidMessageError: it is a system prompt.
    """
    if original.role in HEAD_ROLES:
        raise InvalidMessageError("message", "is a system prompt, and each run has its own")
    role = _SPEAKERS.get(original.role, "assistant")
    content = _content(original)
    message = Message(
        role,
        content,
        name=original.name,
        tool_calls=_named_calls(original.tool_calls) if role == "assistant" else None,
        tool_call_id=(original.tool_call_id or NO_ID) if role == "tool" else None,
        created_at=datetime.fromtimestamp(original.created_at, UTC),
    )
    left: dict[str, Any] = {}
    if note is not None and (fields := note.as_json()):
        left["run"] = fields
    if beside := _beside(original, message):
        left["fields"] = beside
    return with_leftovers(message, LIBRARY, left)


def agno_message_of(message: Message) -> AgnoMessage:
    """The message that this one was stored from; for one of another origin, an equivalent message."""
    theirs = try_restore(
        message,
        LIBRARY,
        lambda plain, left: _restore_message(plain, left.get("fields", {})),
        lambda theirs: as_said(message_of(theirs, note_of(message))) == replace(as_said(message), extra={}),
    )
    return _restore_message(without_leftovers(message, LIBRARY)[0], {}) if theirs is None else theirs


def note_of(message: Message) -> RunNote | None:
    """Whose run a stored message belongs to; None if it was put by something else."""
    _plain, left = without_leftovers(message, LIBRARY)
    return RunNote.from_json(left.get("run"))


def _content(original: AgnoMessage) -> Content:
    content = original.content
    if content is None:
        return None if original.tool_calls and original.role not in ("user", "tool") else ""
    if isinstance(content, str):
        return content
    return list(content) if _are_parts(content) else "\n".join(map(_piece, content))


def _piece(part: object) -> str:
    """The text of anything but a content part; equal for values that differ only in the order of keys."""
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and isinstance(text := part.get("text"), str):
        return text
    return Encoder().json(part)


def _named_calls(calls: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    return [{**call, "id": call.get("id") or NO_ID} for call in calls or ()] or None


def _are_parts(content: Sequence[object]) -> bool:
    return all(is_part(part) and part["type"] != LIBRARY for part in content)  # type: ignore[index]


def _beside(original: AgnoMessage, message: Message) -> dict[str, Any]:
    whole: dict[str, Any] = original.to_dict()
    beside = {key: value for key, value in whole.items() if key not in _IN_MESSAGE and value is not False}
    if original.role != message.role:
        beside["role"] = original.role
    for name in ("content", "tool_calls", "tool_call_id"):
        if (getattr(original, name) or None) != (plain(getattr(message, name)) or None):
            beside[name] = getattr(original, name)
    if message.content == "" and original.content is None:
        beside["content"] = None
    return beside


def _restore_message(message: Message, fields: Mapping[str, Any]) -> AgnoMessage:
    usual: dict[str, Any] = {
        "role": message.role,
        "content": plain(message.content),
        "name": message.name,
        "tool_calls": plain(message.tool_calls),
        "tool_call_id": message.tool_call_id,
    }
    if message.created_at is not None:
        usual["created_at"] = int(message.created_at.timestamp())
    return AgnoMessage.model_validate({**usual, **plain(fields)})
