"""Recipes: everything that a derivation depends on, as it is recorded with its generation.

A recipe is made from the settings once, when a generation is begun; from then on only the generation's row
counts, in every worker, whatever the worker's own settings say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.models.contract import TaskName
from strandline.pipelines.models.local.text_model import EMBEDDER, EMBEDDER_DIMENSIONS
from strandline.pipelines.models.local.text_model import MODEL as LOCAL_MODEL
from strandline.pipelines.models.prompts.overrides import prompt_texts
from strandline.pipelines.models.prompts.render import hash_of
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS, Scope

# Raise one when its pipeline's code comes to derive something else from the same messages.
PIPELINE_VERSIONS: Mapping[str, str] = {FACTS: "1", SUMMARY: "1", VECTORS: "1"}

_PROMPTS: Mapping[str, tuple[TaskName, ...]] = {
    FACTS: ("extract", "merge", "condense"),
    SUMMARY: ("summary",),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a generation depends on.

    Attributes:
        version: the version of the pipeline's code, or of the custom block.
        entry_scope: the lane that its flush events go to: the session's or the owner's.
        config: models, limits, and the hash of each prompt.
        prompts: the text of each prompt; empty if no model is called.
    """

    version: str = "1"
    entry_scope: Scope = "session"
    config: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)


def recipe_for(pipeline: str, settings: Settings) -> Recipe:
    """The recipe that these settings ask for.

    Raises:
        ConfigurationError: there is no such pipeline here, or a prompt of STRANDLINE_PROMPTS_DIR cannot be
            used.
    """
    if pipeline in (FACTS, SUMMARY):
        return _text_recipe(pipeline, settings)
    if pipeline == VECTORS:
        return _vectors_recipe(settings)
    blocks = load_blocks(settings.blocks)
    if pipeline not in blocks:
        known = ", ".join((FACTS, SUMMARY, VECTORS, *blocks))
        raise ConfigurationError(
            f"There is no pipeline {quote(pipeline)} here; the pipelines are {known}. Custom blocks are"
            " named by STRANDLINE_BLOCKS."
        )
    return Recipe(blocks[pipeline].version, blocks[pipeline].scope)


def _text_recipe(pipeline: str, settings: Settings) -> Recipe:
    config: dict[str, Any] = {"backend": settings.text_model_kind}
    if pipeline == FACTS:
        config |= {"model": settings.facts_model, "max_facts": settings.max_facts}
    else:
        config |= {"model": settings.summary_model, "max_tokens": settings.summary_max_tokens}
    if settings.text_model_kind == "local":
        return Recipe(PIPELINE_VERSIONS[pipeline], config=config | {"model": LOCAL_MODEL})
    texts = prompt_texts(settings.prompts_dir)
    names = _PROMPTS[pipeline]
    prompts: dict[str, str] = {name: texts[name] for name in names}
    hashes = {name: hash_of(name, texts[name]) for name in names}
    return Recipe(PIPELINE_VERSIONS[pipeline], "session", config | {"prompt_hashes": hashes}, prompts)


def _vectors_recipe(settings: Settings) -> Recipe:
    made_with: dict[str, Any] = {"embedder": EMBEDDER, "dimensions": EMBEDDER_DIMENSIONS}
    if settings.embedder_kind == "openai":
        made_with = {"embedder": settings.embedding_model, "dimensions": settings.embedding_dimensions}
    return Recipe(PIPELINE_VERSIONS[VECTORS], config=made_with)


def differences(old: Recipe, new: Recipe) -> Iterator[str]:
    """The differences of two recipes, each as ``what: old -> new``; without the texts of prompts."""
    if old.version != new.version:
        yield f"version: {old.version} -> {new.version}"
    if old.entry_scope != new.entry_scope:
        yield f"scope: {old.entry_scope} -> {new.entry_scope}"
    before, after = dict(_points(old.config)), dict(_points(new.config))
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name}: {before.get(name, 'none')} -> {after.get(name, 'none')}"


def _points(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if name == "prompt_hashes":
            yield from ((f"prompt {task}", digest) for task, digest in value.items())
        else:
            yield name.replace("_", " "), value
