"""Stand-ins for embedders over HTTP, for searches that must not depend on one embedder.

Squeezed: the local embedder's vectors, all turned towards one direction, so that their cosines lie close
together and high, as those of many trained embedders do.  Random: vectors that say nothing of a text.
The same text always has the same vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from strandline.pipelines.models.local.text_model import EMBEDDER_DIMENSIONS
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder
from tests.support.servers.model_server import ModelServer, RecordedRequest

StandIn = Literal["squeezed", "random"]
STAND_INS: tuple[StandIn, ...] = get_args(StandIn)
Floats = NDArray[np.float64]

# Times a vector of length 1 in one direction: different texts come to cosines from 0.7 to 0.9.
COMMON_LENGTH = 1.9
# A read gives up its query's vector after half a second, which says nothing of the ranking.
QUERY_SECONDS = 60.0


def squeezed_vectors(texts: Sequence[str]) -> Floats:
    """The local embedder's vectors and a constant one, added and brought to length 1."""
    own = np.array(WordLlamaEmbedder().embed(texts).vectors)
    return _of_length_1(own + COMMON_LENGTH * random_vectors(["what all texts have in common"]))


def random_vectors(texts: Sequence[str]) -> Floats:
    """For each text a direction that follows from its hash; all directions are equally likely."""
    return _of_length_1(np.array([_drawn_vector(text) for text in texts]))


@contextmanager
def embedder_server(kind: StandIn) -> Iterator[ModelServer]:
    """A model server on loopback that embeds in this way."""
    embed = _EMBEDDERS[kind]

    def answer(request: RecordedRequest) -> dict[str, Any]:
        texts = request.body["input"]
        return {
            "object": "list",
            "model": request.body["model"],
            "data": [
                {"object": "embedding", "index": index, "embedding": vector}
                for index, vector in enumerate(embed(texts).tolist())
            ],
            "usage": {"prompt_tokens": 0, "total_tokens": 0},
        }

    with ModelServer(keep=1) as server:
        server.behave(responder=answer, path="/embeddings")
        yield server


def settings_of(server: ModelServer, kind: StandIn) -> Mapping[str, str]:
    """Environment variables of a process that embeds by it, and has the local model for all else."""
    return {
        "OPENAI_BASE_URL": server.base_url,
        "OPENAI_API_KEY": "none",
        "STRANDLINE_TEXT_BACKEND": "local",
        "STRANDLINE_EMBEDDING_BACKEND": "openai",
        "STRANDLINE_EMBEDDING_MODEL": kind,
        "STRANDLINE_EMBEDDING_DIMENSIONS": str(EMBEDDER_DIMENSIONS),
        "STRANDLINE_QUERY_EMBEDDING_TIMEOUT_SECONDS": str(QUERY_SECONDS),
    }


def _drawn_vector(text: str) -> Floats:
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return np.random.default_rng(seed).standard_normal(EMBEDDER_DIMENSIONS)


def _of_length_1(vectors: Floats) -> Floats:
    lengths: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


_EMBEDDERS: Mapping[StandIn, Callable[[Sequence[str]], Floats]] = {
    "squeezed": squeezed_vectors,
    "random": random_vectors,
}
