"""Where an error was raised, for a log that must not quote what the error says."""

from __future__ import annotations

import traceback
from pathlib import Path


def raised_at(error: BaseException) -> str:
    """Files, lines and functions, innermost call last."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
