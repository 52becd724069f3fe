"""Replaying from Python: ``strandline replay`` and ``strandline generations`` as functions.

Each takes a ``Database`` (``connect``), and settings if it depends on them; workers do the deriving.
Arguments that cannot be used are refused with a ConfigurationError or an InvalidMessageError.
"""

from __future__ import annotations

from strandline.deploy.embedded.stack import running_stack
from strandline.pipelines.generations import registry
from strandline.pipelines.generations.registry import Generation
from strandline.pipelines.replay import comparison, in_place, new_generation, records, switching
from strandline.pipelines.replay import estimate as estimating
from strandline.pipelines.replay.arguments import checked
from strandline.pipelines.replay.comparison import Diff
from strandline.pipelines.replay.estimate import Estimate
from strandline.pipelines.replay.in_place import InPlace
from strandline.pipelines.replay.new_generation import Progress
from strandline.pipelines.replay.records import Replay, Selection
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
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

begin_generation = checked(new_generation.begin_generation)
begin_in_place = checked(in_place.begin_in_place)
claim_replay = checked(records.claim_replay)
compare_generations = checked(comparison.compare_generations)
derive_generation = checked(new_generation.derive_generation)
estimate = checked(estimating.estimate)
kept_generations = checked(registry.kept_generations)
prune = checked(switching.prune)
replay_in_place = checked(in_place.replay_in_place)
replays = checked(records.replays)
roll_back = checked(switching.roll_back)
serve_everybody = checked(switching.serve_everybody)
serving_generations = checked(registry.serving_generations)
switch_owner = checked(switching.switch_owner)


@checked
def connect(settings: Settings | None = None) -> Database:
    """Open a small pool on the configured database, for these functions; close it at the end.

    Without one it is the embedded Postgres of ``STRANDLINE_HOME``, while something uses it: a ``Memory`` in
    this process or another, or ``strandline up``.

    Raises:
        ConfigurationError: no database is configured and none runs, or ``settings`` are not Settings.
    """
    settings = settings or load_settings()
    options = ConnectionOptions.from_settings(_url_of(settings), settings, pool_size=2)
    return Database.connect(options, sealed_content(settings))


def _url_of(settings: Settings) -> str:
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    stack = running_stack(settings.home) if settings.embedded != "never" else None
    if stack is None:
        raise ConfigurationError(
            "No database is configured, and no embedded one runs: set STRANDLINE_DATABASE_URL,"
            " or open a Memory first."
        )
    stack.detach()  # its starter's use stays
    return stack.database_url
