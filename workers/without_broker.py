"""A worker without its broker: its sweep finds due work, and the worker drains it itself.

The work is in Postgres, so nothing has to wait for a broker that is down, hung or gone, or that takes no
hints.  With hints, work is found sooner; without them, the worker's own threads have nothing else to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.schemas.values.lanes import Lane, Ring
from strandline.workers.orphaned_lanes import TakeOver
from strandline.workers.sweep import LostRings
from strandline.workers.worker import Worker


class WithoutBroker:
    """Rings through the broker; while it is away or refuses hints, drains the lanes in this process."""

    def __init__(self, *, threads: int) -> None:
        self._threads = threads
        self._worker: Worker | None = None
        self._lost_rings = LostRings()

    def work_for(self, worker: Worker, stages: Sequence[str], ring: Ring) -> None:
        """Drain lanes of ``stages`` with ``worker`` whenever its condition has no broker; else ``ring``."""
        self._worker, self._served, self._publish = worker, frozenset(stages), ring
        self._take_over = TakeOver(self._drain, self._threads)

    def ring(self, lanes: Iterable[Lane]) -> None:
        """Publish hints; or begin draining the lanes here, if this process serves their stages."""
        if self._worker is None:
            return
        condition, lanes = self._worker.condition, list(lanes)
        if not condition.has_broker:
            self._take_up(lanes)
            lanes = [one for one in lanes if condition.can_ring and one.stage not in self._served]
        self._publish(lanes)

    def ring_found(self, lanes: Iterable[Lane]) -> None:
        """Notify lanes that the sweep found; drain those notified in vain, if threads are free."""
        new, in_vain = self._lost_rings.split(list(lanes))
        if self._worker is None or self._worker.is_busy():
            new += in_vain
        else:
            self._take_up(in_vain)
        self.ring(new)

    def take_back(self, error: BaseException | None, lanes: Sequence[Lane]) -> None:
        """Note why the doorbell could not ring for ``lanes``, and drain them here; or that it rings again."""
        if self._worker is None:
            return
        if error is None:
            self._worker.condition.find_broker("ring")
        else:
            self._worker.condition.lose_broker("ring", error)
            self.ring(lanes)

    def _take_up(self, lanes: Iterable[Lane]) -> None:
        self._take_over([lane for lane in lanes if lane.stage in self._served])

    def _drain(self, lane: Lane) -> None:
        # The threads that took hints before may still be at work; the sweep finds the lane again.
        if self._worker is not None and not self._worker.is_stopping and not self._worker.is_busy(1.0):
            self._worker.take_up(lane)
