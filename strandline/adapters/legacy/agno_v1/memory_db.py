"""Agno's ``MemoryDb`` over the facts of a namespace."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from agno.memory.v2.db.base import MemoryDb
from agno.memory.v2.db.schema import MemoryRow
from agno.memory.v2.schema import UserMemory

from strandline import ConfigurationError, Facts, InvalidMessageError
from strandline.adapters.legacy.agno_v1.memory_ids import MemoryIds
from strandline.adapters.legacy.agno_v1.user_memories import UserMemories
from strandline.producers.arguments import check_count
from strandline.producers.namespace_facts import OWNERS_PER_PAGE
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.wiring.environment import settings_with
from strandline.wiring.runtime import Pool, runtime_for

DEFAULT_LIMIT = 10
# Facts of so many users are kept ready; each is made again when needed.
MAX_READY = 1_024
# Agno's name for the user of a call that names none.
NO_USER = "default"

_FIELDS = frozenset({"memory_id", "memory", "topics", "input", "last_updated"})


class StrandlineMemoryDb(MemoryDb):
    """Agno's ``MemoryDb`` in Strandline's Postgres: user memories are facts of their users.

    Args:
        namespace: the tenant; nothing is shared between namespaces, and ``clear`` goes no further.
        database_url, pool, schema: as for ``strandline.Memory.from_defaults``.

    Raises:
        ConfigurationError: a setting cannot be used.
        InvalidMessageError: ``namespace`` is not a valid name.
    """

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        database_url: str | None = None,
        pool: Pool | None = None,
        schema: str | None = None,
    ) -> None:
        self.options: dict[str, Any] = {"database_url": database_url, "pool": pool, "schema": schema}
        settings = settings_with(database_url=database_url, database_schema=schema)
        ids = MemoryIds(runtime_for(settings, pool=pool, consume=None), namespace)
        facts_of = lru_cache(MAX_READY)(partial(_facts_of, namespace, self.options))
        self.memories = UserMemories(facts_of, ids)
        self._namespace_facts = Facts.of_namespace(namespace, **self.options)
        self.namespace = self._namespace_facts.namespace

    def create(self) -> None:
        """Look whether the tables are there, which `strandline migrate` makes.

        Raises:
            SchemaError: they are missing, or of another version.
        """
        self._namespace_facts.users(limit=1)

    def table_exists(self) -> bool:
        """True: without the tables, every call fails with an explanation."""
        return True

    def drop_table(self) -> None:
        """Refuse: the tables hold all namespaces."""
        raise ConfigurationError(
            "The tables hold the memories of all namespaces and are not dropped; clear() deletes those of"
            " this one."
        )

    def memory_exists(self, memory: MemoryRow) -> bool:
        """Whether the row's user has a live memory with this id."""
        return self.memories.get(memory.user_id or NO_USER, str(memory.id)) is not None

    def read_memories(
        self, user_id: str | None = None, limit: int | None = DEFAULT_LIMIT, sort: str | None = None
    ) -> list[MemoryRow]:
        """The memories of a user, or of all users of the namespace, one after the other.

        Args:
            limit: maximum number of rows; None: all.
            sort: ``"asc"`` for the oldest first; default: the newest first.

        Raises:
            ConfigurationError: ``limit`` is not a number of rows.
        """
        most = None if limit is None else check_count("limit", limit)
        rows: list[MemoryRow] = []
        for user in self._users() if user_id is None else [user_id]:
            left = None if most is None else most - len(rows)
            if left == 0:
                break
            memories = self.memories.page(user, limit=left, is_oldest_first=sort == "asc")
            rows += [_row(user, memory) for memory in memories]
        return rows

    def upsert_memory(self, memory: MemoryRow) -> MemoryRow:
        """Store a memory under the row's id, or give the one with this id other words; return the row.

        Raises:
            OwnerError: another user has a memory with this id; nothing was stored.
            InvalidMessageError: the row cannot be stored.
        """
        user_id = memory.user_id or NO_USER
        self.memories.put(user_id, _user_memory(memory))
        return memory

    def delete_memory(self, memory_id: str) -> None:
        """Delete a memory for good.

        Raises:
            NotFoundError: it was neither stored by its id, nor read here, so its user is not known.
        """
        self.memories.delete(memory_id)

    def clear(self) -> bool:
        """Delete all facts of all users of this namespace for good; others, and the messages, stay."""
        self._namespace_facts.clear(actor="agno")
        self.memories.forget_ids()
        return True

    def close(self) -> None:
        """Close the resources that this process shares; its memories cannot be used after that."""
        self._namespace_facts.close()

    def _users(self) -> list[str]:
        users: set[str] = set(self.memories.users())
        after: str | None = None
        while True:
            page = self._namespace_facts.users(limit=OWNERS_PER_PAGE, after=after)
            users.update(figures.user_id for figures in page if figures.user_id is not None)
            if page.after is None:
                return sorted(users)
            after = page.after


def _row(user_id: str, memory: UserMemory) -> MemoryRow:
    return MemoryRow(
        id=memory.memory_id, user_id=user_id, memory=memory.to_dict(), last_updated=memory.last_updated
    )


def _user_memory(row: MemoryRow) -> UserMemory:
    fields: dict[str, Any] = row.memory
    if unknown := sorted(set(fields) - _FIELDS):
        raise InvalidMessageError(
            "memory",
            f"has fields that no memory has: {', '.join(unknown)}",
            for_clients=InvalidMessageError.UNTOLD,
        )
    return UserMemory(
        memory=fields.get("memory", ""),
        topics=fields.get("topics"),
        input=fields.get("input"),
        memory_id=str(row.id),
    )


def _facts_of(namespace: str, options: dict[str, Any], user_id: str) -> Facts:
    return Facts.for_owner(user_id=user_id, namespace=namespace, **options)
