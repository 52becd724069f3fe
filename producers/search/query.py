"""The query of a search: its words, and its vector if an embedding model gives one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

from strandline.pipelines.text.aim import aim_of
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.producers.search.ranking import SearchQuery, Vectors
from strandline.schemas.display.local_time import in_zone
from strandline.schemas.errors import ConfigurationError, ProviderSetupError, StrandlineError
from strandline.schemas.postgres.operations import Operation, Run

EmbedQuery = Callable[[str, Mapping[str, Any]], str | None]

# The end of a long query is what is being asked; more than this only costs time.
MAX_QUERY_CHARACTERS = 8_000
# Each costs a look at the pieces that hold it.
MAX_QUERY_WORDS = 128


def prepare_query(
    text: str, vectors: Vectors | None, embed_query: EmbedQuery | None, time_zone: str | None = None
) -> Operation[SearchQuery]:
    """Words and vector of a query; the embedding may call a model, and does not block the event loop."""
    query = partial(_query, text, in_zone(datetime.now(UTC), time_zone).date())
    if vectors is None:
        return query(None, "There are no vectors: the search compared only words.")
    prepared: SearchQuery = yield Run(partial(_prepare, text, vectors.config, embed_query, query))
    return prepared


def _prepare(
    text: str,
    config: Mapping[str, Any],
    embed_query: EmbedQuery | None,
    query: Callable[[str | None, str | None], SearchQuery],
) -> SearchQuery:
    if embed_query is None:
        return query(None, "No embedding model is set for queries: the search compared only words.")
    try:
        vector = embed_query(text, config)
    except StrandlineError as error:
        problem = f"The query could not be embedded, so the search compared only words: {_reason(error)}"
        return query(None, problem)
    if vector is None:
        problem = (
            f"The stored vectors are of another embedding model ({config.get('embedder')}): the search"
            " compared only words."
        )
        return query(None, problem)
    return query(vector, None)


def _query(text: str, today: date, vector: str | None, problem: str | None) -> SearchQuery:
    lexemes = query_lexemes(text)[-MAX_QUERY_WORDS:]
    return SearchQuery(text, lexemes, vector, problem, aim_of(text, today))


def _reason(error: StrandlineError) -> str:
    """The reason to show; an error of the setup already says what to do, others may be transient."""
    if isinstance(error, (ProviderSetupError, ConfigurationError)):
        return str(error)
    return (
        "the embedding model did not answer in time, or is unavailable"
        " (STRANDLINE_QUERY_EMBEDDING_TIMEOUT_SECONDS bounds the wait)."
    )
