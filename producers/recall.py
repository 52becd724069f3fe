"""Recall: what a vector block searches for, and what the search finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from strandline.pipelines.blocks import Hit, VectorMemoryBlock
from strandline.pipelines.lexemes import query_lexemes
from strandline.producers.context import Omission
from strandline.producers.snapshot import read_message
from strandline.schemas.errors import StrandlineError
from strandline.schemas.identity import SessionIdentity
from strandline.schemas.messages import Message
from strandline.schemas.operations import Fetch, Operation, Row, Run

EmbedQuery = Callable[[str, Mapping[str, Any]], str | None]

# Similarity and text score count alike: on conversations either alone finds less than both together, and
# no weighting has been measured yet that would favour one.
VECTOR_WEIGHT = 0.5

# The end of a long query is what is being asked; more than this only costs time.
MAX_QUERY_CHARACTERS = 8_000


@dataclass(frozen=True, slots=True)
class Vectors:
    """The generation that serves searches, with what it was made by (``embedder``, ``dimensions``)."""

    generation_id: int
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """What the read shows anyway: of this session, all from ``visible_from`` on, and single ``seqs``."""

    identity: SessionIdentity
    visible_from: int
    seqs: frozenset[int]

    def holds(self, hit: Hit, message: Message) -> bool:
        seq = message.seq or 0
        return hit.session_key == self.identity.session_key and (seq >= self.visible_from or seq in self.seqs)


@dataclass(frozen=True, slots=True)
class Query:
    """A query as the search takes it; ``problem`` says why there is no vector, if there is none."""

    lexemes: list[str]
    vector: str | None
    problem: str | None


def query_text(
    query: str | Message | None, messages: Sequence[Message] | None, window: Sequence[Message], latest: int
) -> str:
    """What to search for: the query given, else the messages given, else the ``latest`` of the window."""
    if query is not None:
        text = query if isinstance(query, str) else query.text
    elif messages:
        text = "\n".join(message.text for message in messages if message.text)
    else:
        text = "\n".join(message.text for message in window[-latest:] if message.text)
    return text[-MAX_QUERY_CHARACTERS:].strip()


def prepare_query(text: str, vectors: Vectors, embed_query: EmbedQuery | None) -> Operation[Query]:
    """Words and vector of a query; the embedding may call a model, and blocks no event loop."""
    prepared: Query = yield Run(partial(_prepare, text, vectors.config, embed_query))
    return prepared


def search(
    block: VectorMemoryBlock, query: Query, vectors: Vectors, shown: Shown
) -> Operation[tuple[tuple[Hit, ...], list[Omission]]]:
    """The best pieces for one block, without what is shown anyway, and what could not be done in full.

    Raises:
        StrandlineError: the statement failed.
    """
    said = [] if query.problem is None else [Omission("search_text_only", block.name, query.problem)]
    if query.vector is None and not query.lexemes:
        return (), said
    rows: list[Row] = yield Fetch("search_chunks", _parameters(block, query, vectors, shown))
    return without_shown(_hits(rows), shown), said


def without_shown(hits: Sequence[Hit], shown: Shown) -> tuple[Hit, ...]:
    """The hits without messages that are shown anyway, each message only in its best hit."""
    seen: set[tuple[object, int | None]] = set()
    remaining = []
    for hit in hits:
        messages = tuple(
            message
            for message in hit.messages
            if (hit.session_key, message.seq) not in seen and not shown.holds(hit, message)
        )
        seen.update((hit.session_key, message.seq) for message in messages)
        if messages:
            remaining.append(Hit(hit.score, hit.session_key, messages))
    return tuple(remaining)


def _prepare(text: str, config: Mapping[str, Any], embed_query: EmbedQuery | None) -> Query:
    lexemes = query_lexemes(text)
    if embed_query is None:
        return Query(lexemes, None, "No embedding model is set for queries: the search compared words alone.")
    try:
        vector = embed_query(text, config)
    except StrandlineError as error:
        problem = (
            f"The query could not be embedded ({type(error).__name__}): the search compared words alone."
        )
        return Query(lexemes, None, problem)
    if vector is None:
        problem = (
            f"The stored vectors are of another embedding model ({config.get('embedder')}):"
            " the search compared words alone."
        )
        return Query(lexemes, None, problem)
    return Query(lexemes, vector, None)


def _parameters(block: VectorMemoryBlock, query: Query, vectors: Vectors, shown: Shown) -> dict[str, Any]:
    identity = shown.identity
    return {
        "shard_key": identity.shard_key,
        "session_key": identity.session_key,
        "scope_key": identity.session_key if block.scope == "session" else None,
        "generation_id": vectors.generation_id,
        "embedding": query.vector,
        "lexemes": query.lexemes,
        "vector_weight": VECTOR_WEIGHT,
        # Without a vector nothing has a similarity, and a cut-off would leave nothing at all.
        "similarity_cutoff": 0.0 if query.vector is None else block.similarity_cutoff,
        "top_k": block.similarity_top_k,
        "visible_from": shown.visible_from,
    }


def _hits(rows: Sequence[Row]) -> list[Hit]:
    """Rows in order of score, session and seq, as pieces of consecutive messages."""
    hits: list[Hit] = []
    following: tuple[object, ...] | None = None
    for score, session_key, *columns in rows:
        message = read_message(columns)
        seq: int = columns[0]
        if following == (score, session_key, seq):
            hits[-1] = Hit(score, session_key, (*hits[-1].messages, message))
        else:
            hits.append(Hit(score, session_key, (message,)))
        following = (score, session_key, seq + 1)
    return hits
