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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from strandline.workers.signal_pipe import ending_signals

INTERRUPTED_EXIT = 128 + signal.SIGINT

# A wait's longest delay after a signal whose exception was dropped.
LOOK_SECONDS = 0.5


class Terminated(KeyboardInterrupt):
    """A signal asked this process to end; ``exit_code`` is as a shell expects."""

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
    """Within it the ``ending_signals`` raise ``Terminated``, so that started things are stopped.

    A signal whose exception was dropped is raised at the end at the latest.
    """
    interrupts = Interrupts()
    with _dropped_in_silence(), _take_over(ending_signals(), interrupts.handle):
        yield interrupts
        interrupts.check()


@contextmanager
def _take_over(
    numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, handler)
        yield
    finally:
        for number, previous in before.items():
            # None: it was not set by Python, which cannot set it again.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)


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
    """Set by a signal that asks for an end; ``exit_code`` is as a shell expects."""

    exit_code = 0


@contextmanager
def stops_at_signals() -> Iterator[Stop]:
    """The first of the ``ending_signals`` asks for an end between two steps; the second one ends at once."""
    stop = Stop()
    numbers = ending_signals()

    def end(number: int, _frame: FrameType | None) -> None:
        # First, so that any second signal ends the process at once.
        for taken in numbers:
            signal.signal(taken, signal.SIG_DFL)
        stop.exit_code = 128 + number
        # By another thread: this one may be about to wait for the event, and hold its lock.
        _thread.start_new_thread(stop.set, ())

    with _take_over(numbers, end):
        yield stop
