"""The context that members of a team share, kept in a log of its own: it outlives the process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agno.memory.v2.memory import TeamContext, TeamMemberInteraction

from strandline import InvalidMessageError, Memory, Message
from strandline.adapters.converter import with_leftovers, without_leftovers
from strandline.adapters.legacy.agno_v1.messages import LIBRARY

SCOPE = "team context"
# The newest entries of a context are read; older ones stay in the log.
MAX_ENTRIES = 200
NO_TEXT = "-"

# Parts of a member's run that no member needs.
_LEFT_OUT = ("messages", "events", "metrics")


def keep_interaction(memory: Memory, member_name: str, task: str, run: Any) -> None:
    """Add a member's task and answer."""
    response = {key: value for key, value in run.to_dict().items() if key not in _LEFT_OUT}
    fields = {"member_name": member_name, "task": task, "response": _as_json(response)}
    content = run.content if isinstance(run.content, str) and run.content else NO_TEXT
    _keep(memory, content, {"interaction": fields})


def keep_text(memory: Memory, text: str | Mapping[str, Any]) -> None:
    """Set the text of the context; a mapping changes these fields of a text that is JSON.

    Raises:
        InvalidMessageError: it is neither.
    """
    if isinstance(text, str):
        _keep(memory, text or NO_TEXT, {"text": text})
    elif isinstance(text, Mapping):
        fields = _as_json(dict(text))
        _keep(memory, json.dumps(fields, ensure_ascii=False), {"update": fields})
    else:
        raise InvalidMessageError("text", f"must be text or a dict, not {type(text).__name__}")


def read_context(memory: Memory) -> TeamContext | None:
    """The context of a session; None if it has none."""
    entries = [without_leftovers(message, LIBRARY)[1] for message in memory.history(limit=MAX_ENTRIES)]
    if not any(entries):
        return None
    return TeamContext(member_interactions=list(_interactions(entries)), text=_text(entries))


def _keep(memory: Memory, content: str, entry: Mapping[str, Any]) -> None:
    memory.put(with_leftovers(Message("assistant", content), LIBRARY, entry))


def _interactions(entries: Sequence[Mapping[str, Any]]) -> Iterable[TeamMemberInteraction]:
    for entry in entries:
        if isinstance(fields := entry.get("interaction"), Mapping):
            yield TeamMemberInteraction.from_dict(json.loads(json.dumps(fields)))


def _text(entries: Sequence[Mapping[str, Any]]) -> str | None:
    text: str | None = None
    for entry in entries:
        if "text" in entry:
            text = str(entry["text"])
        elif isinstance(fields := entry.get("update"), Mapping):
            text = json.dumps({**_fields(text), **fields})
    return text


def _fields(text: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(text or "{}")
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _as_json(value: dict[str, Any]) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(json.dumps(value, ensure_ascii=False, default=str))
    return stored
