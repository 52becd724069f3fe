"""Ends that come from outside: Ctrl-C, SIGTERM and a closed terminal, all as one exception.

Python drops an exception that a signal raises while a finalizer or the callback of a weak reference runs, and
either may run in the middle of anything.  So a signal is noted as well, and whatever takes long looks for it.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED_EXIT = 128 + signal.SIGINT

# How long a wait goes on at most after a signal whose exception was dropped.
LOOK_SECONDS = 0.5


class Terminated(KeyboardInterrupt):
    """A signal asked this process to end; ``exit_code`` is what a shell expects for it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


class Interrupts:
    """The signals that came within ``ends_as_interrupts``."""

    def __init__(self) -> None:
        self._number: int | None = None

    def check(self) -> None:
        """Raise ``Terminated`` if a signal came, whatever became of the exception that it raised."""
        if self._number is not None:
            raise Terminated(self._number)

    def pause(self, seconds: float) -> None:
        """Wait; raises ``Terminated`` at a signal."""
        deadline = time.monotonic() + seconds
        self.check()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
            self.check()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Note the signal, and raise ``Terminated``: a handler."""
        self._number = number
        raise Terminated(number)


@contextmanager
def ends_as_interrupts() -> Iterator[Interrupts]:
    """Within it SIGINT, SIGTERM and SIGHUP raise ``Terminated``, so that what was started is stopped.

    SIGINT as well: a shell starts background jobs with it ignored.  A signal whose exception was dropped is
    raised at the end at the latest.
    """
    interrupts = Interrupts()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with _dropped_in_silence():
        before = {number: signal.signal(number, interrupts.handle) for number in signals}
        try:
            yield interrupts
            interrupts.check()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _dropped_in_silence() -> Iterator[None]:
    """Python prints a traceback for each exception that it drops; ``Interrupts`` has noted these."""
    before = sys.unraisablehook

    def print_others(dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, Terminated):
            before(dropped)

    sys.unraisablehook = print_others
    try:
        yield
    finally:
        sys.unraisablehook = before


class Stop(threading.Event):
    """Set by a signal that asks for an end; ``exit_code`` is what a shell expects for it."""

    exit_code = 0


@contextmanager
def stops_at_signals() -> Iterator[Stop]:
    """The first Ctrl-C or SIGTERM asks for an end between two steps; the second one ends at once."""
    stop = Stop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _frame: FrameType | None) -> None:
        # First, so that a second one ends it whatever the first one came upon.
        signal.signal(number, signal.SIG_DFL)
        stop.exit_code = 128 + number
        # By another thread: this one may be about to wait for the event, and hold its lock.
        _thread.start_new_thread(stop.set, ())

    for number in before:
        signal.signal(number, end)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
