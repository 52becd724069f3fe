"""Assembly: makes a process's stages, runner and registry entries out of its settings.

Only consuming processes (workers, ``up``, the in-process runner) need this, and with it the model
clients; it is imported when one of them starts.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import get_args

from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.engine.engine import StopPoint
from strandline.pipelines.generations.recipe import Recipe, differences
from strandline.pipelines.generations.registry import (
    Generation,
    register,
    serving_generations,
    wanted_recipes,
)
from strandline.pipelines.generations.stages import GenerationStages, build
from strandline.pipelines.overflow.contract import load_handler
from strandline.pipelines.upkeep.removal import StepPoint
from strandline.schemas.errors import ConfigurationError, SchemaError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.postgres.migrations import HEAD_REVISION
from strandline.schemas.queries.inspection.status import SchemaRevision
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import OVERFLOW_STAGE, STAGES, VECTORS, pipeline_of
from strandline.wiring.archives import open_archive
from strandline.workers.in_process import BackgroundRunner

logger = logging.getLogger("strandline.generations")

STOP_AT_VARIABLE = "STRANDLINE_STOP_AT"


def stage_names(settings: Settings) -> tuple[str, ...]:
    """Every stage that these settings serve: Strandline's, an overflow handler's, and each custom block's."""
    handing_over = (OVERFLOW_STAGE,) if load_handler(settings.on_overflow) is not None else ()
    return (*STAGES, *handing_over, *load_blocks(settings.blocks))


def prepare_stages(
    database: Database, settings: Settings, names: Sequence[str] | None = None
) -> GenerationStages:
    """The named stages (default: all), made as the generations in this database require.

    Pipelines that are not registered yet are registered with the current settings. If the settings differ
    from those of a serving generation, it continues unchanged: one line of the log names the difference, and
    the command that derives with the new settings.

    Raises:
        ConfigurationError: a name is not a stage, or a stage cannot be built with these settings.
    """
    known = stage_names(settings)
    names = known if names is None else names
    if unknown := sorted(set(names) - set(known)):
        raise ConfigurationError(
            f"Stage {', '.join(unknown)} does not exist; the stages are {', '.join(known)}."
            " Custom blocks are named by STRANDLINE_BLOCKS, an overflow handler by STRANDLINE_ON_OVERFLOW."
        )
    recipes = wanted_recipes({pipeline_of(name) for name in names}, settings, serving_generations(database))
    if VECTORS in recipes and settings.backend("embedding") == "none":
        logger.warning(
            "no embedding model is chosen: new messages are searched by words alone",
            extra={"action": "no_embedder", "setting": "STRANDLINE_EMBEDDING_BACKEND"},
        )
    for pipeline, generation in register(database, recipes).items():
        if pipeline in recipes:
            _compare(generation, recipes[pipeline], settings)
    return GenerationStages(database, settings, names)


def _compare(generation: Generation, recipe: Recipe, settings: Settings) -> None:
    differing = list(differences(generation.recipe, recipe))
    if not differing:
        # The requested stages must be available; other generations may be left to other workers.
        build(generation, settings)
        return
    logger.warning(
        "settings differ from the generation that serves; `strandline replay --new` derives with them",
        extra={
            "action": "settings_differ",
            "pipeline": generation.pipeline,
            "generation": generation.generation_id,
            "differences": differing,
        },
    )


def ensure_tables(url: str, database: Database, settings: Settings) -> None:
    """Migrate a database that Strandline manages (``up``, the embedded default) to this release."""
    if _revision(database) != HEAD_REVISION:
        migrate(url, settings.database_schema, public_apis_only=settings.public_apis_only)


def background_runner(database: Database, settings: Settings) -> BackgroundRunner:
    """The in-process runner with all stages, not yet started."""
    return BackgroundRunner(database, prepare_stages(database, settings), settings, open_archive)


def _revision(database: Database) -> str | None:
    try:
        rows = database.fetch(SchemaRevision())
    except SchemaError:
        return None
    # Another application's counts as none, and the migration says whose it is.
    return rows[0].version_num if rows and rows[0].is_own else None


def stop_points() -> Callable[[StopPoint | StepPoint], None]:
    """A function for ``Engine.reach`` and for steps of retention, by which a test stops a process at a point.

    With ``STRANDLINE_STOP_AT=applying:SIGSTOP`` it sends this process that signal the first time it gets to
    the point; nothing happens without the variable.

    Raises:
        ConfigurationError: there is no such point or signal.
    """
    spec = os.environ.get(STOP_AT_VARIABLE)
    if not spec:
        return lambda _point: None
    chosen, _, name = spec.partition(":")
    points = (*get_args(StopPoint), *get_args(StepPoint))
    if chosen not in points or name not in signal.Signals.__members__:
        raise ConfigurationError(
            f"STRANDLINE_STOP_AT is {spec!r}; it must be one of {', '.join(points)}, a colon,"
            " and a signal such as SIGKILL"
        )
    once = threading.Lock()

    def reach(point: StopPoint | StepPoint) -> None:
        if point == chosen and once.acquire(blocking=False):
            # To this very thread: sent to the process, another thread may take it while this one runs past
            # the point.
            signal.pthread_kill(threading.get_ident(), signal.Signals[name])

    return reach
