"""States: what an ordered stage has folded a lane into, and folds its next batch onto."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from strandline.pipelines.engine.stage import Batch, Stage
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.values.lanes import Lane


@runtime_checkable
class OrderedStage(Stage[Any, Any], Protocol):
    """A stage that folds a lane's batches into a state, in order; its effect is the state, as JSON text.

    The effect is None where the batch leaves the state as it was.
    """

    def load_onto(
        self, state: str | None, fetcher: Fetcher, batch: Batch, between: Callable[[], None] = lambda: None
    ) -> Any:
        """As ``load`` does, onto the state given instead of the lane's latest; None: onto none."""
        ...


def latest_state(fetcher: Fetcher, lane: Lane) -> str | None:
    """The state that a lane goes on from, as JSON text; None where nothing was folded yet."""
    for state, _through_seq in fetcher.fetch("latest_state", _params(lane)):
        return str(state)
    return None


def add_state(fetcher: Fetcher, batch: Batch, state: str) -> None:
    """Write the state after a batch."""
    params = {"through_seq": batch.events[-1].through_seq, "state": state, "batch_id": batch.batch_id}
    fetcher.fetch("insert_state", _params(batch.lane) | params)


def _params(lane: Lane) -> dict[str, Any]:
    return {"shard_key": lane.shard_key, "scope_key": lane.scope_key, "generation_id": lane.generation_id}
