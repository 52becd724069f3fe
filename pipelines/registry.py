"""Which pipelines run, as data: registered by workers and commands, read by every flush."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.pipelines.custom_block import BlockDefinition
from strandline.schemas.database import Database
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.lanes import FACTS, SUMMARY, VECTORS, Scope, entry_stage

logger = logging.getLogger("strandline.registry")

# Raise one when its pipeline's code comes to derive something else from the same messages.
PIPELINE_VERSIONS: Mapping[str, str] = {FACTS: "1", SUMMARY: "1", VECTORS: "1"}


@dataclass(frozen=True, slots=True)
class Generation:
    """The derivation of a pipeline that serves, and what it was made with."""

    generation_id: int
    pipeline: str
    version: str
    entry_scope: Scope
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Registration:
    """What a pipeline's first generation is made with.

    Attributes:
        entry_scope: whose lane its flush events go to, the session's or the owner's.
        config: what the work depends on (the embedder, for vectors).
    """

    version: str = "1"
    entry_scope: Scope = "session"
    config: Mapping[str, Any] = field(default_factory=dict)


def serving(database: Database) -> dict[str, Generation]:
    """The serving generations by pipeline."""
    rows = database.fetch("serving_generations", {}, repeatable=True)
    return {
        pipeline: Generation(generation_id, pipeline, version, entry_scope, json.loads(config))
        for generation_id, pipeline, version, entry_scope, config in rows
    }


def register(database: Database, wanted: Mapping[str, Registration]) -> dict[str, Generation]:
    """Make sure that each pipeline named has a generation that serves; one that exists stays as it is."""
    for pipeline, registration in wanted.items():
        database.fetch(
            "register_generation",
            {
                "pipeline": pipeline,
                "version": registration.version,
                "entry_stage": entry_stage(pipeline),
                "entry_scope": registration.entry_scope,
                "config": json.dumps(dict(registration.config)),
            },
        )
    return serving(database)


def builtin_registration(pipeline: str, config: Mapping[str, Any] | None = None) -> Registration:
    """The registration of a pipeline of Strandline's own."""
    return Registration(PIPELINE_VERSIONS[pipeline], config=config or {})


def block_registration(block: BlockDefinition) -> Registration:
    """The registration of a custom block."""
    return Registration(block.version, block.scope)


def check_block(generation: Generation, block: BlockDefinition) -> None:
    """Refuse to fold a custom block on states that another version of it has made.

    Raises:
        ConfigurationError: naming both versions, or both scopes, and what to do.
    """
    serves, here = (generation.version, generation.entry_scope), (block.version, block.scope)
    if serves != here:
        raise ConfigurationError(
            f"The memory block {block.name!r} was registered in this database as version {serves[0]!r} with"
            f" scope {serves[1]!r}; the code here is version {here[0]!r} with scope {here[1]!r}. A state that"
            " one version has folded is not handed to another. Run the former version, or give the new one"
            " a name of its own."
        )


def embedder_config(model: str, dimensions: int) -> dict[str, Any]:
    """What a vectors generation records: vectors of two embedders cannot be compared."""
    return {"embedder": model, "dimensions": dimensions}


def check_embedder(generation: Generation, model: str, dimensions: int) -> None:
    """Refuse to add vectors of one embedder to a generation made with another.

    Raises:
        ConfigurationError: naming both, and the setting that brings the former back.
    """
    made_with = generation.config
    if made_with != embedder_config(model, dimensions):
        raise ConfigurationError(
            f"The vectors in this database were made with {made_with.get('embedder')}"
            f" ({made_with.get('dimensions')} dimensions); the settings now name {model} ({dimensions})."
            " Vectors of two models cannot be compared. Set STRANDLINE_EMBEDDING_BACKEND and"
            " STRANDLINE_EMBEDDING_MODEL to what they were, or use another database or"
            " STRANDLINE_DATABASE_SCHEMA."
        )
