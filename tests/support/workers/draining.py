"""Consuming on call: the real engine, in the test's own thread, until nothing more can be done."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import STAGES, Lane
from strandline.wiring.assembly import prepare_stages
from strandline.workers.worker import Worker
from tests.conftest import rows_of


def drain_everything(
    database: Database, database_url: str, settings: Settings, stages: Sequence[str] = STAGES
) -> None:
    """Drain every lane that has work in ``stages``, until none of them gets on any more."""
    worker = Worker(
        database,
        prepare_stages(database, settings, stages),
        settings,
        ring=lambda _lanes: None,
        with_sweep=False,
    )
    worker.start()
    try:
        drained = True
        while drained:
            outcomes = [worker.drain(lane) for lane in due_lanes(database_url, stages)]
            drained = "drained" in outcomes
    finally:
        worker.stop()


def due_lanes(database_url: str, stages: Sequence[str] = STAGES) -> list[Lane]:
    """The lanes that have work."""
    rows = rows_of(
        database_url,
        "SELECT DISTINCT shard_key, scope_key, generation_id, stage FROM strandline.due"
        " WHERE stage = ANY (%s)",
        list(stages),
    )
    return [Lane(*row) for row in rows]
