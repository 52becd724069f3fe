"""A local embedder: wordllama's static token vectors, averaged.  No key, no network, no GPU.

Vectors (256 dimensions) and tokenizer lie inside the wordllama wheel; results equal those of wordllama's own
``embed``.  This module imports numpy and the tokenizer's library at once, so it is itself imported only where
the local embedder is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from tokenizers import Tokenizer

from strandline.pipelines.models.embedding_batches import InProcessEmbedder
from strandline.pipelines.models.local.text_model import EMBEDDER, EMBEDDER_DIMENSIONS
from strandline.pipelines.models.local.wordllama_files import TokenVectors, find_files, load_model

# Static vectors are averaged over a text: what follows after some pages hardly moves the average.
MAX_TEXT_CHARACTERS = 32_000
# 64 kB of vectors. glibc maps and unmaps blocks larger than twice that each time.
TOKENS_AT_ONCE = 128


class WordLlamaEmbedder(InProcessEmbedder):
    """Embeds in-process; safe to call from many threads (nothing is written after loading).

    All of a process share one model: some 12 MB, plus 16 MB of vectors that all processes share.
    """

    model, dimensions, max_characters = EMBEDDER, EMBEDDER_DIMENSIONS, MAX_TEXT_CHARACTERS

    def __init__(self) -> None:
        self._vectors, self._tokenizer = _model()

    def embed_one(self, text: str) -> Sequence[float]:
        """The direction of the average, which is that of the sum.

        Sums of half-precision numbers are exact in double precision: they depend neither on the order nor
        on the machine.
        """
        # One text at a time: for a batch the library starts its own threads, which a fork would break.
        tokens = self._tokenizer.encode(text, add_special_tokens=False).ids
        total = np.zeros(EMBEDDER_DIMENSIONS)
        for start in range(0, len(tokens), TOKENS_AT_ONCE):
            total += self._vectors[tokens[start : start + TOKENS_AT_ONCE]].sum(axis=0, dtype=np.float64)
        return list(total.tolist())


@cache
def _model() -> tuple[TokenVectors, Tokenizer]:
    # Each generation of vectors has its own embedder, and so has a process that also searches.
    return load_model(find_files(), EMBEDDER_DIMENSIONS)
