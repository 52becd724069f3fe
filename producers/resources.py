"""The resources that a memory needs from its process: databases, a doorbell, an embedder for queries.

The composition root supplies it.  A ``Memory`` itself holds no connection, so making one costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from strandline.producers.reading.window_cache import WindowCache
from strandline.producers.writing.group_commit import GroupCommit
from strandline.schemas.postgres.async_database import AsyncDatabase
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import Lane


class Resources(Protocol):
    """Shared by all memories of a process that name the same database."""

    @property
    def settings(self) -> Settings: ...

    @property
    def windows(self) -> WindowCache:
        """The windows that this process has read before."""
        ...

    def database(self) -> Database:
        """The process's pool; the first call opens it (and starts the embedded Postgres)."""
        ...

    async def async_database(self) -> AsyncDatabase:
        """The running event loop's pool; the first call opens it."""
        ...

    async def group_commit(self) -> GroupCommit:
        """The group commit of the running event loop's puts; made at the first call."""
        ...

    def ring(self, lanes: Iterable[Lane]) -> None:
        """Tell the workers that these lanes have work; never blocks, never fails."""
        ...

    def embed_query(self, text: str, config: Mapping[str, Any]) -> str | None:
        """The query's vector as pgvector text, or None if this process lacks the embedder of ``config``.

        Raises:
            ModelError: the embedder failed or ran out of its time budget.
        """
        ...

    def close(self) -> None:
        """Release the process's pools, threads and embedded servers."""
        ...

    async def aclose(self) -> None:
        """Async twin of ``close``; closes the running loop's pool as well."""
        ...
