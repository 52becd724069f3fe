"""Needs of every embedder: requests of a bounded size, vectors of unit length, prefixes of texts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from strandline.pipelines.models.answer_forms import storable
from strandline.pipelines.models.contract import EmbeddingAnswer
from strandline.schemas.settings import Settings


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


QUERY_KEY, PASSAGE_KEY = "query_prefix", "passage_prefix"


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The texts before a query and before a passage, which are embedded with them and stored without.

    A passage is a piece of a message.
    """

    query: str = ""
    passage: str = ""

    @classmethod
    def of_settings(cls, settings: Settings) -> Self:
        return cls(settings.embedding_query_prefix, settings.embedding_passage_prefix)

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self:
        """The prefixes that a recipe's config records."""
        return cls(str(config.get(QUERY_KEY, "")), str(config.get(PASSAGE_KEY, "")))

    def as_config(self) -> dict[str, str]:
        """As a config records them: an empty one is left out, so that older recipes are no other ones."""
        prefixes = {QUERY_KEY: self.query, PASSAGE_KEY: self.passage}
        return {key: prefix for key, prefix in prefixes.items() if prefix}

    def as_settings(self) -> dict[str, str]:
        """By the names of the settings."""
        return {"embedding_query_prefix": self.query, "embedding_passage_prefix": self.passage}
