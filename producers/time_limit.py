"""Calling code of the application's own in a read: bounded in time, since a read waits for nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from strandline.schemas.forking import renew_in_child

T = TypeVar("T")

# Calls that never come back are left to themselves; so many of them at most.
_MAX_AT_ONCE = 32


class _Places:
    """Where such calls run, so many at once."""

    def __init__(self) -> None:
        self.free()

    def free(self) -> None:
        """All are free: in a forked child, the calls of its parent do not run."""
        self.semaphore = threading.BoundedSemaphore(_MAX_AT_ONCE)


_places = _Places()
renew_in_child(_places.free)


class TimeLimitError(Exception):
    """The call did not come back in time, or too many have not come back yet."""


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """What ``call`` returns, or raises, within ``seconds``.

    It runs in a thread of its own, which cannot be stopped: one that is late goes on until it ends by
    itself, and keeps its place among the calls that may run at once.

    Raises:
        TimeLimitError: it is late, or there is no place.
    """
    places = _places.semaphore
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

    thread = threading.Thread(target=run, name="strandline-block", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeLimitError
    return results[0]
