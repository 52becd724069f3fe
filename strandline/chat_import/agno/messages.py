"""The messages of Agno's runs, in OpenAI's form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strandline.adapters.converter import NO_ID, ROLES, name_or
from strandline.chat_import.records import Omission, Place, Record, SourceMessage
from strandline.chat_import.tables.values import read_moment
from strandline.chat_import.tool_calls import openai_call

# Runs that Agno itself leaves out of a session's history.
_SKIPPED_STATUSES = frozenset({"PAUSED", "CANCELLED", "ERROR", "REGENERATED"})
_MEDIA = ("images", "audio", "videos", "files")


class SessionRuns:
    """Reads the runs of one session, of any release.

    What later runs repeat is left out: their copies of earlier messages, and the system message if it stayed
    the same; of one that changed, only the first is part of the chat, as in Agno.
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
        """The place, or a part of it if another run or message has it: their ids need not be unique."""
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
        taken = _openai_message(message)
        pictures = [part for part in map(_picture, _list_of(message.get("images"))) if part is not None]
        if pictures:
            text = taken["content"]
            parts = [{"type": "text", "text": text}] if isinstance(text, str) and text else _list_of(text)
            taken["content"] = [*parts, *pictures]
        missing = len(_list_of(message.get("images"))) - len(pictures)
        for kind in _MEDIA:
            if missing if kind == "images" else message.get(kind):
                yield Omission(place.at(kind), "are files, audio or video, which are not taken")
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
    """What was asked and answered in a run that was stored without its messages."""
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
    """A picture with its URL or bytes; None for one that is a file elsewhere."""
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
