"""Budgets: what a namespace may ask of models per day, drawn by workers in slices.

A worker asks Postgres for a slice, a small part of the day's budget for a short time, and spends it without
asking again.  What it has used is written when it asks for the next one, when the slice ends, and when the
worker leaves; a worker that is killed never says, so a slice is what may be lost of the count.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from strandline.schemas.database import Database
from strandline.schemas.errors import BudgetError

logger = logging.getLogger("strandline.engine")

SLICE_SECONDS = 60.0

# A slice that ends sooner is given back by the heartbeat; more than one beat, so that none ends unseen.
RETURN_SECONDS = 5.0


@dataclass(slots=True)
class _Used:
    """What this worker used of one namespace's budget today, and what it may still use without asking."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    day: date = field(default_factory=lambda: datetime.now(UTC).date())
    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    calls_left: float = 0.0
    tokens_left: float = 0.0
    usd_left: float = 0.0
    ends_at: float = 0.0

    def covers(self, tokens: int) -> bool:
        return (
            time.monotonic() < self.ends_at
            and self.calls_left >= 1
            and self.tokens_left >= tokens
            and self.usd_left > 0
        )

    def spend(self, *, calls: int = 0, tokens: int = 0, usd: float = 0.0) -> None:
        self.calls += calls
        self.calls_left -= calls
        self.tokens += tokens
        self.tokens_left -= tokens
        self.usd += usd
        self.usd_left -= usd

    def params(self) -> dict[str, Any]:
        return {
            "day": self.day,
            "calls_used": self.calls,
            "tokens_used": self.tokens,
            "usd_used": self.usd,
        }


class Budgets:
    """The budgets that this worker draws on; safe to share between its threads.

    Args:
        worker_id: whose slices they are.
        slice_seconds: how long one lasts.
    """

    def __init__(self, database: Database, worker_id: UUID, *, slice_seconds: float = SLICE_SECONDS) -> None:
        self._database = database
        self.worker_id = worker_id
        self._slice_seconds = slice_seconds
        self._lock = threading.Lock()
        self._used: dict[str, _Used] = {}

    def admit(self, namespace: str, tokens: int) -> None:
        """Count a model call of about so many input tokens, before it is made.

        Raises:
            BudgetError: the namespace has used up its budget, or what is left is held by other workers.
            StrandlineError: the database failed; nothing is counted.
        """
        with self._lock:
            used = self._used.setdefault(namespace, _Used())
        with used.lock:
            if not used.covers(tokens):
                self._take(namespace, used, tokens)
            used.spend(calls=1, tokens=tokens)

    def settle(self, namespace: str, tokens: int, usd: float) -> None:
        """Count what a call used more, or less, than it was admitted for."""
        with self._lock:
            used = self._used.get(namespace)
        if used is not None:
            with used.lock:
                used.spend(tokens=tokens, usd=usd)

    def give_back(self, *, everything: bool = False) -> None:
        """Write down what was used of slices that end soon, or of all, and hold them no longer.

        Raises:
            StrandlineError: the database failed; the next call tries again.
        """
        with self._lock:
            held = list(self._used.items())
        for namespace, used in held:
            with used.lock:
                ends_soon = used.ends_at < time.monotonic() + RETURN_SECONDS
                if used.ends_at and (everything or ends_soon):
                    self._database.fetch("return_slice", self._params(namespace) | used.params())
                    used.ends_at = 0.0

    def _take(self, namespace: str, used: _Used, tokens: int) -> None:
        asked = {"tokens_wanted": tokens, "slice_seconds": self._slice_seconds}
        began = time.monotonic()
        ((day, _limited, granted, calls, tokens_granted, usd, seconds, waits_for),) = self._database.fetch(
            "take_slice", self._params(namespace) | used.params() | asked
        )
        if day != used.day:
            used.day, used.calls, used.tokens, used.usd = day, 0, 0, 0.0
        if not granted:
            used.ends_at = 0.0
            logger.warning(
                "namespace waits for its budget",
                extra={"action": "budget_used_up", "waits_for": waits_for, "wait_seconds": round(seconds)},
            )
            raise BudgetError(waits_for, seconds)
        unlimited = float("inf")
        used.calls_left = unlimited if calls is None else calls
        used.tokens_left = unlimited if tokens_granted is None else max(tokens_granted, tokens)
        used.usd_left = unlimited if usd is None else usd
        used.ends_at = began + seconds

    def _params(self, namespace: str) -> dict[str, Any]:
        return {"namespace": namespace, "worker_id": self.worker_id}
