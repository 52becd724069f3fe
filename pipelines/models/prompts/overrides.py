"""Custom prompts: a directory whose files replace the shipped ones, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from strandline.pipelines.models.contract import TaskName
from strandline.pipelines.models.prompts.render import instructions
from strandline.schemas.errors import ConfigurationError

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
