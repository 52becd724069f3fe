"""Calling code of the application's own, bounded in time, though a thread cannot be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from strandline.schemas.forking import renew_in_child

T = TypeVar("T")


class TimeLimitError(Exception):
    """The call did not come back in time, or too many have not come back yet."""


class BoundedCalls:
    """Calls of one kind, each in a thread of its own; made once per process, and safe to share.

    One that is late goes on until it ends by itself, and keeps its place among those that may run at once.

    Args:
        at_once: how many calls may run at the same time.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._free()
        renew_in_child(self._free)

    def _free(self) -> None:
        """All places are free: in a forked child, the calls of its parent do not run."""
        self._places = threading.BoundedSemaphore(self._at_once)
        self._lock = threading.Lock()
        self._late: set[threading.Thread] = set()

    @property
    def late(self) -> int:
        """How many calls were given up and still run."""
        with self._lock:
            return len(self._late)

    def within(self, seconds: float, call: Callable[[], T]) -> T:
        """What ``call`` returns, or raises, within ``seconds``.

        Raises:
            TimeLimitError: it is late, or there is no place.
        """
        places = self._places
        if not places.acquire(blocking=False):
            raise TimeLimitError
        results: list[T] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                results.append(call())
            except Exception as error:  # noqa: BLE001  # raised again in the thread that asked
                errors.append(error)
            finally:
                places.release()
                with self._lock:
                    self._late.discard(threading.current_thread())

        thread = threading.Thread(target=run, name="strandline-block", daemon=True)
        thread.start()
        thread.join(seconds)
        if errors:
            raise errors[0]
        if not results:
            self._give_up(thread)
            raise TimeLimitError
        return results[0]

    def _give_up(self, thread: threading.Thread) -> None:
        with self._lock:
            self._late.add(thread)
            # It may have ended just before.
            if not thread.is_alive():
                self._late.discard(thread)
