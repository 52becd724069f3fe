"""Where an application's code raised: an error's own words may quote anything, and are kept nowhere."""

from __future__ import annotations

import traceback
from pathlib import Path


def place_in(error: BaseException) -> str:
    """The line of code that raised, without the error's message."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"
