"""Cuts texts into embedding requests, and brings vectors to unit length: what every embedder needs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from strandline.pipelines.models.answer_forms import storable
from strandline.pipelines.models.contract import EmbeddingAnswer


def ready_to_embed(texts: Sequence[str]) -> list[str]:
    """The texts as a server takes them: encodable, and a space for an empty one, which servers refuse."""
    return [storable(text) or " " for text in texts]


class InProcessEmbedder(ABC):
    """Embeds in this process, one text at a time; safe to call from many threads.

    To make one raises ModuleNotFoundError if its package is missing, ConfigurationError if files are damaged.
    """

    model: str
    dimensions: int
    max_characters: int

    def wait_seconds(self) -> float:
        return 0.0

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        """Embed ``texts`` in order; of each, the first ``max_characters`` count.

        ``timeout_seconds`` is not needed: the longest text takes some milliseconds.
        """
        vectors = (unit_length(self.embed_one(text[: self.max_characters])) for text in ready_to_embed(texts))
        return EmbeddingAnswer(tuple(vectors), self.model, 0)

    @abstractmethod
    def embed_one(self, text: str) -> Sequence[float]:
        """The vector of one text, of any length."""


def first_batch(texts: Sequence[str], max_texts: int, max_characters: int) -> Sequence[str]:
    """The first of ``texts``, as many as are within both bounds, at least one."""
    characters = 0
    for place, text in enumerate(texts[:max_texts]):
        characters += len(text)
        if place and characters > max_characters:
            return texts[:place]
    return texts[:max_texts]


def unit_length(vector: Sequence[float]) -> tuple[float, ...]:
    """``vector`` divided by its Euclidean length.

    A vector of zeros has no direction, and its cosine distance would be NaN: it becomes the first axis.

    Raises:
        ValueError: a component is not finite.
    """
    length = math.hypot(*vector)
    if not math.isfinite(length):
        raise ValueError("the vector has a component that is not a finite number")
    if length == 0.0:
        return (1.0,) + (0.0,) * (len(vector) - 1)
    return tuple([component / length for component in vector])
