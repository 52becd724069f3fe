"""An operator's capture, as it applies to a batch: instructions to models, and operations of merge.

A batch names the newest act that applied to its events (``begin_batch_v1``).  So a replay in place goes by
the same one, and a new derivation by the one of each event's time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from strandline.pipelines.engine.stage import Batch
from strandline.pipelines.models.answers import MergeOperation
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.derived.capture import BatchCapture
from strandline.schemas.values.acts.capture import Capture


@dataclass(frozen=True, slots=True)
class AppliedCapture:
    """The choice that applies to a batch, and the number of its newest act; 0: no act."""

    number: int = 0
    capture: Capture = field(default_factory=Capture)

    @property
    def switched_off(self) -> tuple[str, ...]:
        """The operations that a model must not choose; additions are always allowed, and can be withheld."""
        off = {"update": self.capture.is_update_off, "invalidate": self.capture.is_delete_off}
        return tuple(name for name, is_off in off.items() if is_off)

    def restrict(self, operation: MergeOperation) -> MergeOperation | None:
        """The operation within the allowed ones; None if its candidate is withheld.

        A candidate that may not change a known fact becomes a separate one.  Where additions are off, a
        candidate that would end a fact rewords it.
        """
        op, capture = operation.op, self.capture
        if (op == "update" and capture.is_update_off) or (op == "invalidate" and capture.is_delete_off):
            op, operation = "add", MergeOperation("add", operation.candidate, None, None)
        if not capture.is_add_off or op in ("update", "duplicate"):
            return operation
        if op == "invalidate" and not capture.is_update_off:
            return replace(operation, op="update")
        return None


def load_capture(fetcher: Fetcher, batch: Batch) -> AppliedCapture:
    """The choice that applies to the events of a batch."""
    rows = fetcher.fetch(BatchCapture(shard_key=batch.lane.shard_key, batch_id=batch.batch_id))
    if not rows:
        return AppliedCapture()
    (row,) = rows
    common, own = (Capture() if text is None else Capture.from_json(text) for text in (row.common, row.own))
    return AppliedCapture(row.number, own.within(common))
