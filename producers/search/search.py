"""Searching outside of a prompt: ranked messages, and facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar
from uuid import UUID

from strandline.producers.arguments import check_count, check_flag
from strandline.producers.facts.listing import Fact
from strandline.producers.search.facts import FoundFact, facts_of
from strandline.producers.search.hits import (
    MESSAGES_ALONE,
    Hit,
    HitKind,
    SearchScope,
    check_filtered,
    check_scope,
    checked_kinds,
)
from strandline.producers.search.index.index_cache import IndexCache
from strandline.producers.search.message_filter import ALL_MESSAGES, MessageFilter
from strandline.producers.search.ranking import (
    ALL_VISIBLE,
    MAX_QUERY_CHARACTERS,
    NOTHING_VISIBLE,
    EmbedQuery,
    SearchQuery,
    Target,
    Vectors,
    facts_generation,
    prepare_query,
    rank_hits,
    serving_vectors,
)
from strandline.producers.search.unindexed import with_unsearched
from strandline.producers.sessions import history_page
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.search import SessionNames
from strandline.schemas.queries.conversation.sharing import SharedSessionNames
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message
from strandline.schemas.values.same_named import make_from
from strandline.schemas.values.stored_text import check_text

MAX_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that a search found.

    Attributes:
        message: as it was put, with its ``seq``.
        session_id: the session that it was put to.
        score: how well it matches, 0 to 1; comparable only within one search.
        similarity: the cosine similarity to the query; None if only words were compared, because no embedding
            model is available for the query, it failed, or the message has no vector yet.
    """

    kind: ClassVar[HitKind] = "message"

    message: Message
    session_id: str
    score: float
    similarity: float | None

    @property
    def text(self) -> str:
        return self.message.shown_text


SearchResult = FoundMessage | FoundFact


class SearchResults(list[SearchResult]):
    """A search's hits, best first.

    Attributes:
        problem: why only words were compared; None if vectors were as well, or nothing was asked.
    """

    def __init__(self, results: Iterable[SearchResult] = (), problem: str | None = None) -> None:
        super().__init__(results)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search: its query, scope and limits, and vectors to use instead of the serving ones."""

    identity: SessionIdentity
    query: str
    limit: int
    scope: SearchScope
    embed_query: EmbedQuery | None
    kinds: tuple[HitKind, ...] = MESSAGES_ALONE
    exclude_current: bool = False
    shared_key: UUID | None = None
    include_window: bool = True
    indexes: IndexCache | None = None
    vectors: Vectors | None = None
    filters: MessageFilter = ALL_MESSAGES

    def __post_init__(self) -> None:
        if not isinstance(self.query, str):
            raise ConfigurationError(f"query is {quote(self.query)}; it must be text.")
        check_text("query", self.query)
        check_count("limit", self.limit, most=MAX_LIMIT)
        check_flag("include_window", self.include_window)
        check_scope(self.scope, checked_kinds(self.kinds), self.exclude_current)
        if not self.filters.is_open:
            check_filtered(self.scope, self.kinds)

    def target(self, facts_generation_id: int | None = None) -> Target:
        visible_from = ALL_VISIBLE if self.exclude_current else NOTHING_VISIBLE
        return make_from(Target, self, visible_from=visible_from, facts_generation_id=facts_generation_id)


def search_history(asked: SearchRequest) -> Operation[SearchResults]:
    """The messages and facts that match best, best first.

    Raises:
        ConfigurationError: the scope is shared, and the memory names none.
        OwnerError: the session belongs to another owner.
        StrandlineError: the database failed.
    """
    text = asked.query[-MAX_QUERY_CHARACTERS:].strip()
    shard_key = asked.target().shard_key
    if not text or not asked.limit:
        return SearchResults()
    vectors = yield from serving_vectors(shard_key)
    if vectors is not None and asked.vectors is not None:
        own = asked.vectors
        vectors = replace(vectors, generation_id=own.generation_id, config=own.config)
    query = yield from prepare_query(text, vectors, asked.embed_query)
    if query.is_empty:
        return SearchResults(problem=query.problem)
    target = asked.target((yield from facts_generation(asked.kinds, shard_key)))
    hits = yield from _ranked_hits(asked, query, vectors, target)
    if not hits:
        yield from history_page(asked.identity, 0, 1)  # raises if the session belongs to another owner
    names = yield from _session_names(target, hits)
    facts = yield from facts_of(asked.identity.owner, hits)
    has_vector = query.vector is not None
    results = (one for hit in hits for one in _as_result(hit, names, facts, asked.filters, has_vector))
    return SearchResults(results, query.problem)


def _ranked_hits(
    asked: SearchRequest, query: SearchQuery, vectors: Vectors | None, target: Target
) -> Operation[list[Hit]]:
    hits: list[Hit] = []
    if vectors is not None or target.facts_generation_id is not None:
        hits = yield from rank_hits(
            query,
            vectors,
            target,
            limit=asked.limit,
            similarity_cutoff=0.0,
            indexes=asked.indexes,
            standing=None if vectors is None else vectors.standing,
        )
    if not asked.include_window:
        return hits
    generation_id = None if vectors is None else vectors.generation_id
    return (yield from with_unsearched(hits, query, target, generation_id, asked.limit))


def search_messages(asked: SearchRequest) -> Operation[list[FoundMessage]]:
    """As ``search_history``, but only messages."""
    hits = yield from search_history(asked)
    return [hit for hit in hits if isinstance(hit, FoundMessage)]


def _session_names(target: Target, hits: Sequence[Hit]) -> Operation[dict[UUID, str]]:
    identity = target.identity
    keys = sorted({hit.session_key for hit in hits if hit.session_key is not None})
    if not keys or keys == [identity.session_key]:
        return {identity.session_key: identity.session_id}
    if target.scope == "shared":
        shared = yield from fetch(SharedSessionNames(shard_key=target.shard_key, session_keys=keys))
        return {row.session_key: row.session_id for row in shared}
    rows = yield from fetch(SessionNames(shard_key=target.shard_key, session_keys=keys))
    return {row.session_key: row.session_id for row in rows}


def _as_result(
    hit: Hit,
    names: dict[UUID, str],
    facts: dict[UUID, Fact],
    filters: MessageFilter,
    has_vector: bool,
) -> list[SearchResult]:
    similarity = hit.similarity if has_vector and hit.has_vector else None
    if hit.fact is not None:
        fact = facts.get(hit.fact.fact_id)
        return [] if fact is None else [FoundFact(fact, hit.score, similarity)]
    if hit.session_key not in names:
        return []
    session_id = names[hit.session_key]
    passing = filter(filters.passes, hit.messages)
    return [FoundMessage(message, session_id, hit.score, similarity) for message in passing]
