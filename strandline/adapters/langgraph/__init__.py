"""LangGraph: ``StrandlineStore``, for ``graph.compile(store=…)`` and wherever a ``BaseStore`` is taken.

pip install 'strandline[langgraph]'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.store.base import TTLConfig

from strandline.adapters.langgraph.store import ItemStore
from strandline.adapters.langgraph.vector_index import OWN_EMBEDDER, VectorIndex
from strandline.pipelines.models.contract import Embedder
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.wiring.environment import settings_with
from strandline.wiring.runtime import Pool, runtime_for

__all__ = ["StrandlineStore"]


class StrandlineStore(ItemStore):
    """A store of LangGraph in a table of its own, beside Strandline's memory and not mapped onto facts.

    Sync and async methods may be used on one store, from any thread and event loop.  Making it does no I/O.

    Args:
        namespace: the tenant; stores of other namespaces neither see nor change its items.
        index: LangGraph's configuration of semantic search: ``embed`` (LangChain embeddings, a function of
            texts, sync or async, ``"provider:model"``, an embedder of Strandline's own contract, or
            ``"strandline"`` for the one of this process's settings), ``dims``, ``fields`` and
            ``distance_type`` (``cosine``, ``inner_product``, ``l2``); default: no semantic search.
        ttl: LangGraph's configuration of expiry, in minutes: ``default_ttl`` and ``refresh_on_read``.
        database_url: Postgres; default ``STRANDLINE_DATABASE_URL``, else the embedded one.
        pool, schema: as for ``Memory.from_defaults``.

    Raises:
        ConfigurationError: an argument or a setting cannot be used.
        InvalidMessageError: ``namespace`` is not a valid name.
    """

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        index: Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
        database_url: str | None = None,
        pool: Pool | None = None,
        schema: str | None = None,
    ) -> None:
        settings = settings_with(database_url=database_url, database_schema=schema)
        super().__init__(
            runtime_for(settings, pool=pool, consume=None),
            namespace,
            index=None if index is None else _vector_index(index, settings),
            ttl=ttl,
        )


def _vector_index(config: Mapping[str, Any], settings: Settings) -> VectorIndex:
    if config.get("embed") == OWN_EMBEDDER:
        return VectorIndex({**config, "embed": _own_embedder(settings)})
    return VectorIndex(config)


def _own_embedder(settings: Settings) -> Embedder:
    from strandline.pipelines.models.factory import build_embedder  # a model client, where it is asked for

    return build_embedder(settings)
