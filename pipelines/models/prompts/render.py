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
from pathlib import Path
from typing import assert_never, get_args

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
from strandline.schemas.display.shown_text import json_seen
from strandline.schemas.errors import ConfigurationError

# The sections of the shipped prompts that are replaced; prompts of one's own may have them as well.
KEEP = "# What to keep"
WRITE = "# How to write it"
_MORE = "# Further instructions"
_OFF = "# Operations that are switched off"


def with_capture(task: Task, instructions: str) -> str:
    """The instructions of a task with the operator's additions, if any."""
    match task:
        case ExtractTask():
            text = _replace_section(instructions, KEEP, task.instructions)
            return _append(text, _MORE, task.more_instructions) if task.more_instructions else text
        case SummaryTask():
            return _replace_section(instructions, WRITE, task.instructions)
        case MergeTask() if task.switched_off:
            return _append(instructions, _OFF, _switched_off(task.switched_off))
        case _:
            return instructions


def _replace_section(instructions: str, heading: str, text: str | None) -> str:
    if text is None:
        return instructions
    lines = instructions.splitlines()
    if heading not in lines:
        return _append(instructions, heading, f"This takes the place of what is said above on it.\n{text}")
    begin = lines.index(heading) + 1
    after = (at for at in range(begin, len(lines)) if lines[at].startswith("# "))
    end = next(after, len(lines))
    return "\n".join((*lines[:begin], text, "", *lines[end:]))


def _append(instructions: str, heading: str, text: str) -> str:
    return f"{instructions.rstrip()}\n\n{heading}\n{text}\n"


def _switched_off(operations: Sequence[str]) -> str:
    names = " and ".join(f"`{name}`" for name in operations)
    return f"Never answer {names}: choose another operation for the candidate."


# Spelled out here, since strftime follows the process's locale.
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered task.

    ``instructions`` is for the system role, ``data`` for the user role; ``hash`` (16 hex characters)
    identifies instructions and answer schema, for any data.
    """

    instructions: str
    data: str
    hash: str


def render(task: Task, own: Mapping[TaskName, str] | None = None) -> Prompt:
    """Render ``task`` with the instructions in ``own``, else with the shipped ones.

    An operator's capture is part of the instructions, and so of their hash.
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
    """The lines before the transcript, under a heading that own instructions need not mention."""
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


MAX_PROMPT_BYTES = 65_536

TASKS: tuple[TaskName, ...] = get_args(TaskName)


def prompt_texts(directory: Path | None) -> dict[TaskName, str]:
    """The instructions of each task: the file ``<task>.md`` of the directory, else what ships.

    Raises:
        ConfigurationError: there is no such directory, or a file of it is of no task, empty, too long or no
            UTF-8.
    """
    texts: dict[TaskName, str] = {name: instructions(name) for name in TASKS}
    if directory is None:
        return texts
    if not directory.is_dir():
        raise ConfigurationError(
            f"STRANDLINE_PROMPTS_DIR names {directory}, which is not a directory; make it,"
            " or unset the variable."
        )
    files = {path.stem: path for path in sorted(directory.glob("*.md"))}
    if unknown := sorted(set(files) - set(TASKS)):
        raise ConfigurationError(
            f"STRANDLINE_PROMPTS_DIR holds {', '.join(f'{name}.md' for name in unknown)}, which belongs to"
            f" no task; the tasks are {', '.join(TASKS)}."
        )
    return texts | {name: _read(files[name]) for name in TASKS if name in files}


def _problem(error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text; save it as UTF-8"
    return f"{error.strerror}; check its owner and its permissions"


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The prompt {path} cannot be read: {_problem(error)}.") from None
    if not text.strip() or "\0" in text or len(content) > MAX_PROMPT_BYTES:
        raise ConfigurationError(
            f"The prompt {path} cannot be used: it must be text of at most {MAX_PROMPT_BYTES:,} bytes,"
            " without NUL, and not empty."
        )
    return text
