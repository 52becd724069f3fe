"""Renders a task into the two messages a model gets: constant instructions, and the input as data.

Instructions are constant per task, so that a provider can cache them and their hash identifies them.
Everything that people wrote is JSON-encoded line by line, with ``<`` and hidden characters escaped: no
text can end its section or open another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import resources
from typing import assert_never

from strandline.pipelines.models.answer_forms import answer_schema
from strandline.pipelines.models.contract import (
    ChooseTask,
    CondenseTask,
    ExtractTask,
    InstructTask,
    MergeTask,
    NumberedFact,
    SummaryTask,
    Task,
    TaskName,
    TranscriptLine,
)
from strandline.pipelines.models.prompts.capture import with_capture
from strandline.schemas.display.shown_text import json_seen

# Spelled out here, since strftime follows the process's locale.
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered task.

    ``instructions`` is for the system role, ``data`` for the user role; ``hash`` (16 hex characters)
    identifies instructions and answer schema, whatever the data.
    """

    instructions: str
    data: str
    hash: str


def render(task: Task, own: Mapping[TaskName, str] | None = None) -> Prompt:
    """Render ``task`` with the instructions in ``own``, else with those that ship for its kind.

    What an operator has captured is part of the instructions, and so of their hash.
    """
    text = with_capture(task, (own or {}).get(task.name) or instructions(task.name))
    return Prompt(text, _data(task), hash_of(task.name, text))


@cache
def instructions(name: TaskName) -> str:
    """The instruction text of one kind of task, from the package, read once."""
    file = resources.files("strandline.pipelines.models.prompts") / f"{name}.md"
    return file.read_text(encoding="utf-8")


def prompt_hash(name: TaskName) -> str:
    """The hash of the instructions that ship, as ``hash_of``."""
    return hash_of(name, instructions(name))


@lru_cache(maxsize=64)
def hash_of(name: TaskName, text: str) -> str:
    """First 16 hex characters of blake2b over instructions and answer schema."""
    schema = json.dumps(answer_schema(name), sort_keys=True)
    return blake2b(f"{text}\0{schema}".encode()).hexdigest()[:16]


def _data(task: Task) -> str:
    match task:
        case ExtractTask():
            return f"At most {task.max_facts} facts.\n{_context(task.context)}{_transcript(task.lines)}"
        case MergeTask():
            return _facts("known", task.known) + "\n" + _facts("candidates", task.candidates)
        case CondenseTask():
            return f"At most {task.max_facts} facts are wanted in all.\n" + _facts("facts", task.facts)
        case InstructTask():
            return _section("instruction", [_encode(task.instruction)]) + "\n" + _facts("facts", task.facts)
        case SummaryTask():
            so_far = _section("summary_so_far", [_encode(task.previous)])
            return f"At most {task.max_tokens} tokens.\n{so_far}\n{_transcript(task.lines)}"
        case ChooseTask():
            question = _section("question", [_encode(task.question)])
            return f"At most {task.max_facts} facts are wanted.\n{question}\n{_facts('facts', task.facts)}"
        case _:
            assert_never(task)


def _transcript(lines: Sequence[TranscriptLine]) -> str:
    return _section("transcript", (_line(line) for line in lines))


def _context(lines: Sequence[TranscriptLine]) -> str:
    """What was said before the transcript, under a heading that own instructions need not mention."""
    if not lines:
        return ""
    heading = "Said before the transcript, and context only: extract nothing from these lines, and cite none."
    return f"{heading}\n{_section('context', map(_line, lines))}\n"


def _line(line: TranscriptLine) -> str:
    speaker = f"{line.name} ({line.role})" if line.name else line.role
    return _encode({"n": line.number, "at": _moment(line.created_at), "by": speaker, "text": line.text})


def _facts(tag: str, facts: Sequence[NumberedFact]) -> str:
    return _section(tag, (_encode({"n": f.number, "at": _moment(f.said_at), "text": f.text}) for f in facts))


def _section(tag: str, rows: Iterable[str]) -> str:
    return "\n".join((f"<{tag}>", *rows, f"</{tag}>"))


def _moment(moment: datetime) -> str:
    """Weekday first: "last Saturday" is resolved more reliably when the weekday need not be computed."""
    return f"{_WEEKDAYS[moment.weekday()]} {moment:%Y-%m-%d %H:%M}"


def _encode(value: object) -> str:
    return json_seen(json.dumps(value, ensure_ascii=False)).replace("<", "\\u003c")
