"""Signals through a pipe, for a thread to wait for (``signal.set_wakeup_fd``).

Python runs handlers only in the main thread, between two bytecode instructions. A signal that arrives just
before that thread begins to wait without a time limit, or that the kernel delivers to another thread, is
handled only when the wait is over; and a handler that raises may do so inside ``threading.Condition``, which
then releases a lock that it does not hold. A byte written into a pipe is neither late nor disturbs another
thread.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Collection
from types import FrameType, TracebackType
from typing import Self

_WAKE = 0


def ending_signals() -> list[signal.Signals]:
    """SIGINT, SIGTERM and SIGHUP; the last one not if it is ignored: ``nohup`` asks for that.

    SIGINT in any case: a shell starts background jobs with it ignored.
    """
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else [])]


class SignalPipe:
    """Takes signals from now on until ``close``; made and closed by the main thread, one at a time."""

    def __init__(self, numbers: Collection[signal.Signals]) -> None:
        self._numbers = numbers
        self._reader, self._writer = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        os.set_blocking(self._writer, False)
        self._writer_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _is_in_the_pipe) for number in numbers}
        # A process forked by a block's code handles its own signals, and must not write into this pipe.
        os.register_at_fork(after_in_child=self._leave_the_child)

    def take_again(self) -> None:
        """Take the signals back from code that has replaced our handlers with its own."""
        for number in self._numbers:
            signal.signal(number, _is_in_the_pipe)

    def wait(self, seconds: float | None = None, *, until_woken: bool = True) -> int | None:
        """The number of the next signal; None if ``seconds`` pass without one, or at ``wake``.

        ``until_woken=False`` keeps waiting at ``wake``.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if until is None else max(until - time.monotonic(), 0.0) * 1000
            if not self._poll.poll(left):
                return None
            number = os.read(self._reader, 1)[0]
            if number == _WAKE and until_woken:
                return None
            if number in self._numbers:
                return number

    def wake(self) -> None:
        """End the ``wait`` that is under way, or the next one."""
        os.write(self._writer, bytes([_WAKE]))

    def close(self) -> None:
        """Handle signals as before."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._writer_before)
        self._before = {}
        os.close(self._reader)
        os.close(self._writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _leave_the_child(self) -> None:
        if self._before:
            signal.set_wakeup_fd(-1)
            for number in self._numbers:
                signal.signal(number, signal.SIG_DFL)


def _is_in_the_pipe(_number: int, _frame: FrameType | None) -> None:
    """Python's own handling of a signal that a ``SignalPipe`` has passed on."""
