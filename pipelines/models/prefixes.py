"""Prefixes: an asymmetric embedder's marks of queries and passages.

They belong to a recipe, as the model does: vectors of texts with other prefixes are not comparable.  A config
without the keys stands for empty ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from strandline.schemas.settings import Settings

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
