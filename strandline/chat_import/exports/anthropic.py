"""Conversations that people export from Claude."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from strandline.adapters.converter import name_or
from strandline.chat_import.exports.source import ExportSource, branch_to, newest_leaf
from strandline.chat_import.records import Omission, Place, Record, SourceMessage, tool_call
from strandline.chat_import.tables.values import read_moment
from strandline.schemas.values.forms.openai import output_text

_ROLES = {"human": "user", "assistant": "assistant"}


def open_export(path: Path) -> ExportSource:
    """An export of Claude; the user of a session is the uuid of its account.  Raises ConfigurationError."""
    return ExportSource(path, "anthropic", ("uuid",), _read_conversation)


def _read_conversation(conversation: Mapping[str, Any], place: Place) -> Iterator[Record]:
    messages = conversation.get("chat_messages")
    if not isinstance(messages, list):
        yield Omission(place, "has no chat_messages")
        return
    account = conversation.get("account")
    user = account.get("uuid") if isinstance(account, dict) else None
    reader = _Reader(place, user if isinstance(user, str) and user else None)
    named: dict[str, dict[str, Any]] = {}
    for index, message in enumerate(messages):
        if isinstance(message, dict):
            name = name_or("", message.get("uuid"))
            named[name if name and name not in named else f"chat_messages[{index}]"] = message
        else:
            yield Omission(place.at(f"chat_messages[{index}]"), "is not a message")
    for message_id, message in _current_branch(named, conversation.get("current_leaf_message_uuid")):
        yield from reader.read(message, message_id)


def _current_branch(messages: dict[str, dict[str, Any]], current: object) -> list[tuple[str, dict[str, Any]]]:
    nodes = {key: (key, message) for key, message in messages.items()}
    parents = {
        key: message["parent_message_uuid"]
        for key, message in messages.items()
        if isinstance(message.get("parent_message_uuid"), str) and message["parent_message_uuid"] in nodes
    }
    if not parents:
        return list(nodes.values())
    if not isinstance(current, str) or current not in nodes:
        moments = {key: read_moment(message.get("created_at")) for key, message in messages.items()}
        times = {key: moment.timestamp() if moment else 0.0 for key, moment in moments.items()}
        current = newest_leaf(times, parents)
    return [] if current is None else branch_to(current, nodes, parents)


class _Reader:
    def __init__(self, place: Place, user: str | None) -> None:
        self._place = place
        self._user = user

    def read(self, message: Mapping[str, Any], message_id: str) -> Iterator[Record]:
        place = self._place.at(message_id)
        role = _ROLES.get(str(message.get("sender")))
        if role is None:
            yield Omission(place, "has no sender that is known")
            return
        moment = read_moment(message.get("created_at"))
        at = {"created_at": moment.isoformat()} if moment is not None else {}
        taken, problems = _messages_of(message, role, message_id)
        for part, reason in problems:
            yield Omission(place.at(part), reason)
        if not taken and not problems:
            yield Omission(place, "is empty")
        for index, one in enumerate(taken):
            # The first keeps the plain place, since most messages are one.
            at_part = place.at(str(index)) if index else place
            yield SourceMessage(at_part, self._place.row, self._user, one | at)


def _messages_of(
    message: Mapping[str, Any], role: str, message_id: str
) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    pieces = _Pieces(role, message_id)
    blocks = message.get("content")
    for index, block in enumerate(blocks if isinstance(blocks, list) else []):
        pieces.add(block, index)
    text = message.get("text")
    if pieces.is_empty and isinstance(text, str) and text.strip():
        pieces.add_text(text)
    for kind in ("attachments", "files"):
        files = message.get(kind)
        for index, file in enumerate(files if isinstance(files, list) else []):
            pieces.add_file(file, f"{kind}[{index}]")
    return pieces.finish(), pieces.problems


class _Pieces:
    def __init__(self, role: str, message_id: str) -> None:
        self._role = role
        self._message_id = message_id
        self._texts: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._open_calls: list[tuple[str, str]] = []
        self._messages: list[dict[str, Any]] = []
        self.problems: list[tuple[str, str]] = []

    @property
    def is_empty(self) -> bool:
        return not (self._texts or self._calls or self._messages)

    def add(self, block: object, index: int) -> None:
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(block, dict) and kind != "thinking" and isinstance(block.get("text"), str):
            self.add_text(block["text"])
        elif isinstance(block, dict) and kind == "tool_use" and self._role == "assistant":
            call_id = name_or(f"{self._message_id}-{index}", block.get("id"))
            self._calls.append(tool_call(call_id, block.get("name"), block.get("input")))
            self._open_calls.append((call_id, name_or("", block.get("name"))))
        elif isinstance(block, dict) and kind == "tool_result":
            self._answer(block)
        else:
            reason = "is the model's reasoning" if kind == "thinking" else "is not text, a call or its answer"
            self.problems.append((f"content[{index}]", reason))

    def add_text(self, text: str) -> None:
        if text.strip():
            self._texts.append(text)

    def add_file(self, file: object, part: str) -> None:
        if not isinstance(file, dict):
            self.problems.append((part, "is not a file"))
            return
        name = name_or("file", file.get("file_name"))
        extracted = file.get("extracted_content")
        if isinstance(extracted, str) and extracted:
            self._texts.append(f"{name}:\n{extracted}")
        else:
            self._texts.append(f"[{name}]")
            self.problems.append((part, "is a file; the message has only its name"))

    def finish(self) -> list[dict[str, Any]]:
        self._end_message()
        return self._messages

    def _answer(self, block: Mapping[str, Any]) -> None:
        self._end_message()
        call_id = self._call_of(block)
        if call_id is None:
            self._texts.append(output_text(block.get("content")))
            return
        answer = {"role": "tool", "content": output_text(block.get("content")), "tool_call_id": call_id}
        if isinstance(block.get("name"), str) and block["name"]:
            answer["name"] = block["name"]
        self._messages.append(answer)

    def _call_of(self, block: Mapping[str, Any]) -> str | None:
        by_id = [call for call in self._open_calls if call[0] == block.get("tool_use_id")]
        by_name = [call for call in self._open_calls if call[1] == block.get("name")]
        candidates = by_id or by_name or self._open_calls
        if not candidates:
            return None
        self._open_calls.remove(call := candidates[0])
        return call[0]

    def _end_message(self) -> None:
        if self._texts or self._calls:
            message: dict[str, Any] = {"role": self._role, "content": "\n\n".join(self._texts) or None}
            if self._calls:
                message["tool_calls"] = self._calls
            self._messages.append(message)
        self._texts, self._calls = [], []
