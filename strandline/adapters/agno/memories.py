"""Facts as Agno's user memories, and the other way round: fields, ids, filters, order, and what changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid5

from agno.db.schemas import UserMemory

from strandline.producers.arguments import check_count
from strandline.producers.facts.listing import Fact, as_fact_id
from strandline.producers.facts.optimizing import Optimization
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.identity import Owner

# Whom Agno's manager takes where no user is named.
DEFAULT_USER = "default"

MAX_MEMORIES_PER_READ = 1_000

_SORT_FIELDS = frozenset(
    {"memory", "memory_id", "user_id", "agent_id", "team_id", "created_at", "updated_at", "input", "feedback"}
)


def user_or_default(user_id: str | None) -> str:
    return DEFAULT_USER if user_id is None else user_id


def memory_of(fact: Fact, memory_id: str | None = None) -> UserMemory:
    """A fact as a memory; ``memory_id``: the id by which the caller asked for it."""
    return UserMemory(
        memory=fact.text,
        memory_id=memory_id or str(fact.fact_id),
        topics=list(fact.topics) or None,
        user_id=fact.user_id,
        input=fact.input,
        created_at=int(fact.created_at.timestamp()),
        updated_at=int(fact.updated_at.timestamp()),
        feedback=fact.feedback,
        agent_id=fact.agent_id,
        team_id=fact.team_id,
    )


def memories_of(facts: Iterable[Fact]) -> list[UserMemory]:
    return [memory_of(fact) for fact in facts]


def as_row(memory: UserMemory) -> dict[str, Any]:
    """A memory as Agno's databases give it without ``deserialize``: times as seconds."""
    return asdict(memory)


def fact_id_of(owner: Owner, memory_id: str) -> UUID:
    """The fact's id for a caller's id: a UUID stays; other text gives a derived one.

    Raises:
        InvalidMessageError: it is empty, or not text.
    """
    if not isinstance(memory_id, str) or not memory_id:
        raise InvalidMessageError("memory_id", "must be a text that is not empty")
    return as_fact_id(memory_id) or uuid5(owner.shard_key, memory_id)


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """The parameters of Agno's ``get_user_memories``.

    Attributes:
        topics: memories with one of these.
        contains: memories whose text contains this, ignoring case.
        limit: how many at most; None: up to 1,000.
        page: the number of the page of ``limit`` memories, from 1.
        sort_by: a field; None, or an unknown field: in the order of the conversation.
        is_descending: the largest first.
    """

    topics: Sequence[str] | None = None
    agent_id: str | None = None
    team_id: str | None = None
    contains: str | None = None
    limit: int | None = None
    page: int | None = None
    sort_by: str | None = None
    is_descending: bool = True

    def check(self) -> MemoryQuery:
        """Check the numbers of a caller.

        Raises:
            ConfigurationError: one is out of bounds.
            InvalidMessageError: ``page`` stands without ``limit``.
        """
        if self.page is not None and self.limit is None:
            raise InvalidMessageError("page", "needs limit=, the number of memories of a page")
        if self.page is not None:
            check_count("page", self.page, least=1)
        if self.limit is not None:
            check_count("limit", self.limit, most=MAX_MEMORIES_PER_READ)
        return self

    @property
    def offset(self) -> int:
        return 0 if self.page is None or self.limit is None else (self.page - 1) * self.limit

    def cut(self, memories: list[UserMemory]) -> list[UserMemory]:
        """The page of all memories that match."""
        ordered = self._sorted(memories)
        return ordered[self.offset :] if self.limit is None else ordered[self.offset :][: self.limit]

    def _sorted(self, memories: list[UserMemory]) -> list[UserMemory]:
        if self.sort_by not in _SORT_FIELDS:
            return memories
        value = attrgetter(self.sort_by)
        known = sorted((one for one in memories if value(one) is not None), key=value)
        unknown = [one for one in memories if value(one) is None]
        return [*unknown, *known[::-1]] if self.is_descending else [*known, *unknown]


def optimized_memories(
    before: Sequence[UserMemory], proposal: Optimization, user_id: str
) -> list[UserMemory]:
    """The memories after a proposal: the kept ones, and the sentences that replace several."""
    replaced = {str(fact_id) for merged in proposal.merged for fact_id in merged.fact_ids}
    stays = [memory for memory in before if memory.memory_id not in replaced]
    sentences = [
        UserMemory(memory=merged.text, topics=list(merged.topics) or None, user_id=user_id)
        for merged in proposal.merged
    ]
    return [*stays, *sentences]
