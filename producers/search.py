"""Searching one's own way: ranked messages of what was flushed, outside of any prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.pipelines.blocks import Hit
from strandline.producers.reading import history_page
from strandline.producers.recall import (
    MAX_QUERY_CHARACTERS,
    EmbedQuery,
    Query,
    Vectors,
    prepare_query,
    read_hits,
    search_parameters,
)
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.identity import SessionIdentity
from strandline.schemas.lanes import VECTORS, Scope
from strandline.schemas.messages import Message
from strandline.schemas.operations import Fetch, Operation, Row

MAX_LIMIT = 1_000

# Nothing is left out as visible: no seq comes that far.
_NOTHING_VISIBLE = 2**62


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that a search found.

    Attributes:
        message: as it was put, with its ``seq``.
        session_id: the session that it was put to.
        score: how well it fits, 0 to 1; to be compared within one search only.
        similarity: the cosine similarity to the query; None where only words were compared, since there is
            no embedding model for the query, or it failed.
    """

    message: Message
    session_id: str
    score: float
    similarity: float | None


@dataclass(frozen=True, slots=True)
class Search:
    """One search: what for, where, and how much of it."""

    identity: SessionIdentity
    query: str
    limit: int
    scope: Scope
    embed_query: EmbedQuery | None

    def __post_init__(self) -> None:
        if (
            isinstance(self.limit, bool)
            or not isinstance(self.limit, int)
            or not 0 <= self.limit <= MAX_LIMIT
        ):
            raise ConfigurationError(f"limit is {self.limit!r}; it must be from 0 to {MAX_LIMIT}.")
        if self.scope not in ("session", "owner"):
            raise ConfigurationError(f"scope is {self.scope!r}; it must be 'session' or 'owner'.")


def search_messages(asked: Search) -> Operation[list[SearchHit]]:
    """The messages that fit best, best first.

    Raises:
        OwnerError: the session belongs to another owner.
        StrandlineError: the database failed.
    """
    text = asked.query[-MAX_QUERY_CHARACTERS:].strip()
    vectors = yield from _serving_vectors()
    if not text or not asked.limit or vectors is None:
        return []
    query = yield from prepare_query(text, vectors, asked.embed_query)
    if query.vector is None and not query.lexemes:
        return []
    rows: list[Row] = yield Fetch("search_chunks", _parameters(asked, query, vectors))
    if not rows:
        yield from history_page(asked.identity, 0, 1)  # tells whether the session is somebody else's
    hits = read_hits(rows)
    names = yield from _session_names(asked.identity, hits)
    return [
        SearchHit(message, names[hit.session_key], hit.score, hit.similarity if query.vector else None)
        for hit in hits
        for message in hit.messages
        if hit.session_key in names
    ]


def _serving_vectors() -> Operation[Vectors | None]:
    rows: list[Row] = yield Fetch("serving_generation", {"pipeline": VECTORS})
    return Vectors(rows[0][0], json.loads(rows[0][1])) if rows else None


def _session_names(identity: SessionIdentity, hits: Sequence[Hit]) -> Operation[dict[UUID, str]]:
    keys = sorted({hit.session_key for hit in hits})
    if not keys or keys == [identity.session_key]:
        return {identity.session_key: identity.session_id}
    rows: list[Row] = yield Fetch("session_names", {"shard_key": identity.shard_key, "session_keys": keys})
    return dict(rows)


def _parameters(asked: Search, query: Query, vectors: Vectors) -> dict[str, object]:
    identity = asked.identity
    return search_parameters(query, vectors) | {
        "shard_key": identity.shard_key,
        "session_key": identity.session_key,
        "scope_key": identity.session_key if asked.scope == "session" else None,
        "similarity_cutoff": 0.0,
        "top_k": asked.limit,
        "visible_from": _NOTHING_VISIBLE,
        "beside": 0,
    }
