"""Lets the command line end by a signal while it still imports, as process 1 of a container.

The kernel keeps from process 1 each signal that it does not handle, so this is imported before all else.
Commands install their own handlers later.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def _is_command() -> bool:
    """Of ``python -m``, Python knows no more than that while it imports the package."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119  # pathlib is not loaded yet
    return name == "strandline" or (name == "-m" and "strandline" in sys.orig_argv)


if os.getpid() == 1 and _is_command():
    for _number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(_number) is signal.SIG_DFL:
            signal.signal(_number, _end)
