"""A search: its query with words and vector, the statement that ranks, and its rows as hits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Any, TypedDict
from uuid import UUID

from strandline.pipelines.text.aim import NO_AIM, Aim, aim_of
from strandline.pipelines.text.lexemes import words_of_query
from strandline.producers.facts.listing import FactFilter
from strandline.producers.search.hits import MESSAGES_ALONE, Hit, HitFact, HitKind, SearchScope
from strandline.producers.search.index.index_cache import Beginning, IndexCache
from strandline.producers.search.index.indexed_search import (
    PIECES_AT_ONCE,
    IndexedSearch,
    Recalled,
    Standing,
    add_part,
    extend_index,
    keep_empty,
    search_index,
)
from strandline.producers.search.index.scope_index import FIRST_KEY, IndexQuery, ScopeKey
from strandline.producers.search.message_filter import ALL_MESSAGES, MessageFilter
from strandline.schemas.display.local_time import today_in
from strandline.schemas.errors import ConfigurationError, StrandlineError
from strandline.schemas.postgres.operations import Operation, Run, fetch, find_owner_keys
from strandline.schemas.queries.conversation.read import ServingGeneration
from strandline.schemas.queries.conversation.search import FactsByWords, SearchChunks, SearchChunksRow
from strandline.schemas.queries.conversation.sharing import SearchSharedChunks, SearchSharedChunksRow
from strandline.schemas.sealed.values import query_words
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import FACTS, VECTORS
from strandline.schemas.values.message import Message, read_rows

RankedRow = SearchChunksRow | SearchSharedChunksRow

# The identity of a hit: its rows agree in it.
_place = attrgetter("score", "similarity", "session_key", "from_seq", "through_seq", "fact_id", "fact")


def read_hits(rows: Sequence[RankedRow]) -> list[Hit]:
    """The rows of the statement, best first, as pieces of conversation and facts."""
    messages = iter(read_rows([row for row in rows if row.fact_id is None]))
    return [_hit(list(group), messages) for _, group in groupby(rows, key=_place)]


def _hit(rows: Sequence[RankedRow], messages: Iterator[Message]) -> Hit:
    first = rows[0]
    if first.fact_id is not None:
        fact = _fact(first.fact_id, first.fact, first.created_at, first.sources)
        return Hit(first.score, None, (), first.similarity, fact)
    of_hit = list(islice(messages, len(rows)))
    bounds = first.from_seq, first.through_seq
    return _message_hit(first.score, first.similarity, first.session_key, of_hit, *bounds)


def _fact(fact_id: UUID, text: str, said_at: datetime, sources: str | None) -> HitFact:
    return HitFact.read(fact_id, text, said_at, json.loads(sources) if sources else ())


def _message_hit(
    score: float,
    similarity: float,
    session_key: UUID | None,
    messages: list[Message],
    from_seq: int,
    through_seq: int,
) -> Hit:
    if len(messages) == 1 and from_seq <= (messages[0].seq or 0) <= through_seq:
        return Hit(score, session_key, tuple(messages), similarity)
    exchange = _exchange(messages, from_seq, through_seq)
    seqs = {message.seq or 0 for message in exchange}
    beside = frozenset(seq for seq in seqs if not from_seq <= seq <= through_seq)
    return Hit(score, session_key, exchange, similarity, beside_seqs=beside)


def recalled_hits(recall: Recalled) -> list[Hit]:
    """The hits of an index; one whose message was deleted has none."""
    ranks, hits = recall.ranks, []
    for place, (key, number, score, similarity) in enumerate(
        zip(ranks.places, ranks.numbers, ranks.scores, ranks.similarities, strict=True)
    ):
        utterances = recall.messages.get(key)
        if utterances is None:
            continue
        session_key = ranks.sessions[number - 1]
        if len(utterances) == 1 and utterances[0].place == key:
            (only,) = utterances
            hits.append(Hit(score, session_key, (only.message,), similarity, utterance=only))
            continue
        bounds = ranks.from_seqs[place], ranks.through_seqs[place]
        messages = [one.message for one in utterances]
        hits.append(_message_hit(score, similarity, session_key, messages, *bounds))
    hits += [Hit(fact.score, None, (), fact.similarity, fact.fact) for fact in recall.facts]
    return hits


def _exchange(messages: Sequence[Message], from_seq: int, through_seq: int) -> tuple[Message, ...]:
    within = [message for message in messages if from_seq <= (message.seq or 0) <= through_seq]
    if not within:
        return ()
    before = [m for m in messages if (m.seq or 0) < from_seq and m.role != "system"]
    after = [m for m in messages if (m.seq or 0) > through_seq]
    return (*within, *after) if within[0].role == "user" else (*before, *within)


# Up to here nothing is left out as visible: no seq comes that far.
NOTHING_VISIBLE = 2**62
# From here on everything is.
ALL_VISIBLE = 0

ALL_FACTS = FactFilter()

# The generation of an index of no pieces, used to rank facts alone.
NO_VECTORS = 0


class _Compared(TypedDict):
    generation_id: int | None
    embedding: str | None
    lexemes: list[str]
    is_own: bool
    names: list[str]
    dates_from: list[date]
    dates_through: list[date]
    dates_fit: list[float]
    words: int


class _Part(TypedDict):
    part_of: UUID | None
    through_session: UUID
    through_seq: int
    through_piece: int
    pieces_since: int
    at_once: int


@dataclass(frozen=True, slots=True)
class Vectors:
    """The generation that serves searches, with the config it was made by.

    The config has ``embedder`` and ``dimensions``, and ``query_prefix`` if queries have one.

    Attributes:
        standing: of the owner, by the statement that found it.
        time_zone: in which a query asks for days; None: UTC.
    """

    generation_id: int
    config: Mapping[str, Any]
    standing: Standing | None = None
    time_zone: str | None = None


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A query in the form of the search.

    Attributes:
        problem: why it has no vector; None if it has one.
        words: the number of words that the lexemes come from; None: as many as lexemes.
    """

    text: str
    lexemes: list[str]
    vector: str | None
    problem: str | None
    aim: Aim = NO_AIM
    words: int | None = None

    @property
    def word_count(self) -> int:
        return len(self.lexemes) if self.words is None else self.words

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compare."""
        return self.vector is None and not self.lexemes


@dataclass(frozen=True, slots=True)
class Target:
    """The scope of a search, and the kinds of hits to search for.

    Attributes:
        shared_key: the key of the shared scope's rows, if there is a shared scope.
        visible_from: this session's messages from here on are not searched for.
        facts_generation_id: the generation whose facts are searched; None: facts are not searched.
        facts_shown: ids of facts that are not searched for.
        beside: how many messages before and after a hit are returned with it.
        filters: which messages are searched.
    """

    identity: SessionIdentity
    scope: SearchScope
    kinds: tuple[HitKind, ...]
    shared_key: UUID | None
    visible_from: int = NOTHING_VISIBLE
    facts_generation_id: int | None = None
    facts_shown: Sequence[str] = ()
    beside: int = 0
    filters: MessageFilter = ALL_MESSAGES

    @property
    def shard_key(self) -> UUID:
        """The key of the rows that are searched.

        Raises:
            ConfigurationError: the scope is shared, and the memory names none.
        """
        if self.scope != "shared":
            return self.identity.shard_key
        if self.shared_key is None:
            raise ConfigurationError(
                "scope='shared' searches a shared scope, and this Memory names none; give it shared_scope=.",
                for_clients="This session's policy names no shared scope to search.",
            )
        return self.shared_key


@dataclass(frozen=True, slots=True)
class FactsAlone:
    """That facts are searched for as well, by themselves: of a generation, so many."""

    generation_id: int
    limit: int


def rank_hits(
    query: SearchQuery,
    vectors: Vectors | None,
    target: Target,
    *,
    limit: int,
    similarity_cutoff: float,
    indexes: IndexCache | None = None,
    standing: Standing | None = None,
    facts: FactsAlone | None = None,
) -> Operation[list[Hit]]:
    """The best hits, best first; then separately searched facts, best first.

    At most one statement: none if the process keeps all of it.

    Args:
        limit: 0 for facts alone.
        indexes: the process's indexes; None if the search may see uncommitted pieces.
        standing: the owner's earlier read state; it goes with ``indexes``.

    Raises:
        ConfigurationError: the scope is shared, and the memory names none.
        StrandlineError: the statement failed.
    """
    # Without a vector no hit has a similarity.
    cutoff = 0.0 if query.vector is None else similarity_cutoff
    if target.scope == "shared":
        shared = SearchSharedChunks.of(
            target,
            **_comparison_params(query, vectors),
            session_key=target.identity.session_key,
            similarity_cutoff=cutoff,
            top_k=limit,
        )
        return read_hits((yield from fetch(shared)))
    search = partial(_search_database, query, vectors, target, limit, cutoff, facts)
    if not (indexes and standing and target.kinds == MESSAGES_ALONE and target.filters.is_open):
        hits, _ = yield from search()
        return hits
    keys = yield from find_owner_keys(target.shard_key)
    asked = _indexed_search(query, keys, target, vectors, limit, cutoff, facts)
    if (recall := (yield from search_index(indexes, standing, asked))) is not None:
        return recalled_hits(recall)
    scope = asked.kept_scope
    with indexes.next_part(scope, standing.pieces, is_small=standing.is_small) as begun:
        if begun and vectors is not None and begun.is_extensible:
            recall = yield from extend_index(indexes, standing, asked, begun)
            if recall is not None:
                return recalled_hits(recall)
            hits, _ = yield from search()
            return hits
        hits, part = yield from search(scope, begun)
        if begun and vectors is None:
            yield from keep_empty(indexes, scope, begun)
        elif begun and part is not None:
            yield from add_part(indexes, scope, begun, part)
    return hits


def _search_database(
    query: SearchQuery,
    vectors: Vectors | None,
    target: Target,
    limit: int,
    similarity_cutoff: float,
    facts: FactsAlone | None,
    part_of: ScopeKey | None = None,
    begun: Beginning | None = None,
) -> Operation[tuple[list[Hit], str | None]]:
    """The hits, and the next part of the index of ``part_of`` if it is ``begun``."""
    if vectors is None and facts is not None and not limit:
        derivation = target.shard_key, facts.generation_id
        hits = yield from _facts_by_words(query, *derivation, ALL_FACTS, limit=facts.limit)
        return hits, None
    statement = SearchChunks.of(
        target,
        **_comparison_params(query, vectors),
        **ALL_FACTS.params,
        **target.filters.params(target.identity.session_key),
        **_next_part(part_of, begun),
        session_key=target.identity.session_key,
        scope_key=target.identity.session_key if target.scope == "session" else None,
        similarity_cutoff=similarity_cutoff,
        top_k=limit,
        messages="message" in target.kinds,
        facts_shown=[UUID(fact_id) for fact_id in target.facts_shown],
        facts_alone_id=None if facts is None else facts.generation_id,
        top_facts=0 if facts is None else facts.limit,
    )
    rows = yield from fetch(statement)
    part = rows.pop().part if begun is not None else None
    return read_hits(rows), part


def _next_part(part_of: ScopeKey | None, begun: Beginning | None) -> _Part:
    through = FIRST_KEY if begun is None else begun.through
    return {
        "part_of": None if part_of is None else part_of.scope_key,
        "through_session": through.session_key,
        "through_seq": through.from_seq,
        "through_piece": through.piece,
        "pieces_since": 0 if begun is None else begun.pieces_since,
        "at_once": 0 if begun is None else PIECES_AT_ONCE,
    }


def _indexed_search(
    query: SearchQuery,
    keys: OwnerKeys | None,
    target: Target,
    vectors: Vectors | None,
    limit: int,
    similarity_cutoff: float,
    facts: FactsAlone | None,
) -> IndexedSearch:
    session_key = target.identity.session_key
    scope_key = session_key if target.scope == "session" else None
    compared = IndexQuery(
        vector=query.vector,
        lexemes=query_words(query.lexemes, keys),
        is_own=query.aim.is_own,
        names=query_words(query.aim.names, keys),
        days=[(days.first, days.last, days.fit) for days in query.aim.days],
        visible=(session_key, target.visible_from),
        similarity_cutoff=similarity_cutoff,
        limit=limit,
        scope_key=scope_key,
        words=query.word_count,
    )
    return IndexedSearch(
        scope=ScopeKey(target.shard_key, NO_VECTORS if vectors is None else vectors.generation_id, scope_key),
        query=compared,
        beside=target.beside,
        facts_generation_id=None if facts is None else facts.generation_id,
        top_facts=0 if facts is None else facts.limit,
    )


def ranked_facts(
    query: SearchQuery,
    vectors: Vectors | None,
    shard_key: UUID,
    facts_generation_id: int,
    filters: FactFilter,
    *,
    limit: int,
) -> Operation[list[Hit]]:
    """The best facts of an owner, best first.

    Raises:
        StrandlineError: the statement failed.
    """
    if vectors is None:
        return (yield from _facts_by_words(query, shard_key, facts_generation_id, filters, limit=limit))
    facts_alone = SearchChunks(
        **_comparison_params(query, vectors),
        **filters.params,
        **ALL_MESSAGES.params(shard_key),
        shard_key=shard_key,
        # Of no session in particular.
        session_key=shard_key,
        scope_key=None,
        similarity_cutoff=0.0,
        top_k=limit,
        visible_from=NOTHING_VISIBLE,
        messages=False,
        facts_generation_id=facts_generation_id,
        facts_shown=[],
        beside=0,
        facts_alone_id=None,
        top_facts=0,
        **_next_part(None, None),
    )
    return read_hits((yield from fetch(facts_alone)))


def _facts_by_words(
    query: SearchQuery, shard_key: UUID, facts_generation_id: int, filters: FactFilter, *, limit: int
) -> Operation[list[Hit]]:
    rows = yield from fetch(
        FactsByWords(
            shard_key=shard_key,
            facts_generation_id=facts_generation_id,
            lexemes=query.lexemes,
            top_facts=limit,
            **filters.params,
        )
    )
    # Decoded together, as the envelopes of messages are.
    sources = json.loads(f"[{','.join([row.sources or 'null' for row in rows])}]")
    return [
        Hit(row.score, None, (), fact=HitFact.read(row.fact_id, row.fact, row.said_at, places))
        for row, places in zip(rows, sources, strict=True)
    ]


def _comparison_params(query: SearchQuery, vectors: Vectors | None) -> _Compared:
    return {
        "generation_id": None if vectors is None else vectors.generation_id,
        "embedding": query.vector,
        "lexemes": query.lexemes,
        "is_own": query.aim.is_own,
        "names": list(query.aim.names),
        "dates_from": [days.first for days in query.aim.days],
        "dates_through": [days.last for days in query.aim.days],
        "dates_fit": [days.fit for days in query.aim.days],
        "words": query.word_count,
    }


def serving_vectors(shard_key: UUID) -> Operation[Vectors | None]:
    """The generation that searches of these rows read; None until a worker has registered one."""
    rows = yield from fetch(ServingGeneration(shard_key=shard_key, pipeline=VECTORS))
    if not rows:
        return None
    generation_id, config, pieces, time_zone = rows[0]
    return Vectors(generation_id, json.loads(config), Standing(pieces), time_zone)


def facts_generation(kinds: Sequence[HitKind], shard_key: UUID) -> Operation[int | None]:
    """The generation of facts that serves this owner; None if facts are not asked for, or none serves."""
    if "fact" not in kinds:
        return None
    rows = yield from fetch(ServingGeneration(shard_key=shard_key, pipeline=FACTS))
    return rows[0].generation_id if rows else None


# Given a query and the config of the stored vectors: None if those are of another model, empty if the model
# has no vector for it.
EmbedQuery = Callable[[str, Mapping[str, Any]], str | None]

# The end of a long query is the question; more than this only costs time.
MAX_QUERY_CHARACTERS = 8_000
# Each costs a look at the pieces that hold it.
MAX_QUERY_WORDS = 128


def prepare_query(
    text: str, vectors: Vectors | None, embed_query: EmbedQuery | None, *, with_aim: bool = True
) -> Operation[SearchQuery]:
    """Words and vector of a query; the embedding may call a model, and does not block the event loop.

    Args:
        with_aim: False where only facts are searched for: their scores do not depend on the aim, which takes
            longer to find than the words.
    """
    if vectors is None:
        problem = "No vectors exist yet, so the search compared only words."
        return _query(text, None, problem, None, with_aim)
    prepared: SearchQuery = yield Run(partial(_prepare, text, vectors, embed_query, with_aim))
    return prepared


def _prepare(text: str, vectors: Vectors, embed_query: EmbedQuery | None, with_aim: bool) -> SearchQuery:
    vector: str | None = None
    problem: str | None = None
    try:
        if embed_query is None:
            problem = "No embedding model is set for queries: the search compared only words."
        elif (vector := embed_query(text, vectors.config)) is None:
            problem = (
                f"The stored vectors are of another embedding model ({vectors.config.get('embedder')}): the"
                " search compared only words."
            )
        elif not vector:
            problem = "The embedding model has no vector for the query, so the search compared only words."
    except StrandlineError as error:
        problem = f"The query could not be embedded, so the search compared only words: {error}"
    return _query(text, vector or None, problem, vectors.time_zone, with_aim)


def _query(
    text: str, vector: str | None, problem: str | None, time_zone: str | None, with_aim: bool
) -> SearchQuery:
    words = words_of_query(text)
    lexemes = list(dict.fromkeys(chain.from_iterable(words)))[-MAX_QUERY_WORDS:]
    aim = aim_of(text, today_in(time_zone)) if with_aim else NO_AIM
    return SearchQuery(text, lexemes, vector, problem, aim, min(len(words), len(lexemes)))
