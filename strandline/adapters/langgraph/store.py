"""LangGraph's ``BaseStore`` over the items of a namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from langgraph.store.base import BaseStore, Op, Result, TTLConfig

from strandline.adapters.langgraph.operations import Batch
from strandline.adapters.langgraph.vector_index import NO_VECTORS, OWN_EMBEDDER, VectorIndex
from strandline.producers.audit.carrying_out import Recorder
from strandline.producers.execution import Closing, OperationRunner
from strandline.producers.items.operations import Answer, Request, answer_recorded
from strandline.producers.items.requests import check_ttl
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, check_name, item_store_key
from strandline.wiring.environment import settings_with
from strandline.wiring.runtime import Pool, runtime_for

_TTL_KEYS = frozenset({"default_ttl", "omit_expired", "refresh_on_read", "sweep_interval_minutes"})


class StrandlineStore(Closing, BaseStore):
    """A store of LangGraph in a table of its own, apart from Strandline's memory and facts.

    Sync and async methods may be used on one store, from any thread and event loop.  Making it does no I/O.
    Reads of a batch see the items as before it.  An item whose time is over is never shown; the sweep of
    any worker deletes it.

    Args:
        namespace: the tenant; stores of other namespaces neither see nor change its items.
        index: LangGraph's configuration of semantic search: ``embed`` (LangChain embeddings, a function of
            texts, sync or async, ``"provider:model"``, an embedder of Strandline's own contract, or
            ``"strandline"`` for the one of this process's settings), ``dims``, ``fields`` and
            ``distance_type`` (``cosine``, ``inner_product``, ``l2``); default: no semantic search, and a
            search's query is ignored, as in LangGraph's stores.
        ttl: LangGraph's configuration of expiry, in minutes: ``default_ttl`` and ``refresh_on_read``.
        database_url: Postgres; default ``STRANDLINE_DATABASE_URL``, else the embedded one.
        pool, schema: as for ``Memory.from_defaults``.

    Raises:
        ConfigurationError: an argument or a setting cannot be used.
        InvalidMessageError: ``namespace`` is not a valid name.

    All methods raise DatabaseUnavailableError if Postgres cannot be reached.
    """

    supports_ttl = True

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
        resources = runtime_for(settings, pool=pool, consume=None)
        self.namespace = check_name("namespace", namespace)
        self.ttl_config = _check_ttl_config(ttl)
        self._index = None if index is None else _vector_index(index, settings)
        self.index_config: dict[str, Any] | None = None if self._index is None else self._index.config
        self._resources = resources
        self._runner = OperationRunner(resources)
        self._key = item_store_key(self.namespace)
        # However many calls a loop begins at once, they do not wait for a connection against its time limit.
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry operations out in one transaction, and return their results in order.

        Raises:
            InvalidNamespaceError: a label of a namespace cannot be used.
            ConfigurationError, InvalidMessageError: another part of an operation cannot; nothing was done.
        """
        batch = self._read_batch(ops)
        vectors = NO_VECTORS
        if self._index is not None and (batch.texts or batch.queries):
            vectors = self._index.make_vectors(batch.texts, batch.queries)
        return batch.results(self._runner.run(self._answer(batch.requests(vectors))))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async twin of ``batch``."""
        batch = self._read_batch(ops)
        vectors = NO_VECTORS
        if self._index is not None and (batch.texts or batch.queries):
            vectors = await self._index.amake_vectors(batch.texts, batch.queries)
        async with self._turn():
            answers = await self._runner.arun(self._answer(batch.requests(vectors)))
        return batch.results(answers)

    def _read_batch(self, ops: Iterable[Op]) -> Batch:
        return Batch(ops, self._index, self._resources.settings.max_content_bytes)

    def _answer(self, requests: Sequence[Request]) -> Operation[list[Answer]]:
        recorder = Recorder(self.namespace, self._resources.compliance, self._resources.audit_levels)
        return answer_recorded(recorder, self._key, requests)

    def _turn(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if loop not in self._turns:
            self._turns[loop] = asyncio.Semaphore(max(1, self._resources.settings.pool_max_size // 2))
        return self._turns[loop]


def _check_ttl_config(config: TTLConfig | None) -> TTLConfig | None:
    if config is None:
        return None
    if unknown := sorted(set(config) - _TTL_KEYS):
        raise ConfigurationError(
            f"ttl has no key {quote(unknown[0])}; it has {', '.join(sorted(_TTL_KEYS))}."
        )
    if config.get("omit_expired") is False:
        raise ConfigurationError(
            "ttl has omit_expired=False; an item whose time is over is never shown here, so leave it out."
        )
    check_ttl(config.get("default_ttl"))
    return config


def _vector_index(config: Mapping[str, Any], settings: Settings) -> VectorIndex:
    if config.get("embed") != OWN_EMBEDDER:
        return VectorIndex(config)
    from strandline.pipelines.models.factory import build_embedder  # a model client, where it is asked for

    return VectorIndex({**config, "embed": build_embedder(settings)})
