"""Calls the application's code within a time limit, although a thread cannot be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from strandline.schemas.forking import renew_in_child

T = TypeVar("T")


class TimeLimitError(Exception):
    """The call did not return in time."""


class NoPlaceError(Exception):
    """The call was not made: too many calls have not returned yet, or no further thread can be started."""


class _Call(Generic[T]):
    __slots__ = ("_call", "_error", "_result", "ended")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._result: list[T] = []
        self._error: Exception | None = None
        self.ended = False

    def run(self) -> None:
        try:
            self._result.append(self._call())
        except Exception as error:  # noqa: BLE001  # raised again in the thread that asked
            self._error = error
        except BaseException as error:  # noqa: BLE001  # as sys.exit(), which is to end no thread of ours
            reported = RuntimeError(f"the code raised {type(error).__name__}")
            self._error = reported.with_traceback(error.__traceback__)

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


class BoundedCalls:
    """Calls of one kind, each in its own thread; made once per process, and safe to share.

    A late call runs on until it ends by itself, and still counts towards ``at_once``.

    Args:
        at_once: how many calls may run at the same time.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._free()
        renew_in_child(self._free)

    def _free(self) -> None:
        """Free all places: in a forked child, the calls of its parent do not run."""
        self._places = threading.BoundedSemaphore(self._at_once)
        self._lock = threading.Lock()
        self._late: set[object] = set()

    @property
    def late(self) -> int:
        """The number of calls that were given up on and still run."""
        with self._lock:
            return len(self._late)

    def within(self, seconds: float, call: Callable[[], T]) -> T:
        """Return the result of ``call``, or raise its error, within ``seconds``.

        Raises:
            TimeLimitError: it did not return in time.
            NoPlaceError: it was not called.
        """
        one, places = _Call(call), self._places
        if not places.acquire(blocking=False):
            raise NoPlaceError
        thread = threading.Thread(
            target=self._run, args=(one, places), name="strandline-own-code", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            places.release()
            raise NoPlaceError from None
        thread.join(seconds)
        if self._gives_up(one):
            raise TimeLimitError
        return one.outcome()

    def _run(self, one: _Call[T], places: threading.BoundedSemaphore) -> None:
        one.run()
        # In one step: a call that ends just as it is given up would otherwise count as late for good.
        with self._lock:
            one.ended = True
            self._late.discard(one)
        places.release()

    def _gives_up(self, one: _Call[T]) -> bool:
        with self._lock:
            if not one.ended:
                self._late.add(one)
            return not one.ended


# Of a process's workers: code of custom blocks, redaction hooks and overflow handlers.  No more threads can
# be lost than these: then their work waits until the process is restarted.
worker_calls = BoundedCalls(1_000)
