"""A user's own questions, and the hits of one generation for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Self
from uuid import UUID

from pydantic import Field, PositiveInt, model_validator

from strandline.cli.evaluation import Line, Text, read_lines
from strandline.pipelines.generations.registry import Generation, serving_generations
from strandline.pipelines.inspect.directory import check_known, find_session
from strandline.pipelines.models.contract import Embedder
from strandline.pipelines.models.factory import build_query_embedder, with_recorded_embedder
from strandline.pipelines.models.prefixes import Prefixes
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.pipelines.vectors.stage import vector_text
from strandline.producers.search.hits import Hit
from strandline.producers.search.ranking import SearchQuery, Target, Vectors, rank_hits
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.replay import CitedMessages
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, SessionIdentity, identify_session
from strandline.schemas.values.lanes import FACTS, VECTORS

LOOKED_AT = 10


class Question(Line):
    """A question, and whose memory is searched.

    Attributes:
        expect: a text that one of the hits must contain; None: no expectation.
        evidence: the ``seq`` of messages in ``session`` that hold the answer.
    """

    expect: Text | None = None
    user: Text | None = None
    session: Text | None = None
    namespace: Text = DEFAULT_NAMESPACE
    evidence: list[PositiveInt] = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_of_somebody(self) -> Self:
        if not (self.session or (self.user and not self.evidence)):
            raise ValueError("session, or user without evidence, must say whose memory is searched")
        return self


@dataclass(frozen=True, slots=True)
class QuestionFinds:
    """One generation's hits for a question.

    Attributes:
        texts: of the first ten hits, best first.
        is_found: whether one of them contains the expected text; None without one.
        coverage: the share of the evidence that the hits are, or come from; None without evidence.
    """

    texts: tuple[str, ...]
    is_found: bool | None
    coverage: float | None


def read_questions(path: Path) -> list[Question]:
    """Questions from a file with a JSON object a line.

    Raises:
        ConfigurationError: a line is not a question; the error names it.
    """
    questions = []
    for _, question in read_lines(path, Question):
        if isinstance(question, list):
            raise ConfigurationError(f"{path}, {'; '.join(map(str, question))}.")
        questions.append(question)
    return questions


def find_answers(
    database: Database, generation: Generation, questions: Sequence[Question], settings: Settings
) -> list[QuestionFinds]:
    """The first ten hits for each question.

    Facts are searched with the serving vectors.

    Raises:
        ConfigurationError: the vectors' embedder cannot be used here.
        NotFoundError: there is no such session or user.
    """
    of_vectors = generation if generation.pipeline == VECTORS else serving_generations(database)[VECTORS]
    embedder = build_query_embedder(with_recorded_embedder(settings, of_vectors.recipe.config))
    return [_find(database, generation, of_vectors, embedder, question) for question in questions]


def recall(finds: Iterable[QuestionFinds]) -> float | None:
    """The share of the questions with something expected that find it; None if nothing is expected."""
    return _mean(float(find.is_found) for find in finds if find.is_found is not None)


def coverage(finds: Iterable[QuestionFinds]) -> float | None:
    """The average share of their evidence that the questions find; None if none of them has any."""
    return _mean(find.coverage for find in finds if find.coverage is not None)


def _mean(shares: Iterable[float]) -> float | None:
    values = list(shares)
    return round(fmean(values), 3) if values else None


def _find(
    database: Database, generation: Generation, of_vectors: Generation, embedder: Embedder, asked: Question
) -> QuestionFinds:
    identity = _identity_of(database, asked)
    prefix = Prefixes.of_config(of_vectors.recipe.config).query
    (vector,) = embedder.embed([prefix + asked.question]).vectors
    query = SearchQuery(
        asked.question, query_lexemes(asked.question), vector_text(vector) if vector else None, None
    )
    facts: dict[str, Any] = {"kinds": ("message",)}
    if generation.pipeline == FACTS:
        facts = {"kinds": ("fact",), "facts_generation_id": generation.generation_id}
    vectors = Vectors(of_vectors.generation_id, of_vectors.recipe.config)
    target = Target(identity, "owner", shared_key=None, **facts)
    hits = database.run(rank_hits(query, vectors, target, limit=LOOKED_AT, similarity_cutoff=0.0))
    texts = tuple(text for hit in hits for text in _texts(hit))
    expected = asked.expect
    return QuestionFinds(
        texts=texts,
        is_found=None if expected is None else any(expected.casefold() in text.casefold() for text in texts),
        coverage=_coverage(database, generation, identity, asked, hits) if asked.evidence else None,
    )


def _identity_of(database: Database, asked: Question) -> SessionIdentity:
    if asked.session is not None:
        return find_session(database, asked.session, namespace=asked.namespace, user_id=asked.user)
    check_known(database, namespace=asked.namespace, user_id=asked.user)
    return identify_session(asked.namespace, asked.user or "", asked.user)


def _coverage(
    database: Database,
    generation: Generation,
    identity: SessionIdentity,
    asked: Question,
    hits: Sequence[Hit],
) -> float:
    places = {(hit.session_key, message.seq) for hit in hits for message in hit.messages}
    fact_ids: list[UUID] = [hit.fact.fact_id for hit in hits if hit.fact is not None]
    if fact_ids:
        rows = database.fetch(
            CitedMessages(
                shard_key=identity.shard_key, generation_id=generation.generation_id, fact_ids=fact_ids
            )
        )
        places |= {(row.session_key, row.seq) for row in rows}
    seqs = set(asked.evidence)
    return len({seq for key, seq in places if key == identity.session_key} & seqs) / len(seqs)


def _texts(hit: Hit) -> list[str]:
    return [hit.fact.text] if hit.fact is not None else [message.text for message in hit.messages]
