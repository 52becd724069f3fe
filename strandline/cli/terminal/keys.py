"""Keys as they are pressed, without Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WaitForKey = Callable[[float], str]
"""Waits so many seconds for a key; empty if none came, ``q`` if the terminal is gone."""


@contextmanager
def keys_read() -> Iterator[WaitForKey]:
    """Take each key of the terminal at once; afterwards it is as before."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)

    def wait(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        return (os.read(number, 1) or b"q").decode("ascii", "ignore") if ready else ""

    try:
        yield wait
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
