"""Recall: what a vector block searches for, and what the search finds.

The statement ``search_chunks`` ranks; here queries are prepared, and hits are read, reranked and rid of what
the read shows anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from strandline.pipelines.blocks import Hit, Reranker, VectorMemoryBlock
from strandline.pipelines.lexemes import query_lexemes
from strandline.producers.context import Omission
from strandline.producers.snapshot import read_message
from strandline.producers.time_limit import TimeLimitError, call_within
from strandline.schemas.errors import StrandlineError
from strandline.schemas.identity import SessionIdentity
from strandline.schemas.messages import Message
from strandline.schemas.operations import Fetch, Operation, Row, Run

EmbedQuery = Callable[[str, Mapping[str, Any]], str | None]

logger = logging.getLogger("strandline.producers")

# A hit is shown with the other half of its exchange: a question's answer, or what was answered.
MESSAGES_BESIDE = 1

# What a reranker is given to choose from, and how long it may take.
RERANK_CANDIDATES = 20
RERANK_SECONDS = 1.0

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

    text: str
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
    hits = without_shown(read_hits(rows), shown)
    if block.rerank is not None and hits:
        hits, failures = yield Run(partial(_reranked, block, block.rerank, query.text, hits))
        said += failures
    return hits[: block.similarity_top_k], said


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
            remaining.append(replace(hit, messages=messages))
    return tuple(remaining)


def _prepare(text: str, config: Mapping[str, Any], embed_query: EmbedQuery | None) -> Query:
    lexemes = query_lexemes(text)
    if embed_query is None:
        return Query(
            text, lexemes, None, "No embedding model is set for queries: the search compared words alone."
        )
    try:
        vector = embed_query(text, config)
    except StrandlineError as error:
        problem = (
            f"The query could not be embedded ({type(error).__name__}): the search compared words alone."
        )
        return Query(text, lexemes, None, problem)
    if vector is None:
        problem = (
            f"The stored vectors are of another embedding model ({config.get('embedder')}):"
            " the search compared words alone."
        )
        return Query(text, lexemes, None, problem)
    return Query(text, lexemes, vector, None)


def search_parameters(query: Query, vectors: Vectors) -> dict[str, Any]:
    """What ``search_chunks`` is told of the query; the rest is scope and bounds."""
    return {
        "generation_id": vectors.generation_id,
        "embedding": query.vector,
        "lexemes": query.lexemes,
    }


def read_hits(rows: Sequence[Row]) -> list[Hit]:
    """The rows of ``search_chunks``, best first, as pieces of conversation."""
    hits: list[Hit] = []
    for (score, similarity, session_key, from_seq, through_seq), group in groupby(
        rows, key=lambda row: row[:5]
    ):
        messages = [read_message(row[5:]) for row in group]
        exchange = _exchange(messages, from_seq, through_seq)
        hits.append(Hit(score, session_key, exchange, similarity))
    return hits


def _exchange(messages: Sequence[Message], from_seq: int, through_seq: int) -> tuple[Message, ...]:
    """The messages found, with the answer behind a question, or what was answered before an answer."""
    found = [message for message in messages if from_seq <= (message.seq or 0) <= through_seq]
    if not found:
        return ()
    before = [m for m in messages if (m.seq or 0) < from_seq and m.role != "system"]
    after = [m for m in messages if (m.seq or 0) > through_seq]
    return (*found, *after) if found[0].role == "user" else (*before, *found)


def _parameters(block: VectorMemoryBlock, query: Query, vectors: Vectors, shown: Shown) -> dict[str, Any]:
    identity = shown.identity
    return search_parameters(query, vectors) | {
        "shard_key": identity.shard_key,
        "session_key": identity.session_key,
        "scope_key": identity.session_key if block.scope == "session" else None,
        # Without a vector nothing has a similarity, and a cut-off would leave nothing at all.
        "similarity_cutoff": 0.0 if query.vector is None else block.similarity_cutoff,
        "top_k": block.similarity_top_k if block.rerank is None else RERANK_CANDIDATES,
        "visible_from": shown.visible_from,
        "beside": MESSAGES_BESIDE,
    }


def _reranked(
    block: VectorMemoryBlock, rerank: Reranker, query: str, hits: tuple[Hit, ...]
) -> tuple[tuple[Hit, ...], list[Omission]]:
    """The hits in the order that ``rerank`` gives them; as they were if it fails or is late.

    It is the application's code, and one that fails must not fail the read.
    """
    try:
        chosen = tuple(call_within(RERANK_SECONDS, lambda: rerank(query, hits)))
    except TimeLimitError:
        problem = f"took longer than {RERANK_SECONDS} s"
    except Exception as error:  # noqa: BLE001  # the edge to foreign code, see above
        problem = f"raised {type(error).__name__}"
    else:
        places = [_place(hit, hits) for hit in chosen]
        if None not in places:
            return tuple(hits[place] for place in dict.fromkeys(places) if place is not None), []
        problem = "returned something that is none of the hits"
    logger.warning(
        "reranker failed", extra={"action": "rerank_failed", "block": block.name, "reason": problem}
    )
    reason = f"Its rerank= {problem}; the hits are in the order of the search."
    return hits, [Omission("rerank_failed", block.name, reason)]


def _place(wanted: object, hits: Sequence[Hit]) -> int | None:
    """Which of the hits it is, if it is one of them."""
    return next((place for place, hit in enumerate(hits) if hit is wanted), None)
