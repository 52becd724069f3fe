"""Budgets: how much a namespace may use models per day; workers draw a budget in slices.

A worker asks Postgres for a slice, a small part of the day's budget for a short time, and spends it without
asking again.  It writes its use when it asks for the next slice, when the slice ends or the budget is
changed, and when the worker leaves; a killed worker never does, so the count may miss up to a slice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TypedDict
from uuid import UUID

from strandline.schemas.errors import BudgetError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.work.limits import ReturnSlice, RevokedSlices, TakeSlice

logger = logging.getLogger("strandline.engine")

SLICE_SECONDS = 60.0

# A slice that ends sooner is returned; more than the time between two looks, so that none ends unseen.
RETURN_SECONDS = 5.0

_UNLIMITED = float("inf")


class UsedParams(TypedDict):
    """The used part of a day's budget, as parameters of statements."""

    day: date
    calls_used: int
    tokens_used: int
    usd_used: float


@dataclass(frozen=True, slots=True)
class _Count:
    day: date
    calls: int = 0
    tokens: int = 0
    usd: float = 0.0

    def plus(self, calls: int, tokens: int, usd: float) -> _Count:
        return _Count(self.day, self.calls + calls, self.tokens + tokens, self.usd + usd)

    def since(self, before: _Count, day: date) -> _Count:
        return _Count(day).plus(self.calls - before.calls, self.tokens - before.tokens, self.usd - before.usd)

    def params(self) -> UsedParams:
        return {
            "day": self.day,
            "calls_used": self.calls,
            "tokens_used": self.tokens,
            "usd_used": self.usd,
        }


class _Share:
    """This worker's use of one namespace's budget today, and the rest of its slice.

    The thread that asks Postgres for a slice holds ``asking``; everything else is in memory, and never waits.
    """

    def __init__(self) -> None:
        self.asking = threading.Lock()
        self._lock = threading.Lock()
        self._used = self._reported = _Count(datetime.now(UTC).date())
        self._is_written = True
        self._calls_left = self._tokens_left = self._usd_left = 0.0
        self._ends_at = 0.0

    def admit(self, tokens: int) -> bool:
        with self._lock:
            covered = (
                time.monotonic() < self._ends_at
                and self._calls_left >= 1
                and self._tokens_left >= tokens
                and self._usd_left > 0
            )
            if covered:
                self._spend(1, tokens, 0.0)
            return covered

    def spend(self, calls: int, tokens: int, usd: float) -> None:
        with self._lock:
            self._spend(calls, tokens, usd)

    def _spend(self, calls: int, tokens: int, usd: float) -> None:
        self._used = self._used.plus(calls, tokens, usd)
        self._is_written = False
        self._calls_left -= calls
        self._tokens_left -= tokens
        self._usd_left -= usd

    @contextmanager
    def write_use(self) -> Iterator[_Count]:
        with self._lock:
            use = self._reported = self._used
            self._is_written, self._ends_at = True, 0.0
        try:
            yield use
        except BaseException:
            with self._lock:
                self._is_written = False
            raise

    def begin_day(self, day: date) -> None:
        with self._lock:
            if day != self._used.day:
                self._used, self._reported = self._used.since(self._reported, day), _Count(day)

    def grant(self, calls: float, tokens: float, usd: float, ends_at: float, *, first_call: int) -> None:
        with self._lock:
            late = self._used.since(self._reported, self._used.day)
            self._calls_left = calls - late.calls
            self._tokens_left = max(tokens, first_call) - late.tokens
            self._usd_left = usd - late.usd
            self._ends_at = ends_at
            self._spend(1, first_call, 0.0)

    def held_day(self) -> date | None:
        with self._lock:
            return self._used.day if self._ends_at > time.monotonic() else None

    def is_to_be_written(self, *, everything: bool) -> bool:
        with self._lock:
            ends_soon = self._ends_at < time.monotonic() + RETURN_SECONDS
            return (everything or ends_soon) and (self._ends_at > 0 or not self._is_written)


@dataclass(slots=True)
class _Shares:
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _shares: dict[str, _Share] = field(default_factory=dict)

    def of(self, namespace: str) -> _Share:
        with self._lock:
            return self._shares.setdefault(namespace, _Share())

    def all(self) -> list[tuple[str, _Share]]:
        with self._lock:
            return list(self._shares.items())


class Budgets:
    """The budgets that this worker draws on, by slices of its own; safe to share between its threads."""

    def __init__(self, database: Database, worker_id: UUID, *, slice_seconds: float = SLICE_SECONDS) -> None:
        self._database = database
        self.worker_id = worker_id
        self._slice_seconds = slice_seconds
        self._shares = _Shares()

    def admit(self, namespace: str, tokens: int) -> None:
        """Count a model call of about so many input tokens, before it is made.

        Waits while another thread asks for a slice of the same namespace.  Raises BudgetError if the budget
        is used up, or other workers hold the rest of it.
        """
        share = self._shares.of(namespace)
        if share.admit(tokens):
            return
        with share.asking:
            if not share.admit(tokens):
                self._take(namespace, share, tokens)

    def settle(self, namespace: str, tokens: int, usd: float, *, calls: int = 0) -> None:
        """Count the difference between a call's use and its estimate; never waits."""
        self._shares.of(namespace).spend(calls, tokens, usd)

    def return_slices(self, *, everything: bool = False) -> None:
        """Write the use of slices that end soon, or of all, and give these slices up.

        Slices of a budget that was changed are given up as well.  A namespace whose next slice is being
        requested is skipped: the request reports its use.

        Raises:
            StrandlineError: the database failed; the next call tries again.
        """
        revoked = set() if everything else self._revoked_namespaces()
        for namespace, share in self._shares.all():
            is_over = everything or namespace in revoked
            if share.is_to_be_written(everything=is_over) and share.asking.acquire(blocking=False):
                try:
                    with share.write_use() as used:
                        self._database.fetch(
                            ReturnSlice(namespace=namespace, worker_id=self.worker_id, **used.params())
                        )
                finally:
                    share.asking.release()

    def _revoked_namespaces(self) -> set[str]:
        days = {namespace: day for namespace, share in self._shares.all() if (day := share.held_day())}
        if not days:
            return set()
        asked = RevokedSlices(worker_id=self.worker_id, namespaces=list(days), days=list(days.values()))
        return {row.namespace for row in self._database.fetch(asked)}

    def _take(self, namespace: str, share: _Share, tokens: int) -> None:
        began = time.monotonic()
        with share.write_use() as used:
            (slice,) = self._database.fetch(
                TakeSlice(
                    namespace=namespace,
                    worker_id=self.worker_id,
                    **used.params(),
                    tokens_wanted=tokens,
                    slice_seconds=self._slice_seconds,
                )
            )
        share.begin_day(slice.day)
        if not slice.is_granted:
            wait = {"waits_for": slice.waits_for, "wait_seconds": round(slice.seconds)}
            logger.warning("namespace waits for its budget", extra={"action": "budget_used_up", **wait})
            raise BudgetError(slice.waits_for or "", slice.seconds)
        share.grant(
            _UNLIMITED if slice.calls is None else slice.calls,
            _UNLIMITED if slice.tokens is None else slice.tokens,
            _UNLIMITED if slice.usd is None else slice.usd,
            began + slice.seconds,
            first_call=tokens,
        )
