"""Searching facts: by their words, and by the meaning of the conversation that they were taken from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from strandline.pipelines.text.lexemes import query_lexemes
from strandline.producers.facts.listing import Fact, FactFilter, PageRequest, list_facts
from strandline.producers.search.hits import HitKind
from strandline.schemas.errors import InvalidMessageError, StrandlineError
from strandline.schemas.postgres.operations import Fetch, Operation, Row, Run
from strandline.schemas.values.identity import Owner
from strandline.schemas.values.lanes import VECTORS
from strandline.schemas.values.stored_text import check_text

EmbedQuery = Callable[[str, Mapping[str, Any]], str | None]

MAX_QUERY_CHARACTERS = 8_000
# Words and meaning count alike.
MEANING_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class FoundFact:
    """A fact that fits a query.

    Attributes:
        fact: with its provenance.
        score: how well it fits, above 0, at most about 1; to be compared within one search only.
        similarity: the cosine similarity of the query to the nearest message that it comes from, where
            ``memory.search`` found it by that; else None.
    """

    kind: ClassVar[HitKind] = "fact"

    fact: Fact
    score: float
    similarity: float | None = None

    @property
    def text(self) -> str:
        return self.fact.text


def search_facts(
    owner: Owner, query: str, limit: int, wanted: FactFilter, embed_query: EmbedQuery
) -> Operation[list[FoundFact]]:
    """The live facts that fit a query best, best first.

    Compared are the facts' words, and the meaning of the conversation they were taken from where that is
    searchable; without an embedder, or where it fails, the words alone.
    """
    text = _checked_query(query)
    if not text or not limit:
        return []
    vectors = yield from _serving_vectors(owner.shard_key)
    vector: str | None = None
    if vectors is not None:
        vector = yield Run(partial(_embedded, text, vectors[1], embed_query))
    rows: list[Row] = yield Fetch(
        "search_facts",
        wanted.params
        | {
            "shard_key": owner.shard_key,
            "lexemes": query_lexemes(text),
            "embedding": vector,
            "vectors_generation": None if vectors is None else vectors[0],
            "vector_weight": 0.0 if vector is None else MEANING_WEIGHT,
            "limit": limit,
        },
    )
    scores = {fact_id: float(score) for fact_id, score in rows}
    page = yield from list_facts(owner, PageRequest(max(1, len(scores))), FactFilter(), list(scores))
    return sorted((FoundFact(fact, scores[fact.fact_id]) for fact in page), key=lambda found: -found.score)


def _serving_vectors(shard_key: UUID) -> Operation[tuple[int, Mapping[str, Any]] | None]:
    rows: list[Row] = yield Fetch("serving_generation", {"shard_key": shard_key, "pipeline": VECTORS})
    return (rows[0][0], json.loads(rows[0][1])) if rows else None


def _embedded(text: str, config: Mapping[str, Any], embed_query: EmbedQuery) -> str | None:
    try:
        return embed_query(text, config)
    except StrandlineError:
        return None


def _checked_query(query: object) -> str:
    if not isinstance(query, str):
        raise InvalidMessageError("query", f"must be text, not {type(query).__name__}")
    check_text("query", query)
    return query[-MAX_QUERY_CHARACTERS:].strip()
