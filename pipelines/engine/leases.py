"""Leases: which worker drains a lane, and for how long.

A lease ends with its holder's heartbeat or at a hard deadline, whichever comes first; each takeover raises
its epoch, and every write of a worker names the epoch that it holds.  So a holder that was paused and wakes
up cannot write anything.  No connection is held: leases work behind any pooler.

A lane is claimed, and its lease renewed, together with a batch: ``claim`` and ``renew`` in ``batches.py``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from uuid import UUID

from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import LeaseLostError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.queries.work.lanes import (
    KeepLane,
    LastError,
    LockLane,
    ReleaseLane,
    ReleaseUntouchedLane,
    SeeLane,
)
from strandline.schemas.values.lanes import Lane, LaneKeys

# A lease that is kept is renewed when this share of its deadline has passed.
KEPT_AFTER_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Seconds without a heartbeat after which a holder counts as dead, and seconds one batch may take.

    A batch that is done step by step may take that long for each step (``KeptLease``).
    """

    dead_after_seconds: float
    deadline_seconds: float


class LeaseKeys(LaneKeys):
    """A lane, its holder and its fencing token, as parameters of statements."""

    worker_id: UUID
    lease_epoch: int


@dataclass(frozen=True, slots=True)
class Lease:
    """A lane held by a worker under an epoch.

    ``postponements``, ``failures`` and ``crashes`` count since the lane last made progress: waits for any
    reason, its own errors, and workers that died. ``namespace`` is the work's; ``has_lane_limit`` tells that
    its lanes at work are limited, ``has_budget`` that it has a budget.
    """

    lane: Lane
    worker_id: UUID
    epoch: int
    postponements: int = 0
    failures: int = 0
    crashes: int = 0
    namespace: str = ""
    has_lane_limit: bool = False
    has_budget: bool = False

    @property
    def keys(self) -> LeaseKeys:
        """The parameters that every guarded statement needs."""
        return {**self.lane.keys, "worker_id": self.worker_id, "lease_epoch": self.epoch}

    def after_a_batch(self) -> Lease:
        """The same lease with its failure counts at zero: the lane made progress."""
        return replace(self, postponements=0, failures=0, crashes=0)


class KeptLease:
    """A lease whose holder reports, between the steps of a batch, that it makes progress."""

    def __init__(self, database: Database, lease: Lease, terms: LeaseTerms) -> None:
        self._database = database
        self._lease = lease
        self._seconds = terms.deadline_seconds
        self._kept_at = time.monotonic()

    def keep(self) -> None:
        """Restart the deadline, if some of it has passed.

        Raises:
            LeaseLostError: another worker has the lane, or a reset took it away.
        """
        if time.monotonic() - self._kept_at < KEPT_AFTER_SHARE * self._seconds:
            return
        if not self._database.fetch(KeepLane(**self._lease.keys, deadline_seconds=self._seconds)):
            raise LeaseLostError(f"The lease on lane {self._lease.lane} was lost during a batch.")
        self._kept_at = time.monotonic()


def lock_lease(fetcher: Fetcher, lease: Lease) -> None:
    """Lock the lease for the rest of a transaction; raises LeaseLostError if it was taken away."""
    if not fetcher.fetch(LockLane(**lease.keys)):
        raise LeaseLostError(f"The lease on lane {lease.lane} was lost; the prepared result is discarded.")


def check_lease(lease: Lease, fetcher: Fetcher) -> None:
    """As ``lock_lease``, without waiting for a transaction that may take the lease away."""
    if not fetcher.fetch(SeeLane(**lease.keys)):
        raise LeaseLostError(f"The lease on lane {lease.lane} was lost; nothing is copied of its batch.")


def release(
    database: Database,
    lease: Lease,
    *,
    postponements: int = 0,
    failures: int = 0,
    wait_seconds: float = 0.0,
    error: str | None = None,
) -> bool:
    """Release the lane; after a failure, not to be claimed again before ``wait_seconds``.

    False if it was taken away before.
    """
    released = ReleaseLane(
        **lease.keys,
        postponements=postponements,
        failures=failures,
        wait_seconds=wait_seconds,
        last_error=error,
    )
    return bool(database.fetch(released))


def describe_failures(database: Database, lease: Lease) -> str:
    """How often the lane failed, and why the last time."""
    failed = f"failed {quantity(lease.failures, 'time')} in a row"
    errors = [row.last_error for row in database.fetch(LastError(**lease.lane.keys)) if row.last_error]
    return f"{failed}; the last error: {errors[0]}" if errors else failed


def release_untouched(database: Database, lease: Lease, wait_seconds: float) -> None:
    """Release the lane with its earlier failure counts, not to be claimed again before ``wait_seconds``."""
    database.fetch(ReleaseUntouchedLane(**lease.keys, wait_seconds=wait_seconds))
