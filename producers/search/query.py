"""The query of a search: its words, and its vector if an embedding model gives one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any

from strandline.pipelines.text.aim import aim_of
from strandline.pipelines.text.lexemes import words_of_query
from strandline.producers.search.ranking import SearchQuery, Vectors
from strandline.schemas.display.local_time import today_in
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.operations import Operation, Run

# Given a query and the config of the stored vectors: None if those are of another model, empty if the model
# has no vector for it.
EmbedQuery = Callable[[str, Mapping[str, Any]], str | None]

# The end of a long query is what is being asked; more than this only costs time.
MAX_QUERY_CHARACTERS = 8_000
# Each costs a look at the pieces that hold it.
MAX_QUERY_WORDS = 128


def prepare_query(
    text: str, vectors: Vectors | None, embed_query: EmbedQuery | None
) -> Operation[SearchQuery]:
    """Words and vector of a query; the embedding may call a model, and does not block the event loop."""
    if vectors is None:
        return _query(text, None, "No vectors exist yet, so the search compared only words.", None)
    prepared: SearchQuery = yield Run(partial(_prepare, text, vectors, embed_query))
    return prepared


def _prepare(text: str, vectors: Vectors, embed_query: EmbedQuery | None) -> SearchQuery:
    zone, config = vectors.time_zone, vectors.config
    if embed_query is None:
        problem = "No embedding model is set for queries: the search compared only words."
        return _query(text, None, problem, zone)
    try:
        vector = embed_query(text, config)
    except StrandlineError as error:
        problem = f"The query could not be embedded, so the search compared only words: {error}"
        return _query(text, None, problem, zone)
    if vector is None:
        problem = (
            f"The stored vectors are of another embedding model ({config.get('embedder')}): the search"
            " compared only words."
        )
        return _query(text, None, problem, zone)
    if not vector:
        problem = "The embedding model has no vector for the query, so the search compared only words."
        return _query(text, None, problem, zone)
    return _query(text, vector, None, zone)


def _query(text: str, vector: str | None, problem: str | None, time_zone: str | None) -> SearchQuery:
    words = words_of_query(text)
    lexemes = list(dict.fromkeys(chain.from_iterable(words)))[-MAX_QUERY_WORDS:]
    aim = aim_of(text, today_in(time_zone))
    return SearchQuery(text, lexemes, vector, problem, aim, min(len(words), len(lexemes)))
