"""The demo's input: a conversation in chat JSONL, and the questions beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from strandline.chat_import.chat_line import object_in
from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.errors import ConfigurationError, InvalidMessageError
from strandline.schemas.foreign_json import read_json
from strandline.schemas.settings import Settings
from strandline.schemas.values.message import Message

SAMPLE = "conversation.jsonl"


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the conversation; ``evidence`` names the messages that answer it."""

    text: str
    answer: str | None
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation to play, checked beforehand: each of its messages can be put."""

    path: Path
    messages: tuple[Message, ...]
    questions: tuple[Question, ...]


def read_conversation(path: Path | None, questions: Path | None, settings: Settings) -> Conversation:
    """Read ``path`` (default: the sample that ships) and its questions (default: ``X.qa.json`` beside it).

    Raises:
        ConfigurationError: a file cannot be read, or a line is not a message; the error names it.
    """
    path = path or _sample_path()
    beside = path.with_suffix(".qa.json")
    if questions is None and beside.is_file():
        questions = beside
    limits = PutLimits(settings.max_content_bytes, settings.max_metadata_bytes)
    messages = tuple(_messages(path, limits))
    if not messages:
        raise ConfigurationError(f"{path} holds no messages; it needs one JSON object per line.")
    return Conversation(path, messages, tuple(_questions(questions)) if questions else ())


def _messages(path: Path, limits: PutLimits) -> Iterator[Message]:
    first_use: dict[str, int] = {}
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        message = _message(path, number, line, limits)
        if message.id is not None and first_use.setdefault(message.id, number) != number:
            raise ConfigurationError(
                f"{path}, line {number}: its id {message.id!r} is already used in line"
                f" {first_use[message.id]}."
            )
        yield message


def _message(path: Path, number: int, line: str, limits: PutLimits) -> Message:
    try:
        message = Message.from_openai(_object(line))
        prepare(message, "message", limits)
    except InvalidMessageError as error:
        raise ConfigurationError(f"{path}, line {number}: {error}.") from None
    return message


def _object(line: str) -> dict[str, Any]:
    try:
        return object_in(line)
    except ValueError as error:
        raise InvalidMessageError("line", str(error)) from None


def _questions(path: Path) -> Iterator[Question]:
    text = _text(path)
    try:
        entries = read_json(text)
    except ValueError as error:
        raise ConfigurationError(f"{path} is not JSON ({error}).") from None
    if not isinstance(entries, list):
        raise ConfigurationError(f"{path} must be a JSON list of objects with a 'question'.")
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or not isinstance(entry.get("question"), str):
            raise ConfigurationError(f"{path}, entry {number}: must be an object with a 'question'.")
        answer, evidence = entry.get("answer"), entry.get("evidence") or ()
        if not isinstance(evidence, list | tuple):
            raise ConfigurationError(f"{path}, entry {number}: 'evidence' must be a list of message ids.")
        yield Question(
            entry["question"], None if answer is None else str(answer), tuple(str(item) for item in evidence)
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text.") from None


def _sample_path() -> Path:
    with resources.as_file(resources.files("strandline") / "samples" / SAMPLE) as path:
        return path
