"""A user's own Agno database whose methods for memories work on Strandline's facts; all else stays its own.

The overlay is an object of a class made for it: a subclass of the database's own, with the methods below
before it.  It shares the attributes of the database that was given, so both are one database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar, cast

from agno.db.base import AsyncBaseDb, BaseDb
from agno.db.schemas import UserMemory

from strandline.adapters.agno.memories import MemoryQuery, as_row
from strandline.adapters.agno.operations import MemoryOperations, MemoryPage
from strandline.producers.execution import OperationRunner, Resources
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.schemas.errors import ConfigurationError

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
    fields = {"_strandline": _Source(resources, namespace, actor)}
    overlaid: Any = object.__new__(type(f"{type(db).__name__}WithStrandline", (methods, type(db)), fields))
    overlaid.__dict__ = db.__dict__
    return cast(Db, overlaid)


class _Source:
    """Where the memories of an overlay are."""

    def __init__(self, resources: Resources, namespace: str, actor: str | None) -> None:
        self.runner = OperationRunner(resources)
        self.memories = MemoryOperations(resources, namespace, actor)
        self.facts = NamespaceFacts(resources, namespace)


class Memories:
    """The methods for memories of Agno's ``BaseDb``.

    Reads without a user go through the users of the namespace who have a session, at most 1,000 of them.
    A change names its user, and reaches no other's memories.
    """

    _strandline: ClassVar[_Source]

    def clear_memories(self) -> None:
        """Delete all memories of all users of the namespace for good, and of no other."""
        self._strandline.facts.clear(actor=self._strandline.memories.actor)

    def delete_user_memory(self, memory_id: str, user_id: str | None = None) -> None:
        self.delete_user_memories([memory_id], user_id)

    def delete_user_memories(self, memory_ids: Sequence[str], user_id: str | None = None) -> None:
        source = self._strandline
        source.runner.run(source.memories.delete(user_id, memory_ids))

    def get_all_memory_topics(self, user_id: str | None = None) -> list[str]:
        return self._strandline.runner.run(self._strandline.memories.topics(user_id))

    def get_user_memory(
        self, memory_id: str, deserialize: bool | None = True, user_id: str | None = None
    ) -> UserMemory | Row | None:
        memory = self._strandline.runner.run(self._strandline.memories.one(user_id, memory_id))
        return memory if memory is None or deserialize else as_row(memory)

    def get_user_memories(
        self,
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
    ) -> list[UserMemory] | tuple[list[Row], int]:
        query = MemoryQuery(
            topics, agent_id, team_id, search_content, limit, page, sort_by, sort_order != "asc"
        ).check()
        matches = self._strandline.runner.run(self._strandline.memories.page(user_id, query))
        return _as_asked(matches, deserialize)

    def get_user_memory_stats(
        self, limit: int | None = None, page: int | None = None, user_id: str | None = None
    ) -> tuple[list[Row], int]:
        query = MemoryQuery(limit=limit, page=page).check()
        return self._strandline.runner.run(self._strandline.memories.stats(user_id, query))

    def upsert_user_memory(self, memory: UserMemory, deserialize: bool | None = True) -> UserMemory | Row:
        source = self._strandline
        stored = source.runner.run(source.memories.upsert(memory))
        memory.memory_id = stored.memory_id
        return stored if deserialize else as_row(stored)

    def upsert_memories(
        self,
        memories: Sequence[UserMemory],
        deserialize: bool | None = True,
        preserve_updated_at: bool = False,
    ) -> list[UserMemory | Row]:
        return [self.upsert_user_memory(memory, deserialize) for memory in memories]


class AsyncMemories:
    """The methods for memories of Agno's ``AsyncBaseDb``, as ``Memories`` has them."""

    _strandline: ClassVar[_Source]

    async def clear_memories(self) -> None:
        """As ``Memories.clear_memories``."""
        await self._strandline.facts.aclear(actor=self._strandline.memories.actor)

    async def delete_user_memory(self, memory_id: str, user_id: str | None = None) -> None:
        await self.delete_user_memories([memory_id], user_id)

    async def delete_user_memories(self, memory_ids: Sequence[str], user_id: str | None = None) -> None:
        source = self._strandline
        await source.runner.arun(source.memories.delete(user_id, memory_ids))

    async def get_all_memory_topics(self, user_id: str | None = None) -> list[str]:
        return await self._strandline.runner.arun(self._strandline.memories.topics(user_id))

    async def get_user_memory(
        self, memory_id: str, deserialize: bool | None = True, user_id: str | None = None
    ) -> UserMemory | Row | None:
        memory = await self._strandline.runner.arun(self._strandline.memories.one(user_id, memory_id))
        return memory if memory is None or deserialize else as_row(memory)

    async def get_user_memories(
        self,
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
    ) -> list[UserMemory] | tuple[list[Row], int]:
        query = MemoryQuery(
            topics, agent_id, team_id, search_content, limit, page, sort_by, sort_order != "asc"
        ).check()
        matches = await self._strandline.runner.arun(self._strandline.memories.page(user_id, query))
        return _as_asked(matches, deserialize)

    async def get_user_memory_stats(
        self, limit: int | None = None, page: int | None = None, user_id: str | None = None
    ) -> tuple[list[Row], int]:
        query = MemoryQuery(limit=limit, page=page).check()
        return await self._strandline.runner.arun(self._strandline.memories.stats(user_id, query))

    async def upsert_user_memory(
        self, memory: UserMemory, deserialize: bool | None = True
    ) -> UserMemory | Row:
        source = self._strandline
        stored = await source.runner.arun(source.memories.upsert(memory))
        memory.memory_id = stored.memory_id
        return stored if deserialize else as_row(stored)

    async def upsert_memories(
        self,
        memories: Sequence[UserMemory],
        deserialize: bool | None = True,
        preserve_updated_at: bool = False,
    ) -> list[UserMemory | Row]:
        return [await self.upsert_user_memory(memory, deserialize) for memory in memories]


def _as_asked(page: MemoryPage, deserialize: bool | None) -> list[UserMemory] | tuple[list[Row], int]:
    return page.memories if deserialize else ([as_row(memory) for memory in page.memories], page.total)
