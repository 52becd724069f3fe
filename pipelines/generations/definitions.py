"""Definitions: the code of each built-in pipeline, from the settings that it records to its stages.

Other rooms find a pipeline's stages and kind of memory in ``schemas.values.lanes``.  A new pipeline needs an
entry there and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.engine.stage import Stage
from strandline.pipelines.facts.extract import ExtractStage
from strandline.pipelines.facts.merge import MergeStage
from strandline.pipelines.generations.recipe import Recipe
from strandline.pipelines.models.contract import TaskName
from strandline.pipelines.models.embedding_batches import Prefixes
from strandline.pipelines.models.factory import (
    build_embedder,
    build_text_model,
    recorded_bodies,
    recorded_redaction,
    with_recorded_embedder,
    with_recorded_redaction,
)
from strandline.pipelines.models.local.text_model import LOCAL_EMBEDDERS
from strandline.pipelines.models.local.text_model import MODEL as LOCAL_MODEL
from strandline.pipelines.models.prompts.render import hash_of, prompt_texts
from strandline.pipelines.overflow.contract import LoadedHandler, load_handler
from strandline.pipelines.overflow.stage import OverflowStage
from strandline.pipelines.summary import SummaryStage
from strandline.pipelines.vectors.chunks import INDEXED, MAX_INDEXED_CHARACTERS, indexed_characters
from strandline.pipelines.vectors.stage import VectorsStage
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import (
    EXTRACT_STAGE,
    FACTS,
    MERGE_STAGE,
    OVERFLOW,
    OVERFLOW_STAGE,
    PIPELINES,
    SUMMARY,
    SUMMARY_STAGE,
    VECTORS,
    VECTORS_STAGE,
    Pipeline,
    pipeline_named,
)

Config = Mapping[str, Any]
BuiltStages = dict[str, Stage[Any, Any]]


@dataclass(frozen=True, slots=True)
class PipelineDefinition:
    """A built-in pipeline.

    Attributes:
        pipeline: its name, its stages, and its kind of memory.
        version: raise it when the code comes to derive something else from the same messages.
        record: a recipe's config, from these settings.
        restore: the settings, with a config's recorded values.
        build: the stages, from a recipe and restored settings; errors begin with the name of the generation.
        tasks: the tasks whose prompts a recipe records.
    """

    pipeline: Pipeline
    version: str
    record: Callable[[Settings], Config]
    restore: Callable[[Settings, Config], Settings]
    build: Callable[[Recipe, Settings, str], BuiltStages]
    tasks: tuple[TaskName, ...] = ()

    def recipe(self, settings: Settings) -> Recipe:
        """The recipe that these settings ask for; prompts belong to it if a model is called."""
        config = self.record(settings)
        if not self.tasks or config["backend"] == "local":
            return Recipe(self.version, config=config)
        texts = prompt_texts(settings.prompts_dir)
        prompts: dict[str, str] = {name: texts[name] for name in self.tasks}
        hashes = {name: hash_of(name, texts[name]) for name in self.tasks}
        return Recipe(self.version, config={**config, "prompt_hashes": hashes}, prompts=prompts)


def recipe_for(pipeline: str, settings: Settings) -> Recipe:
    """The recipe that these settings ask for.

    Raises:
        ConfigurationError: there is no such pipeline here, or a prompt of STRANDLINE_PROMPTS_DIR cannot be
            used.
    """
    if (definition := definition_of(pipeline)) is not None:
        return definition.recipe(settings)
    blocks = load_blocks(settings.blocks)
    if pipeline not in blocks:
        known = ", ".join((*DEFINITIONS, *blocks))
        raise ConfigurationError(
            f"Pipeline {quote(pipeline)} is unknown here; the pipelines are {known}. Custom blocks are"
            " named by STRANDLINE_BLOCKS."
        )
    return Recipe(blocks[pipeline].version, blocks[pipeline].scope)


def definition_of(pipeline: str) -> PipelineDefinition | None:
    """The definition of a pipeline of Strandline's own; None: it is a custom block's, or unknown."""
    return _OVERFLOW if pipeline == OVERFLOW else DEFINITIONS.get(pipeline)


def _record_facts(settings: Settings) -> Config:
    kind = settings.backend("facts")
    is_local, merge_model = kind == "local", settings.merge_model
    return {
        "backend": kind,
        "model": LOCAL_MODEL if is_local else settings.facts_model,
        **({} if is_local or merge_model in (None, settings.facts_model) else {"merge_model": merge_model}),
        "max_facts": settings.max_facts,
        # The local stand-in picks sentences, and looks at nothing else.
        "context_tokens": 0 if is_local else settings.facts_context_tokens,
        **recorded_redaction(settings),
    }


def _restore_facts(settings: Settings, config: Config) -> Settings:
    return _with(
        settings,
        {"merge_model": None, **config},
        text_backend="backend",
        facts_model="model",
        merge_model="merge_model",
        max_facts="max_facts",
        facts_context_tokens="context_tokens",
    )


def _build_facts(recipe: Recipe, settings: Settings, _name: str) -> BuiltStages:
    prompts: Any = recipe.prompts
    model = merging = build_text_model(settings, purpose="facts", prompts=prompts)
    if settings.text_role("merge").of != settings.text_role("facts").of:
        merging = build_text_model(settings, purpose="merge", prompts=prompts)
    return {
        EXTRACT_STAGE: ExtractStage(model, settings.facts_context_tokens),
        MERGE_STAGE: MergeStage(merging, settings.max_facts),
    }


def _record_summary(settings: Settings) -> Config:
    kind = settings.backend("summary")
    return {
        "backend": kind,
        "model": LOCAL_MODEL if kind == "local" else settings.summary_model,
        "max_tokens": settings.summary_max_tokens,
        **recorded_redaction(settings),
    }


def _restore_summary(settings: Settings, config: Config) -> Settings:
    return _with(
        settings, config, text_backend="backend", summary_model="model", summary_max_tokens="max_tokens"
    )


def _build_summary(recipe: Recipe, settings: Settings, _name: str) -> BuiltStages:
    prompts: Any = recipe.prompts
    model = build_text_model(settings, purpose="summary", prompts=prompts)
    return {SUMMARY_STAGE: SummaryStage(model, settings.summary_max_tokens)}


def _record_vectors(settings: Settings) -> Config:
    limit = settings.max_indexed_characters
    return {**_record_embedder(settings), **({} if limit == MAX_INDEXED_CHARACTERS else {INDEXED: limit})}


def _record_embedder(settings: Settings) -> Config:
    kind = settings.backend("embedding")
    if kind == "none":
        return {"backend": "none", "embedder": "none"}
    if kind in LOCAL_EMBEDDERS:
        model, dimensions = LOCAL_EMBEDDERS[kind]
        return {
            **({} if kind == "local" else {"backend": kind}),
            "embedder": model,
            "dimensions": dimensions,
            **recorded_redaction(settings),
        }
    is_installed = kind == "installed"
    return {
        **({"backend": "installed"} if is_installed else {}),
        "embedder": settings.embedding_model,
        "dimensions": build_embedder(settings).dimensions if is_installed else settings.embedding_dimensions,
        **Prefixes.of_settings(settings).as_config(),
        **({} if is_installed else recorded_bodies(settings)),
        **recorded_redaction(settings),
    }


def _build_vectors(recipe: Recipe, settings: Settings, name: str) -> BuiltStages:
    config = recipe.config
    if config.get("backend") == "none":
        return {VECTORS_STAGE: VectorsStage(None, max_characters=indexed_characters(config))}
    embedder = build_embedder(settings)
    needed = config.get("embedder", embedder.model), config.get("dimensions", embedder.dimensions)
    if needed != (embedder.model, embedder.dimensions):
        raise ConfigurationError(
            f"{name} was made with {needed[0]} ({needed[1]} dimensions), which is not"
            f" available here; the model here is {embedder.model} ({embedder.dimensions}). Configure that"
            " model for the workers (STRANDLINE_EMBEDDING_MODEL), or derive it again: strandline"
            f" replay --new --pipeline {VECTORS}."
        )
    return {
        VECTORS_STAGE: VectorsStage(embedder, Prefixes.of_config(config).passage, indexed_characters(config))
    }


def _record_overflow(settings: Settings) -> Config:
    """Nothing: a handler derives nothing, and a new one needs no earlier messages."""
    _handler(settings)
    return {}


def _build_overflow(_recipe: Recipe, settings: Settings, _name: str) -> BuiltStages:
    return {OVERFLOW_STAGE: OverflowStage(_handler(settings), settings.block_timeout_seconds)}


def _handler(settings: Settings) -> LoadedHandler:
    handler = load_handler(settings.on_overflow)
    if handler is None:
        raise ConfigurationError(
            "No overflow handler is set; name one in STRANDLINE_ON_OVERFLOW as package.module:callable."
        )
    return handler


def _with(settings: Settings, config: Config, **recorded: str) -> Settings:
    """The settings with recorded values; ``recorded`` maps their names to those in ``config``."""
    update = {name: config[key] for name, key in recorded.items() if key in config}
    return with_recorded_redaction(settings.model_copy(update=update), config)


_FACTS = PipelineDefinition(
    pipeline=PIPELINES[FACTS],
    version="2",
    record=_record_facts,
    restore=_restore_facts,
    build=_build_facts,
    tasks=("extract", "merge", "condense", "instruct"),
)
_SUMMARY = PipelineDefinition(
    pipeline=PIPELINES[SUMMARY],
    version="2",
    record=_record_summary,
    restore=_restore_summary,
    build=_build_summary,
    tasks=("summary",),
)
_VECTORS = PipelineDefinition(
    pipeline=PIPELINES[VECTORS],
    version="2",
    record=_record_vectors,
    restore=with_recorded_embedder,
    build=_build_vectors,
)
_OVERFLOW = PipelineDefinition(
    pipeline=pipeline_named(OVERFLOW),
    version="1",
    record=_record_overflow,
    restore=lambda settings, _config: settings,
    build=_build_overflow,
)
# Always run; the overflow handler runs where one is configured.
DEFINITIONS: Mapping[str, PipelineDefinition] = {d.pipeline.name: d for d in (_FACTS, _SUMMARY, _VECTORS)}
