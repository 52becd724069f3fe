"""What Agno does with user memories, as operations on the facts of a namespace's users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
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
from strandline.pipelines.facts.editing.recording import clear_facts, delete_fact, edit_facts, judge_fact
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.facts.edit_operations import (
    Wording,
    add_fact,
    checked_feedback,
    redact_feedback,
    redact_wording,
    replace_fact,
)
from strandline.producers.facts.figures import MAX_TOPICS_LISTED, owner_topics
from strandline.producers.facts.listing import Fact, FactFilter, FactPage, PageRequest, get_fact, list_facts
from strandline.producers.search.facts import search_facts
from strandline.producers.search.query import EmbedQuery
from strandline.schemas.errors import ConflictError, InvalidMessageError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.sessions import UsersPage
from strandline.schemas.queries.work.limits import AgentsMayWrite
from strandline.schemas.values.identity import Owner, identify_user

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


def owners_of(namespace: str, user_id: str | None) -> Operation[list[Owner]]:
    """The user's facts; without a user, those of all users of the namespace.

    Raises:
        InvalidMessageError: there are too many users for one read, or ``user_id`` is not a valid name.
    """
    if user_id is not None:
        return [identify_user(namespace, user_id)]
    names: list[str] = []
    after = ""
    while len(names) <= MAX_USERS_PER_READ:
        rows = yield from fetch(UsersPage(namespace=namespace, after=after, limit=_USERS_PER_PAGE))
        names += [row.user_id for row in rows]
        if len(rows) < _USERS_PER_PAGE:
            return [identify_user(namespace, name) for name in names]
        after = names[-1]
    raise InvalidMessageError("user_id", f"is missing, and there are more than {MAX_USERS_PER_READ:,} users")


def read_memories(namespace: str, user_id: str | None, query: MemoryQuery) -> Operation[MemoryPage]:
    """The memories that match, in order."""
    owners = yield from owners_of(namespace, user_id)
    if len(owners) == 1 and query.sort_by is None and query.limit is not None:
        page = yield from _page(owners[0], query, query.limit, query.offset)
        return MemoryPage(memories_of(page), page.total)
    memories: list[UserMemory] = []
    for owner in owners:
        memories += yield from _all_memories(owner, query)
    return MemoryPage(query.cut(memories), len(memories))


def read_memory(namespace: str, user_id: str | None, memory_id: str) -> Operation[UserMemory | None]:
    """The live memory with this id; None if there is none."""
    for owner in (yield from owners_of(namespace, user_id)):
        fact = yield from get_fact(owner, fact_id_of(owner, memory_id))
        if fact is not None and fact.is_live:
            return memory_of(fact, memory_id)
    return None


def relevant_memories(
    owner: Owner, question: str, limit: int, embed_query: EmbedQuery
) -> Operation[list[UserMemory]]:
    """At most ``limit`` memories, oldest first: all of them, if there are no more; else those that fit the
    question best, and some of the newest.
    """
    newest = yield from list_facts(owner, PageRequest(limit), FactFilter())
    if newest.total <= limit or not limit:
        return memories_of(reversed(newest))
    hits = yield from search_facts(owner, question, limit, FactFilter(), embed_query)
    return memories_of(pick_facts(newest, (hit.fact for hit in hits), limit))


def upsert_memory(
    namespace: str, memory: UserMemory, actor: str | None, redaction: Redaction | None
) -> Operation[UserMemory]:
    """Add a memory under its id, or give the live one with this id other words, topics and feedback.

    Raises:
        InvalidMessageError: it names no user, or a field cannot be stored, or is refused.
        RedactionError: a redaction hook failed.
        UnknownPipelineError: no worker has registered facts in this database.
    """
    if memory.user_id is None:
        raise InvalidMessageError("user_id", "is missing; a memory belongs to a user")
    owner = identify_user(namespace, memory.user_id)
    wording = Wording.check(
        memory.memory,
        topics=memory.topics,
        input=memory.input or None,
        agent_id=memory.agent_id or None,
        team_id=memory.team_id or None,
    )
    words = yield from _redact_words(memory, wording, redaction)
    fact = yield from edit_facts(owner.shard_key, partial(_upsert, owner, words, actor))
    has_own_id = memory.memory_id is not None and fact.fact_id == fact_id_of(owner, memory.memory_id)
    return memory_of(fact, memory.memory_id if has_own_id else None)


def delete_memories(
    namespace: str, user_id: str | None, memory_ids: Sequence[str], actor: str | None
) -> Operation[int]:
    """Delete a user's memories for good; returns how many there were. Ids of other users change nothing.

    Raises:
        InvalidMessageError: no user is named.
    """
    if user_id is None:
        raise InvalidMessageError("user_id", "is missing; only a user's own memories can be deleted by id")
    owner = identify_user(namespace, user_id)
    ids = [fact_id_of(owner, memory_id) for memory_id in memory_ids]

    def change() -> Operation[int]:
        deleted = 0
        for fact_id in ids:
            deleted += yield from delete_fact(owner.shard_key, fact_id, actor)
        return deleted

    return (yield from edit_facts(owner.shard_key, change)) if ids else 0


def snapshot(namespace: str, user_id: str, memories: Sequence[UserMemory]) -> Snapshot:
    """By which memories are known to be as they were, whatever a caller does with the objects."""
    owner = identify_user(namespace, user_id)
    return {
        fact_id_of(owner, str(memory.memory_id)): (memory.memory, tuple(memory.topics or ()))
        for memory in memories
    }


def exchange_memories(
    namespace: str,
    user_id: str,
    before: Snapshot,
    after: Sequence[UserMemory],
    actor: str | None,
    redaction: Redaction | None,
) -> Operation[list[UserMemory]]:
    """Put other memories in the place of a user's, all or none; returns all of them as they are then.

    What was added since ``before`` stays.

    Raises:
        ConflictError: one of the memories of ``before`` was changed or deleted since.
        InvalidMessageError: one of the others cannot be stored.
    """
    owner = identify_user(namespace, user_id)
    wordings: list[_Words] = []
    for memory in after:
        wording = Wording.check(memory.memory, topics=memory.topics)
        wordings.append((yield from _redact_words(memory, wording, redaction)))

    def change() -> Operation[list[UserMemory]]:
        present = snapshot(namespace, user_id, (yield from _all_memories(owner, MemoryQuery())))
        if not before.items() <= present.items():
            raise ConflictError(
                "A memory was changed or deleted while the strategy worked; nothing was changed. Optimize"
                " again."
            )
        kept: set[UUID] = set()
        for words in wordings:
            kept.add((yield from _upsert(owner, words, actor)).fact_id)
        for fact_id in before.keys() - kept:
            yield from delete_fact(owner.shard_key, fact_id, actor)
        return (yield from _all_memories(owner, MemoryQuery()))

    return (yield from edit_facts(owner.shard_key, change))


def clear_user(namespace: str, user_id: str, actor: str | None) -> Operation[int]:
    """Delete all of a user's memories for good; returns how many were live."""
    owner = identify_user(namespace, user_id)
    return (yield from edit_facts(owner.shard_key, partial(clear_facts, owner.shard_key, actor)))


def list_topics(namespace: str, user_id: str | None) -> Operation[list[str]]:
    """All topics, the most frequent of the first user first, each once."""
    topics: dict[str, None] = {}
    for owner in (yield from owners_of(namespace, user_id)):
        for counted in (yield from owner_topics(owner, MAX_TOPICS_LISTED)):
            topics[counted.topic] = None
    return list(topics)


def user_stats(
    namespace: str, user_id: str | None, query: MemoryQuery
) -> Operation[tuple[list[dict[str, Any]], int]]:
    """Per user the number of memories and when the last one changed, the latest first; and how many users."""
    stats: list[dict[str, Any]] = []
    for owner in (yield from owners_of(namespace, user_id)):
        latest = yield from list_facts(owner, PageRequest(1, sort="updated"), FactFilter())
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


def agents_may_write(namespace: str) -> Operation[bool]:
    """Whether agents may change memories in this namespace."""
    rows = yield from fetch(AgentsMayWrite(namespace=namespace))
    return rows[0].may_write


def _page(owner: Owner, query: MemoryQuery, limit: int, offset: int) -> Operation[FactPage]:
    filters = FactFilter.check(query.topics, query.agent_id, query.team_id)
    page = PageRequest.check(limit, offset, "oldest", query.contains)
    return (yield from list_facts(owner, page, filters))


def _all_memories(owner: Owner, query: MemoryQuery) -> Operation[list[UserMemory]]:
    """All of an owner's memories that match, page by page."""
    page = yield from _page(owner, query, MAX_MEMORIES_PER_READ, 0)
    facts = list(page)
    while len(facts) < page.total and page:
        page = yield from _page(owner, query, MAX_MEMORIES_PER_READ, len(facts))
        facts += page
    return memories_of(facts)


@dataclass(frozen=True, slots=True)
class _Words:
    """What a memory is to say, as it may be stored."""

    memory_id: str | None
    wording: Wording
    feedback: str | None


def _redact_words(memory: UserMemory, wording: Wording, redaction: Redaction | None) -> Operation[_Words]:
    wording = yield from redact_wording(wording, redaction)
    feedback = checked_feedback(memory.feedback or None)
    return _Words(memory.memory_id, wording, (yield from redact_feedback(feedback, redaction)))


def _upsert(owner: Owner, words: _Words, actor: str | None) -> Operation[Fact]:
    id_ = None if words.memory_id is None else fact_id_of(owner, words.memory_id)
    wording, feedback = words.wording, words.feedback
    known = None if id_ is None else (yield from get_fact(owner, id_))
    if known is None or not known.is_live:
        fact_id = yield from add_fact(owner, wording, actor, fact_id=id_)
    elif _is_said(known, wording):
        fact_id = known.fact_id
    else:
        anew = replace(wording, input=None, agent_id=None, team_id=None)
        fact_id = (yield from replace_fact(owner.shard_key, known.fact_id, anew, actor)) or known.fact_id
    fact = yield from _stored_fact(owner, fact_id)
    if feedback is None or feedback == fact.feedback:
        return fact
    yield from judge_fact(owner.shard_key, fact_id, feedback, actor)
    return (yield from _stored_fact(owner, fact_id))


def _stored_fact(owner: Owner, fact_id: UUID) -> Operation[Fact]:
    fact = yield from get_fact(owner, fact_id)
    assert fact is not None, "it was written in this transaction"  # noqa: S101
    return fact


def _is_said(known: Fact, wording: Wording) -> bool:
    return known.text == wording.text and wording.topics in (None, known.topics)
