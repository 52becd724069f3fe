"""What an operator has captured, as part of the instructions of a task.

The section on what to keep, or on how to write a summary, can be replaced; those on what is data, on what
people have to have said and on the form of the answer cannot.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.pipelines.models.contract import ExtractTask, MergeTask, SummaryTask, Task

# The sections of the shipped prompts that are replaced; prompts of one's own may have them as well.
KEEP = "# What to keep"
WRITE = "# How to write it"
_MORE = "# Further instructions"
_OFF = "# Operations that are switched off"


def with_capture(task: Task, instructions: str) -> str:
    """The instructions of a task with what an operator asks for; as they are if that is nothing."""
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
    """A section with another text, if there is one; at the end if the instructions have no such section."""
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
