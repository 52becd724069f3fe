"""Ends that come from outside: Ctrl-C, SIGTERM and a closed terminal, all as one exception."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED_EXIT = 128 + signal.SIGINT


class Terminated(KeyboardInterrupt):
    """A signal asked this process to end; ``exit_code`` is what a shell expects for it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


@contextmanager
def ends_as_interrupts() -> Iterator[None]:
    """Within it SIGINT, SIGTERM and SIGHUP raise ``Terminated``, so that what was started is stopped.

    SIGINT as well: a shell starts background jobs with it ignored.
    """

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise Terminated(number)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
