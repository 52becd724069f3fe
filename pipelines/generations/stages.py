"""Builds stages from the generation's row, never from a worker's settings.

So every worker derives the same in the same generation, and changed settings need a new generation. Of the
settings, only the way to reach a model is used here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.custom.stage import CustomStage
from strandline.pipelines.engine.stage import Stage
from strandline.pipelines.generations.definitions import definition_of
from strandline.pipelines.generations.registry import Generation, find, serving_generations
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import pipeline_of

logger = logging.getLogger("strandline.generations")


class GenerationStages(Mapping[str, Stage[Any, Any]]):
    """The stages of every generation that this process can serve; safe to share between threads.

    As a mapping it holds, by name, the stages of the generations that serve.
    """

    def __init__(self, database: Fetcher, settings: Settings, names: Sequence[str]) -> None:
        self._database = database
        self._settings = settings
        self._names = tuple(names)
        self._lock = threading.Lock()
        self._built: dict[int, Mapping[str, Stage[Any, Any]]] = {}

    def of(self, generation_id: int, stage: str) -> Stage[Any, Any] | None:
        """The stage as the generation was made; None, and a line in the log, if this process cannot serve it.

        Raises:
            DatabaseUnavailableError: the generation's row cannot be read.
        """
        if stage not in self._names:
            return None
        with self._lock:
            if generation_id not in self._built:
                generation = find(self._database, generation_id)
                if generation is None:
                    return None
                self._built[generation_id] = self._build(generation)
            return self._built[generation_id].get(stage)

    def unbuildable(self) -> list[int]:
        with self._lock:
            return [generation_id for generation_id, built in self._built.items() if not built]

    def __getitem__(self, name: str) -> Stage[Any, Any]:
        generation = serving_generations(self._database).get(pipeline_of(name))
        stage = None if generation is None else self.of(generation.generation_id, name)
        if stage is None:
            raise KeyError(name)
        return stage

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _build(self, generation: Generation) -> Mapping[str, Stage[Any, Any]]:
        try:
            return build(generation, self._settings)
        except ConfigurationError as error:
            logger.error(
                "generation cannot be served here",
                extra={
                    "action": "generation_unbuildable",
                    "generation": generation.generation_id,
                    "pipeline": generation.pipeline,
                    "reason": str(error),
                },
            )
            return {}


def build(generation: Generation, settings: Settings) -> dict[str, Stage[Any, Any]]:
    """The stages of one generation.

    Raises:
        ConfigurationError: this process cannot serve it: its code is of another version, its model cannot be
            reached from here, or its block is not loaded.
    """
    definition = definition_of(generation.pipeline)
    if definition is None:
        return _build_block(generation, settings)
    if generation.recipe.version != definition.version:
        raise ConfigurationError(
            f"{_name(generation)} was made by version {generation.recipe.version} of the pipeline; this"
            f" release is at version {definition.version}. Keep a worker of the earlier release, or derive"
            f" it again: strandline replay --new --pipeline {generation.pipeline}."
        )
    restored = definition.restore(settings, generation.recipe.config)
    return definition.build(generation.recipe, restored, _name(generation))


def _build_block(generation: Generation, settings: Settings) -> dict[str, Stage[Any, Any]]:
    block = load_blocks(settings.blocks).get(generation.pipeline)
    needed = generation.recipe.version, generation.recipe.entry_scope
    if block is None or needed != (block.version, block.scope):
        here = "is not loaded" if block is None else f"is version {block.version!r}, scope {block.scope!r}"
        raise ConfigurationError(
            f"{_name(generation)} was made by version {needed[0]!r} of the block, scope {needed[1]!r};"
            f" the block {here} here. Keep a worker with the earlier code until it is derived again:"
            f" strandline replay --new --pipeline {generation.pipeline}."
        )
    return {block.name: CustomStage(block, settings.max_state_bytes, settings.block_timeout_seconds)}


def _name(generation: Generation) -> str:
    return f"Generation {generation.generation_id} of {generation.pipeline}"
