"""An embedder that needs no model: a text's vector counts its characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from langchain_core.embeddings import Embeddings

DIMENSIONS = 257


def letter_vector(text: str) -> list[float]:
    """How often each character comes, by its number, as a vector of length 1; of nothing, zeros."""
    counts = [0.0] * DIMENSIONS
    for letter in text:
        counts[ord(letter) % DIMENSIONS] += 1
    length = math.sqrt(sum(count * count for count in counts))
    return [count / length for count in counts] if length else counts


def letter_vectors(texts: Sequence[str]) -> list[list[float]]:
    return [letter_vector(text) for text in texts]


class LetterEmbeddings(Embeddings):
    """The same as embeddings of LangChain, which note the texts that they were given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        return letter_vectors(texts)

    def embed_query(self, text: str) -> list[float]:
        return letter_vector(text)
