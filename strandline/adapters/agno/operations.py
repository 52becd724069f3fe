"""Agno's acts on user memories, as operations on the facts of a namespace's users.

Each is the act, or the acts, that the methods for facts are: the compliance hook is asked, and the audit
trail has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

from agno.db.schemas import UserMemory

from strandline.adapters.agno.memories import (
    MAX_MEMORIES_PER_READ,
    MemoryQuery,
    fact_id_of,
    memories_of,
    memory_of,
)
from strandline.adapters.relevant_facts import pick_facts
from strandline.pipelines.audit.appending import Act
from strandline.producers.audit.carrying_out import Recorder
from strandline.producers.execution import Resources
from strandline.producers.facts.edit_operations import (
    Wording,
    checked_feedback,
    redact_feedback,
    redact_wording,
)
from strandline.producers.facts.edits import FactChanges, FactEdits
from strandline.producers.facts.figures import MAX_TOPICS_LISTED, owner_topics
from strandline.producers.facts.listing import Fact, FactFilter, FactPage, PageRequest, get_fact, list_facts
from strandline.producers.search.facts import search_facts
from strandline.schemas.errors import ConflictError, InvalidMessageError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.sessions import UsersPage
from strandline.schemas.queries.work.limits import AgentsMayWrite
from strandline.schemas.values.identity import Owner, check_name, identify_user

T = TypeVar("T")

# A read without a user goes through at most so many.
MAX_USERS_PER_READ = 1_000
_USERS_PER_PAGE = 200


# Text and topics of memories, by the fact's id.
Snapshot = Mapping[UUID, tuple[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Memories that match, and the number of all that do."""

    memories: list[UserMemory]
    total: int


class MemoryOperations:
    """The memories of the users of a namespace.

    Args:
        resources: of this process.
        namespace: the tenant.
        actor: the name that changes are recorded with.

    Raises:
        InvalidMessageError: ``namespace`` is not a valid name.
    """

    def __init__(self, resources: Resources, namespace: str, actor: str | None) -> None:
        self.namespace = check_name("namespace", namespace)
        self.actor = actor
        self._resources = resources

    # Reads.

    def page(self, user_id: str | None, query: MemoryQuery) -> Operation[MemoryPage]:
        """The memories that match, in order; without a user, those of all users of the namespace.

        Raises:
            InvalidMessageError: there are too many users for one read, or ``user_id`` is not a valid name.
        """
        owners = yield from self._owners(user_id)
        if len(owners) == 1 and query.sort_by is None and query.limit is not None:
            page = yield from self._read(owners[0], _page(owners[0], query, query.limit, query.offset))
            return MemoryPage(memories_of(page), page.total)
        memories: list[UserMemory] = []
        for owner in owners:
            memories += yield from self._read(owner, _all_memories(owner, query))
        return MemoryPage(query.cut(memories), len(memories))

    def all(self, user_id: str) -> Operation[list[UserMemory]]:
        """All memories of a user."""
        return (yield from self.page(user_id, MemoryQuery())).memories

    def one(self, user_id: str | None, memory_id: str) -> Operation[UserMemory | None]:
        """The live memory with this id; None if no live memory has it."""
        for owner in (yield from self._owners(user_id)):
            fact = yield from self._read(owner, get_fact(owner, fact_id_of(owner, memory_id)))
            if fact is not None and fact.is_live:
                return memory_of(fact, memory_id)
        return None

    def relevant(self, user_id: str, question: str, limit: int) -> Operation[list[UserMemory]]:
        """At most ``limit`` memories, oldest first; if there are more, the best matches and some of the
        newest.
        """
        owner, filters = identify_user(self.namespace, user_id), FactFilter()
        newest = yield from self._read(owner, list_facts(owner, PageRequest(limit), filters))
        if len(newest) == newest.total or not limit:
            return memories_of(reversed(newest))
        search = search_facts(owner, question, limit, filters, self._resources.embed_query)
        hits = yield from self._read(owner, search, "facts.search")
        return memories_of(pick_facts(newest, (hit.fact for hit in hits), limit))

    def topics(self, user_id: str | None) -> Operation[list[str]]:
        """All topics, the most frequent of the first user first, each once."""
        topics: dict[str, None] = {}
        for owner in (yield from self._owners(user_id)):
            for counted in (yield from self._read(owner, owner_topics(owner, MAX_TOPICS_LISTED))):
                topics[counted.topic] = None
        return list(topics)

    def stats(self, user_id: str | None, query: MemoryQuery) -> Operation[tuple[list[dict[str, Any]], int]]:
        """Per user the number of memories and when the last one changed, the latest first; and how many
        users.
        """
        stats: list[dict[str, Any]] = []
        for owner in (yield from self._owners(user_id)):
            last = list_facts(owner, PageRequest(1, sort="updated"), FactFilter())
            latest = yield from self._read(owner, last)
            if latest:
                stats.append(
                    {
                        "user_id": owner.user_id,
                        "total_memories": latest.total,
                        "last_memory_updated_at": int(latest[0].updated_at.timestamp()),
                    }
                )
        stats.sort(key=lambda row: row["last_memory_updated_at"], reverse=True)
        rows = stats[query.offset :]
        return (rows if query.limit is None else rows[: query.limit]), len(stats)

    def agents_may_write(self) -> Operation[bool]:
        """Whether agents may change memories in this namespace."""
        rows = yield from fetch(AgentsMayWrite(namespace=self.namespace))
        return rows[0].may_write

    # Changes.

    def upsert(self, memory: UserMemory) -> Operation[UserMemory]:
        """Add a memory under its id, or give the live one with this id other words, topics and feedback.

        Raises:
            InvalidMessageError: it names no user, or a field cannot be stored, or is refused.
            RedactionError: a redaction hook failed.
            UnknownPipelineError: no worker has registered facts in this database.
        """
        if memory.user_id is None:
            raise InvalidMessageError("user_id", "is missing; a memory belongs to a user")
        edits = self._edits(memory.user_id)
        wording = Wording.check(
            memory.memory,
            topics=memory.topics,
            input=memory.input or None,
            agent_id=memory.agent_id or None,
            team_id=memory.team_id or None,
        )
        id_ = None if memory.memory_id is None else fact_id_of(edits.owner, memory.memory_id)
        fact = yield from edits.put(id_, wording, checked_feedback(memory.feedback or None))
        return memory_of(fact, memory.memory_id if fact.fact_id == id_ else None)

    def delete(self, user_id: str | None, memory_ids: Sequence[str]) -> Operation[None]:
        """Delete a user's memories for good, one after the other. Ids of other users change nothing.

        Raises:
            InvalidMessageError: no user is named.
        """
        if user_id is None:
            raise InvalidMessageError(
                "user_id", "is missing; only a user's own memories can be deleted by id"
            )
        edits = self._edits(user_id)
        for fact_id in [fact_id_of(edits.owner, memory_id) for memory_id in memory_ids]:
            yield from edits.delete(fact_id)

    def clear(self, user_id: str) -> Operation[int]:
        """Delete all of a user's memories for good; returns how many were live."""
        return self._edits(user_id).clear()

    def exchange(
        self, user_id: str, before: Snapshot, after: Sequence[UserMemory]
    ) -> Operation[list[UserMemory]]:
        """Replace memories of a user, all or none; returns the user's memories afterwards.

        Memories added since ``before`` stay.

        Raises:
            ConflictError: one of the memories of ``before`` was changed or deleted since.
            InvalidMessageError: a new memory cannot be stored.
        """
        edits = self._edits(user_id)
        owner, changes = edits.owner, FactChanges(edits.owner, self.actor)
        rewritten: list[tuple[UUID | None, Wording, str | None]] = []
        for memory in after:
            id_ = None if memory.memory_id is None else fact_id_of(owner, memory.memory_id)
            wording = Wording.check(memory.memory, topics=memory.topics)
            wording = yield from redact_wording(wording, edits.redaction)
            feedback = checked_feedback(memory.feedback or None)
            rewritten.append((id_, wording, (yield from redact_feedback(feedback, edits.redaction))))

        def change() -> Operation[list[UserMemory]]:
            present = self.snapshot(user_id, (yield from _all_memories(owner, MemoryQuery())))
            if not before.items() <= present.items():
                raise ConflictError(
                    "A memory was changed or deleted while the strategy worked; nothing was changed. Optimize"
                    " again."
                )
            kept: set[UUID] = set()
            for id_, wording, feedback in rewritten:
                kept.add((yield from changes.put(id_, wording, feedback)).fact_id)
            for fact_id in before.keys() - kept:
                yield from changes.delete(fact_id)
            return (yield from _all_memories(owner, MemoryQuery()))

        def describe(act: Act, _memories: object) -> Act:
            return replace(act, count=len(rewritten))

        words = "\n".join(wording.text for _id, wording, _feedback in rewritten)
        return (yield from edits.edit("facts.optimize", change, describe, text=words))

    def snapshot(self, user_id: str, memories: Sequence[UserMemory]) -> Snapshot:
        """A copy to compare memories with, even if a caller changes the objects."""
        owner = identify_user(self.namespace, user_id)
        return {
            fact_id_of(owner, str(memory.memory_id)): (memory.memory, tuple(memory.topics or ()))
            for memory in memories
        }

    def _edits(self, user_id: str) -> FactEdits:
        owner = identify_user(self.namespace, user_id)
        return FactEdits(owner, self.actor, self._recorder(owner), self._resources.redaction)

    def _read(self, owner: Owner, reading: Operation[T], kind: str = "facts.read") -> Operation[T]:
        return self._recorder(owner).record_read(kind, reading)

    def _recorder(self, whom: Owner | str) -> Recorder:
        return Recorder(whom, self._resources.compliance, self._resources.audit_levels)

    def _owners(self, user_id: str | None) -> Operation[list[Owner]]:
        if user_id is not None:
            return [identify_user(self.namespace, user_id)]
        act = Act.here("directory.read")
        names = yield from self._recorder(self.namespace).read(act, _users(self.namespace))
        return [identify_user(self.namespace, name) for name in names]


def _users(namespace: str) -> Operation[list[str]]:
    """The users of a namespace.

    Raises:
        InvalidMessageError: there are too many for one read.
    """
    names: list[str] = []
    after = ""
    while len(names) <= MAX_USERS_PER_READ:
        rows = yield from fetch(UsersPage(namespace=namespace, after=after, limit=_USERS_PER_PAGE))
        names += [row.user_id for row in rows]
        if len(rows) < _USERS_PER_PAGE:
            return names
        after = names[-1]
    raise InvalidMessageError("user_id", f"is missing, and there are more than {MAX_USERS_PER_READ:,} users")


def _page(owner: Owner, query: MemoryQuery, limit: int, offset: int) -> Operation[FactPage]:
    filters = FactFilter.check(query.topics, query.agent_id, query.team_id)
    page = PageRequest.check(limit, offset, "oldest", query.contains)
    return (yield from list_facts(owner, page, filters))


def _all_memories(owner: Owner, query: MemoryQuery) -> Operation[list[UserMemory]]:
    """All of an owner's memories that match, page by page."""
    page = yield from _page(owner, query, MAX_MEMORIES_PER_READ, 0)
    facts: list[Fact] = list(page)
    while len(facts) < page.total and page:
        page = yield from _page(owner, query, MAX_MEMORIES_PER_READ, len(facts))
        facts += page
    return memories_of(facts)
