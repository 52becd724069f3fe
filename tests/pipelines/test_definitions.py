"""Definitions: each built-in pipeline is complete, and made again from what its recipe records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.pipelines.engine.stage import OrderedStage
from strandline.pipelines.generations.definitions import DEFINITIONS, PipelineDefinition, recipe_for
from strandline.pipelines.generations.registry import Generation
from strandline.pipelines.generations.stages import build
from strandline.producers.blocks.base import BaseMemoryBlock
from strandline.producers.blocks.resolve import declare_blocks
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import PIPELINES, STAGES, pipeline_named, pipeline_of

LOCAL = {"text_backend": "local", "embedding_backend": "local", "max_facts": 7, "summary_max_tokens": 99}
MULTILINGUAL = LOCAL | {"embedding_backend": "local-multilingual"}
SERVER = {
    "openai_api_key": "k",
    "text_backend": "openai",
    "embedding_backend": "openai",
    "facts_model": "f",
    "summary_model": "s",
    "embedding_model": "e",
    "embedding_dimensions": 9,
    "embedding_query_prefix": "q: ",
    "embedding_passage_prefix": "p: ",
}

each_definition = pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=list(DEFINITIONS))


def settings(**changes: Any) -> Settings:
    return Settings(**{"openai_api_key": None, "openai_base_url": None} | changes)


def test_every_pipeline_has_a_definition_and_a_memory_block() -> None:
    assert DEFINITIONS.keys() == PIPELINES.keys()
    for name, definition in DEFINITIONS.items():
        assert definition.pipeline == PIPELINES[name]
        (block,) = declare_blocks([name])
        assert block.pipeline == name
        assert type(block) is not BaseMemoryBlock, "it would show every state in the same way"


@each_definition
def test_the_stages_are_those_that_every_room_knows(definition: PipelineDefinition) -> None:
    pipeline = definition.pipeline
    recipe = recipe_for(pipeline.name, settings(**LOCAL))
    stages = build(Generation(1, pipeline.name, "serving", recipe, is_filled=True), settings(**LOCAL))
    assert tuple(stages) == pipeline.stages
    assert [stage.name for stage in stages.values()] == list(pipeline.stages)
    assert {isinstance(stage, OrderedStage) for stage in stages.values()} == {pipeline.is_ordered}


@each_definition
@pytest.mark.parametrize(
    ("recorded", "of_worker"),
    [(LOCAL, SERVER), (SERVER, LOCAL), (MULTILINGUAL, LOCAL), (LOCAL, MULTILINGUAL)],
)
def test_a_recipe_restores_the_settings_that_it_records(
    definition: PipelineDefinition, recorded: dict[str, Any], of_worker: dict[str, Any]
) -> None:
    config = definition.record(settings(**recorded))
    stored = json.loads(json.dumps(config))
    assert definition.record(definition.restore(settings(**of_worker), stored)) == config


def test_the_pipeline_of_a_custom_block_folds_in_one_stage_of_its_name() -> None:
    diary = pipeline_named("diary")
    assert (diary.name, diary.stages, diary.is_ordered) == ("diary", ("diary",), True)
    assert pipeline_of("diary") == "diary"
    assert [pipeline_of(stage) for stage in STAGES] == ["facts", "facts", "summary", "vectors"]
