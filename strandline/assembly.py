"""Assembly: makes a process's stages, consumer and registry entries out of its settings.

Only consuming processes (workers, ``up``, the in-process runner) need this, and with it the model
clients; it is imported when one of them starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from strandline.pipelines.custom import CustomStage
from strandline.pipelines.custom_block import BlockDefinition
from strandline.pipelines.custom_loading import load_blocks
from strandline.pipelines.engine.stage import Stage
from strandline.pipelines.extract import ExtractStage
from strandline.pipelines.merge import MergeStage
from strandline.pipelines.models.contract import Embedder
from strandline.pipelines.models.factory import build_embedder, build_text_model
from strandline.pipelines.registry import (
    Generation,
    Registration,
    block_registration,
    builtin_registration,
    check_block,
    check_embedder,
    embedder_config,
    register,
    serving,
)
from strandline.pipelines.summary import SummaryStage
from strandline.pipelines.vectors import VectorsStage
from strandline.schemas.database import Database
from strandline.schemas.errors import ConfigurationError, SchemaError
from strandline.schemas.lanes import (
    EXTRACT_STAGE,
    FACTS,
    MERGE_STAGE,
    STAGES,
    SUMMARY,
    SUMMARY_STAGE,
    VECTORS,
    VECTORS_STAGE,
    pipeline_of,
)
from strandline.schemas.migrate import migrate
from strandline.schemas.revision import HEAD_REVISION
from strandline.schemas.settings import Settings
from strandline.workers.background import BackgroundRunner
from strandline.workers.stop_points import stop_at

STOP_AT_VARIABLE = "STRANDLINE_STOP_AT"


def stage_names(settings: Settings) -> tuple[str, ...]:
    """Every stage that a process with these settings can serve: Strandline's own, and each custom block.

    Raises:
        ConfigurationError: a custom block cannot be loaded.
    """
    return (*STAGES, *load_blocks(settings.blocks))


def prepare_stages(
    database: Database, settings: Settings, names: Sequence[str] | None = None
) -> dict[str, Stage[Any]]:
    """Build the stages named (default: all), and register their pipelines where nobody has yet.

    Raises:
        ConfigurationError: a name is no stage, a model is not configured, the vectors in this database were
            made with another embedder, or a custom block serves in another version.
    """
    known = stage_names(settings)
    names = known if names is None else names
    if unknown := sorted(set(names) - set(known)):
        raise ConfigurationError(
            f"There is no stage {', '.join(unknown)}; the stages are {', '.join(known)}."
            " Custom blocks are named by STRANDLINE_BLOCKS."
        )
    blocks = [block for name, block in load_blocks(settings.blocks).items() if name in names]
    before = serving(database)
    embedder = embedder_for(settings, before.get(VECTORS)) if VECTORS_STAGE in names else None
    generations = register(database, _registrations(names, embedder, blocks))
    if embedder is not None:
        check_embedder(generations[VECTORS], embedder.model, embedder.dimensions)
    for block in blocks:
        check_block(generations[block.name], block)
    return _build(settings, names, embedder) | {
        block.name: CustomStage(block, settings.max_state_bytes) for block in blocks
    }


def embedder_for(settings: Settings, generation: Generation | None) -> Embedder:
    """The embedder the settings name; left to itself, the one that the stored vectors were made with."""
    if settings.embedding_backend == "auto" and generation is not None:
        made_locally = str(generation.config.get("embedder", "")).startswith("wordllama")
        settings = settings.model_copy(update={"embedding_backend": "local" if made_locally else "openai"})
    return build_embedder(settings)


def ensure_tables(url: str, database: Database, settings: Settings) -> None:
    """Migrate a database of our own (``up``, the embedded default) if it is not at this release."""
    if _revision(database) != HEAD_REVISION:
        migrate(url, settings.database_schema)


def background_runner(database: Database, settings: Settings) -> BackgroundRunner:
    """The in-process runner with all stages, not yet started."""
    return BackgroundRunner(database, prepare_stages(database, settings), settings)


def stop_points() -> Any:
    """What a test asked for by ``STRANDLINE_STOP_AT``; normally a function that does nothing."""
    return stop_at(os.environ.get(STOP_AT_VARIABLE))


def _revision(database: Database) -> str | None:
    try:
        rows = database.fetch("schema_revision", {})
    except SchemaError:
        return None
    return rows[0][0] if rows else None


def _registrations(
    names: Sequence[str], embedder: Embedder | None, blocks: Sequence[BlockDefinition]
) -> Mapping[str, Registration]:
    pipelines = {pipeline_of(name) for name in names}
    wanted = {name: builtin_registration(name) for name in (FACTS, SUMMARY) if name in pipelines}
    if embedder is not None:
        config = embedder_config(embedder.model, embedder.dimensions)
        wanted[VECTORS] = builtin_registration(VECTORS, config)
    return wanted | {block.name: block_registration(block) for block in blocks}


def _build(settings: Settings, names: Sequence[str], embedder: Embedder | None) -> dict[str, Stage[Any]]:
    built: dict[str, Stage[Any]] = {}
    if EXTRACT_STAGE in names or MERGE_STAGE in names:
        model = build_text_model(settings, purpose="facts")
        built[EXTRACT_STAGE] = ExtractStage(model)
        built[MERGE_STAGE] = MergeStage(model, settings.max_facts)
    if SUMMARY_STAGE in names:
        model = build_text_model(settings, purpose="summary")
        built[SUMMARY_STAGE] = SummaryStage(model, settings.summary_max_tokens)
    if embedder is not None:
        built[VECTORS_STAGE] = VectorsStage(embedder)
    return {name: stage for name, stage in built.items() if name in names}
