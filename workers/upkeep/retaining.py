"""A worker's part in retention: an occasional turn that removes expired data from logs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict

from strandline.pipelines.upkeep.passes import tick
from strandline.pipelines.upkeep.removal import OpenArchive, Remover, StepPoint
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import Ring
from strandline.workers.periodic import Periodic

__all__ = ["OpenArchive", "StepPoint", "make_retaining"]

logger = logging.getLogger("strandline.retention")


def make_retaining(
    database: Database,
    settings: Settings,
    open_archive: OpenArchive,
    *,
    ring: Ring,
    is_ending: Callable[[], bool],
    reach: Callable[[StepPoint], None] = lambda _point: None,
) -> Periodic:
    """The thread that takes the turns, not yet started; without any act a turn is one question."""
    remover = Remover(database, open_archive, ring=ring, reach=reach)

    def take_turn() -> None:
        done = tick(database, remover, interval_seconds=settings.retention_pass_seconds, is_ending=is_ending)
        if done.removed or done.failed:
            logger.info("retention took a turn", extra={"action": "retained", **asdict(done)})

    return Periodic("retention", settings.retention_interval_seconds, take_turn)
