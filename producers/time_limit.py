"""Calling code of the application's own in a read: bounded in time, since a read waits for nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Calls that never come back are left to themselves; so many of them at most.
_MAX_AT_ONCE = 32
_places = threading.BoundedSemaphore(_MAX_AT_ONCE)


class TimeLimitError(Exception):
    """The call did not come back in time, or too many have not come back yet."""


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """What ``call`` returns, or raises, within ``seconds``.

    It runs in a thread of its own, which cannot be stopped: one that is late goes on until it ends by
    itself, and keeps its place among the calls that may run at once.

    Raises:
        TimeLimitError: it is late, or there is no place.
    """
    if not _places.acquire(blocking=False):
        raise TimeLimitError
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001  # raised again in the thread that asked
            errors.append(error)
        finally:
            _places.release()

    thread = threading.Thread(target=run, name="strandline-block", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeLimitError
    return results[0]
