"""Of what an exact scan finds nearest, the share that the search finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bench.filling import SERVING
from bench.ground import Ground
from strandline import Memory
from strandline.pipelines.models.wordllama_embedder import WordLlamaEmbedder
from strandline.pipelines.vectors import vector_text
from strandline.schemas.connections import ConnectionOptions
from strandline.schemas.database import Database
from strandline.schemas.identity import DEFAULT_NAMESPACE, identify_session
from strandline.schemas.settings import load_settings

LIMIT = 10
# As in the statement: what the first pieces of a scope have in common counts less where they are few.
COMMON_PIECES, DAMPING = 300, 10


def recall(
    ground: Ground, memory: Memory, vectors: Sequence[Sequence[float]], queries: int
) -> Iterator[float]:
    """For some questions by meaning alone: the share of the ten nearest chunks that are found."""
    stored = np.asarray(vectors, dtype=np.float16).astype(np.float32)
    first = stored[:COMMON_PIECES]
    common = first.mean(axis=0) * len(first) / (len(first) + DAMPING)
    database = Database.connect(ConnectionOptions.from_settings(ground.url, load_settings()))
    try:
        for text in [message["content"] for message in ground.some_messages(queries)]:
            (vector,) = WordLlamaEmbedder().embed([text]).vectors
            nearness = stored @ (np.asarray(vector, dtype=np.float32) - common)
            nearest = {int(at) + 1 for at in np.argsort(-nearness)[:LIMIT]}
            yield len(nearest & _found(ground, database, memory, vector)) / LIMIT
    finally:
        database.close()


def _found(ground: Ground, database: Database, memory: Memory, vector: Sequence[float]) -> set[int]:
    """The seqs of the messages that the statement finds."""
    identity = identify_session(DEFAULT_NAMESPACE, memory.session_id, None)
    ((generation_id,),) = ground.rows(SERVING, "vectors")
    rows = database.fetch(
        "search_chunks",
        {
            "shard_key": identity.shard_key,
            "generation_id": generation_id,
            "embedding": vector_text(vector),
            "lexemes": [],
            "session_key": identity.session_key,
            "scope_key": identity.session_key,
            "similarity_cutoff": 0.0,
            "top_k": LIMIT,
            "visible_from": 2**62,
            "messages": True,
            "facts_generation_id": None,
            "facts_shown": [],
            "beside": 0,
        },
    )
    return {row[3] for row in rows}
