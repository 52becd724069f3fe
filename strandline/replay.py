"""Replaying from Python: ``strandline replay`` and ``strandline generations`` as functions.

Each takes a ``Database`` (``connect``), and settings if it depends on them; workers do the deriving.
"""

from __future__ import annotations

from strandline.pipelines.generations.registry import Generation, kept_generations, serving_generations
from strandline.pipelines.replay.comparison import Diff, compare_generations
from strandline.pipelines.replay.estimate import Estimate, estimate
from strandline.pipelines.replay.in_place import InPlace, begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import Progress, begin_generation, derive_generation
from strandline.pipelines.replay.records import Replay, Selection, claim_replay, replays
from strandline.pipelines.replay.switching import prune, roll_back, serve_everybody, switch_owner
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import Settings, load_settings

__all__ = [
    "Diff",
    "Estimate",
    "Generation",
    "InPlace",
    "Progress",
    "Replay",
    "Selection",
    "begin_generation",
    "begin_in_place",
    "claim_replay",
    "compare_generations",
    "connect",
    "derive_generation",
    "estimate",
    "kept_generations",
    "prune",
    "replay_in_place",
    "replays",
    "roll_back",
    "serve_everybody",
    "serving_generations",
    "switch_owner",
]


def connect(settings: Settings | None = None) -> Database:
    """Open a small pool on the configured database, for these functions; close it at the end.

    Raises:
        ConfigurationError: STRANDLINE_DATABASE_URL is not set.
    """
    settings = settings or load_settings()
    if settings.database_url is None:
        raise ConfigurationError("Set STRANDLINE_DATABASE_URL: a replay needs to know its database.")
    url = settings.database_url.get_secret_value()
    return Database.connect(ConnectionOptions.from_settings(url, settings, pool_size=2))
