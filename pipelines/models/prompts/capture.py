"""What an operator has captured, as part of the instructions of a task.

The section on what to keep can be replaced; those on what counts as data, on what people have to have said
and on the form of the answer cannot.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.pipelines.models.contract import ExtractTask, MergeTask, Task

# The section of the shipped prompt that is replaced; a prompt of one's own may have it as well.
KEEP = "# What to keep"
_MORE = "# Further instructions"
_OFF = "# Operations that are switched off"


def with_capture(task: Task, instructions: str) -> str:
    """The instructions of a task with what an operator asks for; as they are if that is nothing."""
    match task:
        case ExtractTask():
            text = _replace_section(instructions, task.instructions) if task.instructions else instructions
            return _append(text, _MORE, task.more_instructions) if task.more_instructions else text
        case MergeTask() if task.switched_off:
            return _append(instructions, _OFF, _switched_off(task.switched_off))
        case _:
            return instructions


def _replace_section(instructions: str, text: str) -> str:
    """The section on what to keep, with another text; at the end if the instructions have no such section."""
    lines = instructions.splitlines()
    if KEEP not in lines:
        return _append(instructions, KEEP, f"This takes the place of what is said above on it.\n{text}")
    begin = lines.index(KEEP) + 1
    after = (at for at in range(begin, len(lines)) if lines[at].startswith("# "))
    end = next(after, len(lines))
    return "\n".join((*lines[:begin], text, "", *lines[end:]))


def _append(instructions: str, heading: str, text: str) -> str:
    return f"{instructions.rstrip()}\n\n{heading}\n{text}\n"


def _switched_off(operations: Sequence[str]) -> str:
    names = " and ".join(f"`{name}`" for name in operations)
    return f"Never answer {names}: choose another operation for the candidate."
