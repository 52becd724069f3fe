"""Pipelines, stages, lanes and queues: the names by which work is addressed.

A pipeline feeds a memory block (facts, summary, vectors, a custom one). It runs in stages, each with its own
queue; only facts have two. A lane holds the work of one stage in one generation for one scope, which is done
in order; a hint names a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict
from uuid import UUID

FACTS = "facts"
SUMMARY = "summary"
VECTORS = "vectors"
OVERFLOW = "overflow"

EXTRACT_STAGE = "extract"
MERGE_STAGE = "merge"
SUMMARY_STAGE = "summary"
VECTORS_STAGE = "vectors"
OVERFLOW_STAGE = "overflow"

Scope = Literal["session", "owner"]

# Facts; chunks, the pieces of messages that are searched; the states that lanes are folded into; or nothing,
# since what comes of the events lies elsewhere.
Derived = Literal["facts", "chunks", "states", "nothing"]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The shared view of a pipeline; ``stages`` are in the order in which an event passes them."""

    name: str
    stages: tuple[str, ...]
    derives: Derived

    @property
    def is_ordered(self) -> bool:
        """Whether it folds, each step on the state before it; else it is commutative: events stand alone."""
        return self.derives == "states"

    @property
    def entry_stage(self) -> str:
        """The stage that flush events enter first."""
        return self.stages[0]

    @property
    def last_stage(self) -> str:
        """The stage after which an event is covered."""
        return self.stages[-1]


# Strandline's own; their code is defined in ``pipelines.generations.definitions``.
_FACTS = Pipeline(FACTS, (EXTRACT_STAGE, MERGE_STAGE), "facts")
_SUMMARY = Pipeline(SUMMARY, (SUMMARY_STAGE,), "states")
_VECTORS = Pipeline(VECTORS, (VECTORS_STAGE,), "chunks")
PIPELINES: Mapping[str, Pipeline] = {p.name: p for p in (_FACTS, _SUMMARY, _VECTORS)}
# Served where a handler is configured, and fed by sessions that ask for it: no part of what always runs.
_OVERFLOW = Pipeline(OVERFLOW, (OVERFLOW_STAGE,), "nothing")
STAGES: tuple[str, ...] = tuple(stage for pipeline in PIPELINES.values() for stage in pipeline.stages)

_QUEUE_PREFIX = "strandline."


class DerivationKeys(TypedDict):
    """The keys of one owner's rows in one generation, as parameters of statements."""

    shard_key: UUID
    generation_id: int


class StateKeys(DerivationKeys):
    """The keys of an ordered lane's states, as parameters of statements."""

    scope_key: UUID


class LaneKeys(StateKeys):
    """A lane's primary key, as parameters of statements."""

    stage: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane; ``scope_key`` is a session's key, or the owner's ``shard_key`` for the merge stage."""

    shard_key: UUID
    scope_key: UUID
    generation_id: int
    stage: str

    @classmethod
    def of_owner(cls, shard_key: UUID, generation_id: int, stage: str) -> Lane:
        """The lane of a stage that takes an owner's events in order; the owner is its scope."""
        return cls(shard_key, shard_key, generation_id, stage)

    @property
    def keys(self) -> LaneKeys:
        return {
            "shard_key": self.shard_key,
            "scope_key": self.scope_key,
            "generation_id": self.generation_id,
            "stage": self.stage,
        }

    @property
    def state_keys(self) -> StateKeys:
        return {
            "shard_key": self.shard_key,
            "scope_key": self.scope_key,
            "generation_id": self.generation_id,
        }

    @property
    def derivation_keys(self) -> DerivationKeys:
        return {"shard_key": self.shard_key, "generation_id": self.generation_id}

    def to_args(self) -> tuple[str, str, int, str]:
        """The lane as a doorbell message carries it: keys only, JSON-ready."""
        return str(self.shard_key), str(self.scope_key), self.generation_id, self.stage


# Tells whoever serves these lanes that they have work; returns at once and never fails.
Ring = Callable[[Iterable[Lane]], None]


def pipeline_named(name: str) -> Pipeline:
    """A pipeline of Strandline's own, or a custom block's: that one folds, in one stage with its name."""
    if name == OVERFLOW:
        return _OVERFLOW
    return PIPELINES.get(name) or Pipeline(name, (name,), "states")


def pipeline_of(stage: str) -> str:
    """The name of the pipeline that a stage belongs to."""
    return next((name for name, pipeline in PIPELINES.items() if stage in pipeline.stages), stage)


def queue_name(stage: str) -> str:
    """The broker queue of a stage; its Celery task has the same name."""
    return _QUEUE_PREFIX + stage
