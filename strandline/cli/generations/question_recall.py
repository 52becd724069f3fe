"""Recall on custom questions: how many find their expected text in one generation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.pipelines.generations.registry import Generation, serving_generations
from strandline.pipelines.models.contract import Embedder
from strandline.pipelines.models.factory import build_query_embedder, with_recorded_embedder
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.pipelines.vectors.stage import vector_text
from strandline.producers.search.hits import Hit
from strandline.producers.search.ranking import SearchQuery, Target, Vectors, rank_hits
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_session
from strandline.schemas.values.lanes import FACTS, VECTORS

LOOKED_AT = 10
MAX_QUESTIONS = 10_000


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its user or session, and a text that one of the hits must contain."""

    question: str
    expect: str
    user: str | None = None
    session: str | None = None
    namespace: str = DEFAULT_NAMESPACE


def read_questions(path: Path) -> list[Question]:
    """Questions from a file with a JSON object a line.

    Raises:
        ConfigurationError: a line is not a question; the error names it.
    """
    questions = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            question = Question(**json.loads(line))
        except (ValueError, TypeError):
            question = None
        if question is None or not (question.user or question.session) or number > MAX_QUESTIONS:
            raise ConfigurationError(
                f"{path}, line {number}: write a JSON object with question, expect, and user or session"
                f" (and namespace), on at most {MAX_QUESTIONS:,} lines."
            )
        questions.append(question)
    return questions


def recall(
    database: Database, generation: Generation, questions: Sequence[Question], settings: Settings
) -> float:
    """The share of questions for which one of the first ten hits holds what is expected.

    Facts are looked for with the vectors that serve.

    Raises:
        ConfigurationError: vectors cannot be embedded here as they were made.
    """
    of_vectors = generation if generation.pipeline == VECTORS else serving_generations(database)[VECTORS]
    embedder = build_query_embedder(with_recorded_embedder(settings, of_vectors.recipe.config))
    outcomes = [_is_found(database, generation, of_vectors, embedder, question) for question in questions]
    return round(sum(outcomes) / max(1, len(outcomes)), 3)


def _is_found(
    database: Database, generation: Generation, of_vectors: Generation, embedder: Embedder, asked: Question
) -> bool:
    identity = identify_session(asked.namespace, asked.session or asked.user or "", asked.user)
    (vector,) = embedder.embed([asked.question]).vectors
    query = SearchQuery(asked.question, query_lexemes(asked.question), vector_text(vector), None)
    facts: dict[str, Any] = {"kinds": ("message",)}
    if generation.pipeline == FACTS:
        facts = {"kinds": ("fact",), "facts_generation_id": generation.generation_id}
    vectors = Vectors(of_vectors.generation_id, of_vectors.recipe.config)
    target = Target(identity, "owner", shared_key=None, **facts)
    hits = database.run(rank_hits(query, vectors, target, limit=LOOKED_AT, similarity_cutoff=0.0))
    return any(asked.expect.casefold() in text.casefold() for hit in hits for text in _texts(hit))


def _texts(hit: Hit) -> list[str]:
    return [hit.fact.text] if hit.fact is not None else [message.text for message in hit.messages]
