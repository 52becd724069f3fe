"""Of what an exact scan finds nearest, the share that the search finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from bench.environment import Ground
from strandline import Memory
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder
from strandline.pipelines.vectors.stage import vector_text
from strandline.producers.search.hits import MESSAGES_ALONE
from strandline.producers.search.index.array_index import ArrayParts
from strandline.producers.search.index.index_cache import IndexCache
from strandline.producers.search.index.scope_index import ScopeKey
from strandline.producers.search.message_filter import ALL_MESSAGES
from strandline.producers.search.ranking import (
    NOTHING_VISIBLE,
    SearchQuery,
    Target,
    rank_hits,
    serving_vectors,
)
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.queries.conversation.search import SearchChunks
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_session

LIMIT = 10
INDEX_BYTES = 1_000_000_000
SERVING_IN = """
SELECT g.generation_id, s.shard_key FROM strandline.session s, strandline.generation g
WHERE s.session_key = %s AND g.pipeline = %s AND g.state = 'serving'
"""
# As in the statement: what the first pieces of a scope have in common counts less where they are few.
COMMON_PIECES, DAMPING = 300, 10
# And as there, a shorter piece counts in proportion.
WHOLE_LENGTH = 18


Find = Callable[[Sequence[float]], set[int]]


@contextmanager
def vector_search(ground: Ground, memory: Memory) -> Iterator[Find]:
    """The search of the session by a vector alone, without words: the seqs of the nearest ten messages."""
    session_key = identify_session(DEFAULT_NAMESPACE, memory.session_id, None).session_key
    ((generation_id, shard_key),) = ground.rows(SERVING_IN, session_key, "vectors")
    database = Database.connect(ConnectionOptions.from_settings(ground.url, load_settings()))

    def search_for(vector: Sequence[float]) -> SearchChunks:
        return SearchChunks(
            shard_key=shard_key,
            generation_id=generation_id,
            embedding=vector_text(vector),
            lexemes=[],
            session_key=session_key,
            scope_key=session_key,
            similarity_cutoff=0.0,
            top_k=LIMIT,
            visible_from=NOTHING_VISIBLE,
            messages=True,
            facts_generation_id=None,
            facts_shown=[],
            topics=None,
            agent_id=None,
            team_id=None,
            is_own=False,
            names=[],
            dates_from=[],
            dates_through=[],
            dates_fit=[],
            words=0,
            beside=0,
            facts_alone_id=None,
            top_facts=0,
            part_of=None,
            through_session=session_key,
            through_seq=0,
            through_piece=0,
            pieces_since=0,
            at_once=0,
            **ALL_MESSAGES.params(session_key),
        )

    try:
        yield lambda vector: {row.from_seq for row in database.fetch(search_for(vector))}
    finally:
        database.close()


@contextmanager
def indexed_search(ground: Ground, memory: Memory) -> Iterator[Find]:
    """The same search by an index in memory, as of a process that searches the session again and again."""
    session_key = identify_session(DEFAULT_NAMESPACE, memory.session_id, None).session_key
    ((generation_id, shard_key),) = ground.rows(SERVING_IN, session_key, "vectors")
    database = Database.connect(ConnectionOptions.from_settings(ground.url, load_settings()))
    indexes = IndexCache(INDEX_BYTES, ArrayParts)
    vectors = database.run(serving_vectors(shard_key))
    assert vectors is not None and vectors.standing is not None
    standing = vectors.standing
    target = Target(
        identify_session(DEFAULT_NAMESPACE, memory.session_id, None), "session", MESSAGES_ALONE, None
    )
    scope = ScopeKey(shard_key, generation_id, session_key)

    def find(vector: Sequence[float]) -> set[int]:
        query = SearchQuery("", [], vector_text(vector), None)
        while True:  # each search adds a part of the index
            is_made = indexes.find_index(scope, standing.pieces) is not None
            search = rank_hits(
                query,
                vectors,
                target,
                limit=LIMIT,
                similarity_cutoff=0.0,
                indexes=indexes,
                standing=standing,
            )
            hits = database.run(search)
            if is_made:
                return {message.seq or 0 for hit in hits for message in hit.messages}

    try:
        yield find
    finally:
        database.close()


def recall(
    find: Find, vectors: Sequence[Sequence[float]], lengths: Sequence[int], questions: Sequence[str]
) -> Iterator[float]:
    """For each question by meaning alone: the share of the ten nearest chunks that is found.

    Args:
        lengths: of the chunks, in lexemes.
    """
    stored = np.asarray(vectors, dtype=np.float16).astype(np.float32)
    first = stored[:COMMON_PIECES]
    common = first.mean(axis=0) * len(first) / (len(first) + DAMPING)
    brevity = np.minimum(1, np.asarray(lengths) / WHOLE_LENGTH)
    for vector in WordLlamaEmbedder().embed(questions).vectors:
        nearness = (stored - common) @ (np.asarray(vector, dtype=np.float32) - common) * brevity
        nearest = {int(at) + 1 for at in np.argsort(-nearness)[:LIMIT]}
        yield len(nearest & find(vector)) / LIMIT
