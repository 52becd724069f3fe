"""How long is waited, which requests are sent again, and when: decided without I/O, to be tested alone.

Requests and exports count by ``Attempts``; a stream counts failures in a row, since it has no end.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from strandline.schemas.errors import ConfigurationError

# Whether a request may be sent again without an answer: a completed one changes nothing more.
Repeat = Literal["always", "if_not_done"]
# Outcomes of a request: it never left, the service refused it undone, or no answer came.
Failure = Literal["not_sent", "not_done", "unknown"]

# Problems that say that nothing was done, and that it may be tried again.
NOT_DONE = frozenset({"busy", "redaction-failed", "sealed", "stopping", "too-many-requests", "unavailable"})
# Problems after which it may have been done.  (`model-failed` is in neither: the service has tried already,
# and each further try costs tokens.)
UNKNOWN = frozenset({"outcome-unknown", "timed-out"})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The longest waits of one attempt, in seconds.

    Attributes:
        connect: for a connection.
        read: for the next part of an answer; a call's own wait at the service comes on top.
        write: until a part of the request is taken.
        pool: for a free connection of the pool.
        answer: from the head of an answer to its end, events and exports aside; waits come on top.
    """

    connect: float = 5.0
    read: float = 35.0
    write: float = 10.0
    pool: float = 10.0
    answer: float = 300.0

    def __post_init__(self) -> None:
        for name in ("connect", "read", "write", "pool", "answer"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
                raise ConfigurationError(f"The time-out {name} must be a number of seconds above 0.")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how long a request is sent again.

    By default the time is the bound, and not the number: a service that is away for 25 seconds, as for a
    restart, is waited for.  With few ``attempts`` their random waits may be over much earlier.

    Attributes:
        attempts: how often it is sent at most, the first time included; 1: never again.
        total_seconds: no attempt begins later than this after the first.
        base_seconds: the first wait is a random time up to this; the range doubles each time.
        longest_seconds: up to this, if the service asks for no longer one.
        stream_seconds: how long a stream that was cut is asked for again, however often.
    """

    attempts: int = 60
    total_seconds: float = 30.0
    base_seconds: float = 0.1
    longest_seconds: float = 2.0
    stream_seconds: float = 300.0

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise ConfigurationError("attempts must be a whole number from 1 on.")
        for name in ("total_seconds", "base_seconds", "longest_seconds", "stream_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
                raise ConfigurationError(f"{name} must be a number of seconds, 0 or more.")

    def of_streams(self) -> Retries:
        """The same for the connections of a stream: bounded by their own time alone; 1 attempt stays one."""
        attempts = 1 if self.attempts == 1 else sys.maxsize
        return replace(self, attempts=attempts, total_seconds=self.stream_seconds)

    def wait_seconds(
        self,
        repeat: Repeat,
        failure: Failure,
        *,
        attempt: int,
        spent_seconds: float,
        retry_after: float | None,
        random: Callable[[], float],
    ) -> float | None:
        """How long to wait before the next attempt; None: give up.

        Args:
            attempt: the number of the attempt that failed, from 1.
            spent_seconds: since the first attempt began.
            retry_after: the service's minimum, spread a little.
            random: gives a number from 0 to 1, below it.
        """
        if attempt >= self.attempts or (failure == "unknown" and repeat != "always"):
            return None
        widest = min(self.longest_seconds, self.base_seconds * 2.0 ** min(attempt - 1, 60))
        wait = random() * widest + (retry_after or 0.0)
        return wait if spent_seconds + wait <= self.total_seconds else None


def failure_of(problem: str | None, status: int) -> Failure | None:
    """The kind of a refusal's failure; None: a final answer, which repeating does not change.

    Args:
        problem: the last part of the problem's type; None if the answer is not a problem of Strandline's,
            as of a proxy in between.
    """
    if problem in NOT_DONE:
        return "not_done"
    if problem in UNKNOWN:
        return "unknown"
    if problem is None and status in (502, 503, 504):
        return "unknown"
    return None


def retry_after_of(value: str | None) -> float | None:
    """The seconds of a header ``Retry-After``; None for a date or an unreadable value."""
    seconds = "" if value is None else value.strip()
    return float(seconds) if seconds.isascii() and seconds.isdecimal() and len(seconds) <= 9 else None


@dataclass(slots=True)
class Attempts:
    """How it stands with one request: how often it was sent, since when, and whether an answer was lost."""

    retries: Retries
    repeat: Repeat = "always"
    number: int = 1
    was_lost: bool = False
    began_at: float = field(default_factory=time.monotonic)
    _answered_at: float | None = None

    def note_answer(self) -> None:
        """A long answer begins to come: the time until it broke off is none of a service that refuses."""
        self._answered_at = time.monotonic()

    def next_wait(self, failure: Failure, retry_after: float | None) -> float | None:
        """How long to wait before the next attempt; None: there is none."""
        now = time.monotonic()
        if self._answered_at is not None:
            self.began_at, self._answered_at = self.began_at + now - self._answered_at, None
        self.was_lost = self.was_lost or failure == "unknown"
        wait = self.retries.wait_seconds(
            self.repeat,
            failure,
            attempt=self.number,
            spent_seconds=now - self.began_at,
            retry_after=retry_after,
            random=random.random,
        )
        self.number += 1
        return wait
