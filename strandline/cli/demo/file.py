"""The demo's input: a conversation in chat JSONL, and its questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from strandline.chat_import.file_lines import object_in
from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.errors import ConfigurationError, InvalidMessageError
from strandline.schemas.foreign_json import read_json
from strandline.schemas.settings import Settings
from strandline.schemas.values.message import Message

SAMPLE = "conversation.jsonl"


class Question(BaseModel, coerce_numbers_to_str=True):
    """A question about the conversation; ``evidence`` names the messages that answer it."""

    question: str
    answer: str | None = None
    evidence: list[str] | None = None


QUESTIONS = TypeAdapter(list[Question])


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation to play, checked beforehand: each of its messages can be put."""

    path: Path
    messages: Sequence[Message]
    questions: Sequence[Question]


def read_conversation(path: Path | None, questions: Path | None, settings: Settings) -> Conversation:
    """Read ``path`` (default: the shipped sample) and its questions (default: ``X.qa.json`` next to it).

    Raises:
        ConfigurationError: a file cannot be read, or a line is not a message; the error names it.
    """
    if path is None:
        with resources.as_file(resources.files("strandline") / "samples" / SAMPLE) as sample:
            return read_conversation(sample, questions, settings)
    if questions is None and path.with_suffix(".qa.json").is_file():
        questions = path.with_suffix(".qa.json")
    messages = _read_messages(path, PutLimits(settings.max_content_bytes, settings.max_metadata_bytes))
    if not messages:
        raise ConfigurationError(f"{path} holds no messages; it needs one JSON object per line.")
    return Conversation(path, messages, _read_questions(questions) if questions else [])


def _read_messages(path: Path, limits: PutLimits) -> list[Message]:
    messages: list[Message] = []
    first_use: dict[str, int] = {}
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            message = Message.from_openai(object_in(line))
            prepare(message, "message", limits)
        except InvalidMessageError as error:
            raise ConfigurationError(f"{where}: {error}.") from None
        except ValueError as error:
            raise ConfigurationError(f"{where}: line: {error}.") from None
        if message.id is not None and (first := first_use.setdefault(message.id, number)) != number:
            raise ConfigurationError(f"{where}: its id {message.id!r} is already used in line {first}.")
        messages.append(message)
    return messages


def _read_questions(path: Path) -> list[Question]:
    try:
        return QUESTIONS.validate_python(read_json(_text(path)))
    except ValidationError as error:
        item = error.errors()[0]
        raise ConfigurationError(
            f"{path} must be a JSON list of objects with a 'question', and perhaps an 'answer' and ids of"
            f" messages as 'evidence'; at {'.'.join(map(str, item['loc'])) or 'its top'}: {item['msg']}."
        ) from None
    except ValueError as error:
        raise ConfigurationError(f"{path} is not JSON ({error}).") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{path} cannot be read: {reason}.") from None
