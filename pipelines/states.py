"""States: the results that an ordered stage has folded a lane into, and folds its next batch onto."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from strandline.pipelines.engine.stage import Batch, Stage
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.work.states import InsertState, LatestState
from strandline.schemas.values.lanes import Lane


@runtime_checkable
class OrderedStage(Stage[Any, Any], Protocol):
    """A stage that folds a lane's batches into a state, in order; its effect is the state, as JSON text.

    The effect is None if the batch leaves the state as it was.
    """

    def load_onto(
        self, state: str | None, fetcher: Fetcher, batch: Batch, between: Callable[[], None] = lambda: None
    ) -> Any:
        """As ``load``, onto the given state instead of the lane's latest; None: from the beginning."""
        ...


def latest_state(fetcher: Fetcher, lane: Lane) -> str | None:
    """The latest state of a lane, as JSON text; None if nothing was folded yet."""
    for row in fetcher.fetch(LatestState(**lane.state_keys)):
        return row.state
    return None


def add_state(fetcher: Fetcher, batch: Batch, state: str) -> None:
    """Write the state after a batch."""
    through_seq = batch.events[-1].through_seq
    fetcher.fetch(
        InsertState(**batch.lane.state_keys, through_seq=through_seq, state=state, batch_id=batch.batch_id)
    )
