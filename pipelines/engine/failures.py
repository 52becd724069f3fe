"""Failures of lanes: how they are logged, how long a lane waits after one, and what ``status`` shows."""

from __future__ import annotations

import logging
import random
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from strandline.schemas.errors import (
    DatabaseBusyError,
    DatabaseRightsError,
    DatabaseTimeoutError,
    DatabaseUnavailableError,
    SchemaError,
    UnusableAnswerError,
)
from strandline.schemas.values.lanes import Lane

logger = logging.getLogger("strandline.database")

_REFUSALS = (DatabaseRightsError, SchemaError)


def level_of(error: Exception, *, ending: bool) -> int:
    """The level at which to log a failure.

    The pool that finds the database away logs that once, rather than each thread that meets it
    (``schemas.postgres.pools.reaching``).  And a process that ends closes its connections under threads that
    outlast its grace time: their work is due to other workers, and nothing is wrong.  ``REFUSALS`` logs what
    Postgres refuses until a grant or `migrate` is made.
    """
    if isinstance(error, _REFUSALS):
        return logging.INFO
    if not isinstance(error, DatabaseUnavailableError):
        return logging.WARNING
    is_loud = isinstance(error, (DatabaseTimeoutError, DatabaseBusyError)) and not ending
    return logging.WARNING if is_loud else logging.INFO


# Work that was refused is tried again sooner; without another refusal it has ended, with its worker.
_REFUSED_SECONDS = 300.0


class Refusals:
    """Postgres' refusals to this process (a right, a table): one line as they begin, one as they end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = 0.0
        self._refused_at: dict[tuple[int, str], float] = {}

    def note(self, owner: object, work: str, error: Exception) -> None:
        """Some work of a worker's part, or of an engine, has failed; only refusals count."""
        if not isinstance(error, _REFUSALS):
            return
        now = time.monotonic()
        with self._lock:
            refused = self._still_refused(now)
            self._refused_at = refused | {(id(owner), work): now}
            self._since = self._since if refused else now
        if not refused:
            logger.warning("database refuses", extra={"action": "database_refuses", "reason": str(error)})

    def settle(self, owner: object, work: str) -> None:
        """It has succeeded."""
        with self._lock:
            was_refused = bool(self._refused_at)
            self._refused_at.pop((id(owner), work), None)
            # Another worker may have done what was refused here.
            self._refused_at = self._still_refused(time.monotonic())
            is_over = was_refused and not self._refused_at
        if is_over:
            seconds = round(time.monotonic() - self._since, 1)
            logger.warning(
                "database refuses no more", extra={"action": "database_accepts", "after_seconds": seconds}
            )

    def _still_refused(self, now: float) -> dict[tuple[int, str], float]:
        return {key: at for key, at in self._refused_at.items() if now - at < _REFUSED_SECONDS}


REFUSALS = Refusals()


def raised_at(error: BaseException) -> str:
    """Where an error was raised, for logs that must not quote it: the innermost call last."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)


_LETTER_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds of the first wait and of the longest; and how often a lane may fail alone, or crash.

    ``letter_retries``: how often a dead letter is retried by itself.
    """

    base_seconds: float = 1.0
    max_seconds: float = 60.0
    max_failures: int = 8
    max_crashes: int = 20
    letter_retries: int = 4

    def letter_seconds(self, reason: object) -> list[float]:
        """The waits of a dead letter before each retry: five minutes, half an hour, three hours, …

        None unless an unusable answer made it: another one may be usable.
        """
        retries = self.letter_retries if isinstance(reason, UnusableAnswerError) else 0
        return [_LETTER_SECONDS * 6.0**number * random.uniform(0.9, 1.1) for number in range(retries)]  # noqa: S311

    def wait_seconds(
        self, failures: int, *, retry_after_seconds: float | None = None, jitter: float | None = None
    ) -> float:
        """The wait after the ``failures``-th failure in a row (1, 2, …).

        Doubles up to the maximum, then is drawn from its upper half (``jitter`` in [0, 1) fixes the
        draw), so that lanes that failed together do not come back together.  A ``Retry-After`` that
        asks for longer is honoured, to at most ten times the maximum.
        """
        full = min(self.max_seconds, self.base_seconds * 2.0 ** min(failures - 1, 30))
        drawn = full * (0.5 + 0.5 * (random.random() if jitter is None else jitter))  # noqa: S311
        asked = min(retry_after_seconds or 0.0, 10 * self.max_seconds)
        return max(drawn, asked)


# A reason is noted again each time that a lane is put off.  When that has not happened for so long after its
# wait, it is forgotten: another process may have done the work.
KEPT_SECONDS = 60.0


class Troubles:
    """The last reason for which the work of a stage was put off; safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._noted: dict[str, tuple[str, float]] = {}
        self._newer: set[str] = set()

    def note(self, lane: Lane, reason: str, wait_seconds: float) -> None:
        """The lane waits; ``reason`` is a sentence without content."""
        with self._lock:
            self._noted[_key(lane)] = reason, self._clock() + wait_seconds + KEPT_SECONDS

    def is_first_newer(self, lane: Lane) -> bool:
        """Whether the lane's stage meets an event of a newer release for the first time."""
        with self._lock:
            is_first = _key(lane) not in self._newer
            self._newer.add(_key(lane))
            return is_first

    def settle(self, lane: Lane) -> None:
        """The provider of the lane's stage has answered."""
        with self._lock:
            self._noted.pop(_key(lane), None)

    def current(self) -> dict[str, str]:
        """The reasons by ``generation/stage``."""
        with self._lock:
            now = self._clock()
            self._noted = {key: noted for key, noted in self._noted.items() if noted[1] > now}
            return {key: reason for key, (reason, _until) in self._noted.items()}


def _key(lane: Lane) -> str:
    return f"{lane.generation_id}/{lane.stage}"
