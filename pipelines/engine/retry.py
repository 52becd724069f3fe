"""How long a lane waits after a failure: a pure function, capped and jittered."""

from __future__ import annotations

import random
from dataclasses import dataclass

from strandline.schemas.errors import UnusableAnswerError

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
