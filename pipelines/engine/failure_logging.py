"""How a failure is logged: at which level, since others may explain it, and where it was raised."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

from strandline.schemas.errors import (
    DatabaseBusyError,
    DatabaseTimeoutError,
    DatabaseUnavailableError,
    StrandlineError,
)


def level_of(error: StrandlineError, *, ending: bool) -> int:
    """The level at which to log a failure.

    The pool that finds the database away logs that once, rather than each thread that meets it
    (``schemas.postgres.pools.reaching``).  And a process that ends closes its connections under threads that
    outlast its grace time: their work is due to other workers, and nothing is wrong.
    """
    if not isinstance(error, DatabaseUnavailableError):
        return logging.WARNING
    is_loud = isinstance(error, (DatabaseTimeoutError, DatabaseBusyError)) and not ending
    return logging.WARNING if is_loud else logging.INFO


def raised_at(error: BaseException) -> str:
    """Where an error was raised, for a log that must not quote what it says: the innermost call last."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
