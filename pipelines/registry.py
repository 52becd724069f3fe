"""Which pipelines run, as data: registered by workers and commands, read by every flush."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.schemas.database import Database
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.lanes import FACTS, SUMMARY, VECTORS, entry_stage

logger = logging.getLogger("strandline.registry")

# Raise one when its pipeline's code comes to derive something else from the same messages.
PIPELINE_VERSIONS: Mapping[str, str] = {FACTS: "1", SUMMARY: "1", VECTORS: "1"}


@dataclass(frozen=True, slots=True)
class Generation:
    """The derivation of a pipeline that serves, and what it was made with."""

    generation_id: int
    pipeline: str
    version: str
    config: Mapping[str, Any]


def serving(database: Database) -> dict[str, Generation]:
    """The serving generations by pipeline."""
    rows = database.fetch("serving_generations", {}, repeatable=True)
    return {row[1]: Generation(row[0], row[1], row[2], json.loads(row[3])) for row in rows}


def register(database: Database, configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Generation]:
    """Make sure that each pipeline named has a generation that serves; one that exists stays as it is.

    ``configs`` holds, per pipeline, what its first generation is made with (the embedder, for vectors).
    """
    for pipeline, config in configs.items():
        database.fetch(
            "register_generation",
            {
                "pipeline": pipeline,
                "version": PIPELINE_VERSIONS.get(pipeline, "1"),
                "entry_stage": entry_stage(pipeline),
                "config": json.dumps(config),
            },
        )
    return serving(database)


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
