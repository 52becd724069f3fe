"""Searching facts: by their words, and by the meaning of the conversation that they were taken from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from strandline.producers.facts.listing import MAX_LIMIT, Fact, FactFilter, PageRequest, list_facts
from strandline.producers.search.hits import Hit, HitKind
from strandline.producers.search.ranking import (
    MAX_QUERY_CHARACTERS,
    EmbedQuery,
    facts_generation,
    prepare_query,
    ranked_facts,
    serving_vectors,
)
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.identity import Owner
from strandline.schemas.values.stored_text import check_text


@dataclass(frozen=True, slots=True)
class FoundFact:
    """A fact that matches a query.

    Attributes:
        fact: with its provenance.
        score: how well it matches, above 0, at most about 1; comparable only within one search.
        similarity: the cosine similarity of the query to the nearest message that it comes from; None if only
            words were compared, because no embedding model is available for the query, or it failed.
    """

    kind: ClassVar[HitKind] = "fact"

    fact: Fact
    score: float
    similarity: float | None = None

    @property
    def text(self) -> str:
        return self.fact.text


def search_facts(
    owner: Owner, query: str, limit: int, filters: FactFilter, embed_query: EmbedQuery
) -> Operation[list[FoundFact]]:
    """The live facts that match a query best, best first, as ``memory.search`` ranks an owner's facts.

    The query is compared with the facts' words, and with the meaning of the messages that they come from if
    these are searchable; without an embedder, or if it fails, only with the words.
    """
    text = checked_query(query)
    generation_id = yield from facts_generation(("fact",), owner.shard_key)
    if not text or not limit or generation_id is None:
        return []
    vectors = yield from serving_vectors(owner.shard_key)
    prepared = yield from prepare_query(text, vectors, embed_query, with_aim=False)
    if prepared.is_empty:
        return []
    hits = yield from ranked_facts(prepared, vectors, owner.shard_key, generation_id, filters, limit=limit)
    facts = yield from facts_of(owner, hits)
    return [
        FoundFact(fact, hit.score, None if prepared.vector is None else hit.similarity)
        for hit in hits
        if hit.fact is not None and (fact := facts.get(hit.fact.fact_id)) is not None
    ]


def search_end(
    owner: Owner, query: str, end: PageRequest, filters: FactFilter, embed_query: EmbedQuery
) -> Operation[list[FoundFact]]:
    """Of the facts that match, those at one end of the order in which they were said, in that order."""
    if not end.limit:
        return []
    matches = yield from search_facts(owner, query, MAX_LIMIT, filters, embed_query)
    ordered = sorted(matches, key=lambda match: (match.fact.said_at, match.fact.fact_id))
    return ordered[-end.limit :] if end.is_turned else ordered[: end.limit]


def facts_of(owner: Owner, hits: Sequence[Hit]) -> Operation[dict[UUID, Fact]]:
    """The facts among the hits, by id, with their provenance: the best, up to a full page."""
    ids = [hit.fact.fact_id for hit in hits if hit.fact is not None]
    if not ids:
        return {}
    page = yield from list_facts(owner, PageRequest(len(ids), sort="given"), FactFilter(), ids)
    return {fact.fact_id: fact for fact in page}


def checked_query(query: object) -> str:
    """The used end of a query; raises InvalidMessageError if it is not text."""
    if not isinstance(query, str):
        raise InvalidMessageError("query", f"must be text, not {type(query).__name__}")
    check_text("query", query)
    return query[-MAX_QUERY_CHARACTERS:].strip()
