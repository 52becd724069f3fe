"""Replays: deriving memory again from the log, in place or as a new generation."""

from __future__ import annotations

from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.generations.registry import serving_generations, settings_differing
from strandline.pipelines.replay.records import Replay
from strandline.schemas.errors import ReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import OVERFLOW
from strandline.schemas.wire.work import ReplayReport


def check_pipelines(database: Database, settings: Settings, pipelines: tuple[str, ...]) -> None:
    """Refuse a pipeline that neither serves nor is known here."""
    for name in set(pipelines).difference(serving_generations(database)):
        recipe_for(name, settings)


def default_pipelines(database: Database, settings: Settings, *, new: bool) -> list[str]:
    """All that serve; of a new generation only those for which the settings say something new.

    Raises:
        ReplayError: they say nothing new.
    """
    generations = serving_generations(database)
    if not new:
        # The overflow handler is called by a replay that names it, and by no other.
        return sorted(generations.keys() - {OVERFLOW})
    if not (differing := settings_differing(generations, settings)):
        raise ReplayError(
            "The settings match every generation that serves, so there is nothing new to derive. Leave out"
            " --new to check them in place, or add --force to derive them again."
        )
    return sorted(differing)


def report_of(replay: Replay) -> ReplayReport:
    """A replay as ``--json`` shows it."""
    return ReplayReport.of(replay, generation=replay.generation_id, counts=dict(replay.counts))
