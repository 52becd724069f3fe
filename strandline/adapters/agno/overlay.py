"""A user's own Agno database whose methods for memories work on Strandline's facts; all else stays its own.

The overlay is an object of a class made for it: a subclass of the database's own, with the methods below
before it.  It shares the attributes of the database that was given, so both are one database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from agno.db.base import AsyncBaseDb, BaseDb
from agno.db.schemas import UserMemory

from strandline.adapters.agno.memories import MemoryQuery, as_row
from strandline.adapters.agno.operations import MemoryOperations
from strandline.producers.execution import OperationRunner, Resources, async_method, sync_method
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation

Db = TypeVar("Db", bound=BaseDb | AsyncBaseDb)
Row = dict[str, Any]


def overlay_memories(db: Db, resources: Resources, namespace: str, actor: str | None) -> Db:
    """The database with the memories of a namespace in the place of its own.

    Raises:
        ConfigurationError: ``db`` is not an object of Agno's ``BaseDb`` or ``AsyncBaseDb``.
    """
    if not isinstance(db, BaseDb | AsyncBaseDb):
        raise ConfigurationError(
            f"db is of the type {type(db).__name__}; give a database of Agno, such as SqliteDb."
        )
    methods = AsyncMemories if isinstance(db, AsyncBaseDb) else Memories
    source = _Source(
        MemoryOperations(resources, namespace, actor),
        OperationRunner(resources),
        NamespaceFacts(resources, namespace),
    )
    fields = {"_strandline": source}
    overlaid: Any = object.__new__(type(f"{type(db).__name__}WithStrandline", (methods, type(db)), fields))
    overlaid.__dict__ = db.__dict__
    return cast(Db, overlaid)


class _Source(NamedTuple):
    memories: MemoryOperations
    runner: OperationRunner
    facts: NamespaceFacts


class _Overlay:
    _strandline: ClassVar[_Source]

    @property
    def _subject(self) -> MemoryOperations:
        return self._strandline.memories

    @property
    def _runner(self) -> OperationRunner:
        return self._strandline.runner


def _delete_user_memory(
    memories: MemoryOperations, memory_id: str, user_id: str | None = None
) -> Operation[None]:
    return memories.delete(user_id, [memory_id])


def _delete_user_memories(
    memories: MemoryOperations, memory_ids: Sequence[str], user_id: str | None = None
) -> Operation[None]:
    return memories.delete(user_id, memory_ids)


def _get_all_memory_topics(memories: MemoryOperations, user_id: str | None = None) -> Operation[list[str]]:
    return memories.topics(user_id)


def _get_user_memory(
    memories: MemoryOperations, memory_id: str, deserialize: bool | None = True, user_id: str | None = None
) -> Operation[UserMemory | Row | None]:
    memory = yield from memories.one(user_id, memory_id)
    return memory if memory is None or deserialize else as_row(memory)


def _get_user_memories(
    memories: MemoryOperations,
    user_id: str | None = None,
    agent_id: str | None = None,
    team_id: str | None = None,
    topics: list[str] | None = None,
    search_content: str | None = None,
    limit: int | None = None,
    page: int | None = None,
    sort_by: str | None = None,
    sort_order: str | None = None,
    deserialize: bool | None = True,
) -> Operation[list[UserMemory] | tuple[list[Row], int]]:
    query = MemoryQuery(
        topics, agent_id, team_id, search_content, limit, page, sort_by, sort_order != "asc"
    ).check()
    matches = yield from memories.page(user_id, query)
    if deserialize:
        return matches.memories
    return [as_row(memory) for memory in matches.memories], matches.total


def _get_user_memory_stats(
    memories: MemoryOperations, limit: int | None = None, page: int | None = None, user_id: str | None = None
) -> Operation[tuple[list[Row], int]]:
    return memories.stats(user_id, MemoryQuery(limit=limit, page=page).check())


def _upsert_user_memory(
    memories: MemoryOperations, memory: UserMemory, deserialize: bool | None = True
) -> Operation[UserMemory | Row]:
    stored = yield from memories.upsert(memory)
    memory.memory_id = stored.memory_id
    return stored if deserialize else as_row(stored)


class Memories(_Overlay):
    """The methods for memories of Agno's ``BaseDb``.

    Reads without a user go through the namespace's users with a session, at most 1,000.
    A change names its user, and reaches only that user's memories.
    """

    delete_user_memory = sync_method(_delete_user_memory)
    delete_user_memories = sync_method(_delete_user_memories)
    get_all_memory_topics = sync_method(_get_all_memory_topics)
    get_user_memory = sync_method(_get_user_memory)
    get_user_memories = sync_method(_get_user_memories)
    get_user_memory_stats = sync_method(_get_user_memory_stats)
    upsert_user_memory = sync_method(_upsert_user_memory)

    def clear_memories(self) -> None:
        """Delete all memories of all users of the namespace for good, and of no other."""
        self._strandline.facts.clear(actor=self._strandline.memories.actor)

    def upsert_memories(
        self,
        memories: Sequence[UserMemory],
        deserialize: bool | None = True,
        preserve_updated_at: bool = False,
    ) -> list[UserMemory | Row]:
        return [self.upsert_user_memory(memory, deserialize) for memory in memories]


class AsyncMemories(_Overlay):
    """The methods for memories of Agno's ``AsyncBaseDb``, as ``Memories`` has them."""

    delete_user_memory = async_method(_delete_user_memory)
    delete_user_memories = async_method(_delete_user_memories)
    get_all_memory_topics = async_method(_get_all_memory_topics)
    get_user_memory = async_method(_get_user_memory)
    get_user_memories = async_method(_get_user_memories)
    get_user_memory_stats = async_method(_get_user_memory_stats)
    upsert_user_memory = async_method(_upsert_user_memory)

    async def clear_memories(self) -> None:
        """As ``Memories.clear_memories``."""
        await self._strandline.facts.aclear(actor=self._strandline.memories.actor)

    async def upsert_memories(
        self,
        memories: Sequence[UserMemory],
        deserialize: bool | None = True,
        preserve_updated_at: bool = False,
    ) -> list[UserMemory | Row]:
        return [await self.upsert_user_memory(memory, deserialize) for memory in memories]
