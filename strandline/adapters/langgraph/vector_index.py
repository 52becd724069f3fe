"""The semantic index of a store: which texts of an item have vectors, and what makes these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from langchain_core.embeddings import Embeddings
from langgraph.store.base import ensure_embeddings, get_text_at_path, tokenize_path

from strandline.pipelines.models.contract import Embedder
from strandline.producers.arguments import check_count
from strandline.producers.items.requests import Distance, vector_text
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, PermanentModelError

OWN_EMBEDDER = "strandline"

MAX_TEXTS_PER_ITEM = 1_000

_WHOLE = "$"
_DISTANCES = get_args(Distance)


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of texts that are stored and of queries, each as pgvector's text."""

    of_texts: Mapping[str, str]
    of_queries: Mapping[str, str]


NO_VECTORS = Vectors({}, {})


class VectorIndex:
    """LangGraph's ``index`` of a store, checked.

    Raises:
        ConfigurationError: a part of it cannot be used.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = dict(config)
        self.embeddings = _embeddings(config.get("embed"))
        self.distance: Distance = _distance(config.get("distance_type", "cosine"))
        dims = config.get("dims")
        self._dimensions = None if dims is None else check_count("index['dims']", dims, least=1)
        self._fields = _paths("index['fields']", config.get("fields") or [_WHOLE])

    def texts_of(self, value: Mapping[str, Any], index: object) -> list[str]:
        """The texts of an item that get vectors: of ``index``, the paths that a put names, or the store's."""
        if index is False:
            return []
        paths = self._fields if index is None else _paths("index", index)
        texts_by_path = [get_text_at_path(dict(value), path) for path in paths]
        texts = list(dict.fromkeys(text for some in texts_by_path for text in some if text))
        if len(texts) > MAX_TEXTS_PER_ITEM:
            raise ConfigurationError(
                f"An item has {len(texts):,} texts to index, over the limit of {MAX_TEXTS_PER_ITEM:,};"
                " name fewer fields in index=."
            )
        return texts

    def make_vectors(self, texts: Sequence[str], queries: Sequence[str]) -> Vectors:
        """Make the vectors; raises the embedder's errors."""
        text_vectors = self.embeddings.embed_documents(list(texts)) if texts else []
        query_vectors = [self.embeddings.embed_query(query) for query in queries]
        return self._vectors(texts, text_vectors, queries, query_vectors)

    async def amake_vectors(self, texts: Sequence[str], queries: Sequence[str]) -> Vectors:
        """Async twin of ``make_vectors``."""
        text_vectors = await self.embeddings.aembed_documents(list(texts)) if texts else []
        query_vectors = [await self.embeddings.aembed_query(query) for query in queries]
        return self._vectors(texts, text_vectors, queries, query_vectors)

    def _vectors(
        self,
        texts: Sequence[str],
        text_vectors: Sequence[Sequence[float]],
        queries: Sequence[str],
        query_vectors: Sequence[Sequence[float]],
    ) -> Vectors:
        if (count := len(text_vectors)) != len(texts):
            raise ConfigurationError(
                f"The embedder returned {count} vectors for {len(texts)} texts; each text needs one."
            )
        if not all(map(len, query_vectors)):
            raise PermanentModelError("The embedder refuses this query; ask in other words.")
        return Vectors(
            {  # an item is stored without the vector of a text that the embedder refuses
                text: vector_text(vector, self._dimensions)
                for text, vector in zip(texts, text_vectors, strict=True)
                if len(vector)
            },
            {
                query: vector_text(vector, self._dimensions)
                for query, vector in zip(queries, query_vectors, strict=True)
            },
        )


class _ContractEmbeddings(Embeddings):
    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [list(vector) for vector in self._embedder.embed(texts).vectors]

    def embed_query(self, text: str) -> list[float]:
        return list(self._embedder.embed([text]).vectors[0])


def _embeddings(embed: Any) -> Embeddings:
    if not isinstance(embed, Embeddings) and hasattr(embed, "embed") and hasattr(embed, "dimensions"):
        return _ContractEmbeddings(embed)
    if not isinstance(embed, (Embeddings, str)) and not callable(embed):
        raise ConfigurationError(
            f"index['embed'] is {quote(embed)}; give embeddings of LangChain, a function from texts to"
            f" vectors, or {OWN_EMBEDDER!r}."
        )
    try:
        return ensure_embeddings(embed)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"index['embed'] cannot be loaded: {error}") from error


def _distance(name: object) -> Distance:
    for distance in _DISTANCES:
        if name == distance:
            return distance  # type: ignore[no-any-return]  # of a Literal's own values
    raise ConfigurationError(
        f"index['distance_type'] is {quote(name)}; it must be one of {', '.join(_DISTANCES)}."
    )


def _paths(name: str, paths: object) -> list[str | list[str]]:
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, str) for path in paths):
        raise ConfigurationError(f"{name} is {quote(paths)}; it must be a list of paths, or False for none.")
    return [_WHOLE if path == _WHOLE else tokenize_path(path) for path in paths]
