"""Facts as Agno's user memories: with the ids that callers gave them, each user's apart from the others'."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from uuid import UUID

from agno.memory.v2.schema import UserMemory

from strandline import Fact, InvalidMessageError, NotFoundError, OwnerError
from strandline.adapters.legacy.agno_v1.memory_ids import MemoryIds, Place
from strandline.adapters.recently_used import RecentlyUsed
from strandline.producers.facts.listing import as_fact_id
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas.display.shown_text import quote

ACTOR = "agno"
MAX_PAGE = 1_000
# Whose the ids are that were shown last, so that one can be deleted by its id alone.
MAX_KNOWN_IDS = 10_000


class UserMemories:
    """The memories of all users of a namespace.

    Args:
        facts_of: the facts of a user.
        ids: the ids that callers gave.
    """

    def __init__(self, facts_of: Callable[[str], OwnerFacts], ids: MemoryIds) -> None:
        self.facts_of = facts_of
        self._ids = ids
        self._shown: RecentlyUsed[str, Place] = RecentlyUsed(MAX_KNOWN_IDS)

    def with_facts(self, facts_of: Callable[[str], OwnerFacts]) -> UserMemories:
        """The same memories, with the facts of users from elsewhere."""
        return UserMemories(facts_of, self._ids)

    def page(self, user_id: str, *, limit: int | None, is_oldest_first: bool = False) -> list[UserMemory]:
        """A user's memories; None: all."""
        facts: list[Fact] = []
        while limit is None or len(facts) < limit:
            size = MAX_PAGE if limit is None else min(MAX_PAGE, limit - len(facts))
            listed = self.facts_of(user_id).list(
                limit=size, offset=len(facts), sort="oldest" if is_oldest_first else "newest"
            )
            facts += listed
            if not listed or len(facts) >= listed.total:
                break
        return self.of_facts(user_id, facts)

    def of_facts(self, user_id: str, facts: Sequence[Fact]) -> list[UserMemory]:
        """Facts as memories, in their order."""
        names = self._ids.of_facts([fact.fact_id for fact in facts])
        memories = [_memory(fact, names.get(fact.fact_id)) for fact in facts]
        for fact, memory in zip(facts, memories, strict=True):
            self._shown.put(memory.memory_id, Place(user_id, fact.fact_id))
        return memories

    def get(self, user_id: str, memory_id: str) -> UserMemory | None:
        """A user's memory; None if this user has none with this id."""
        place = self._place(memory_id, user_id)
        fact = None if place is None else self.facts_of(user_id).get(place.fact_id)
        return _memory(fact, memory_id) if fact is not None and fact.is_live else None

    def put(self, user_id: str, memory: UserMemory) -> str:
        """Store a memory and return its id: the given one, or that of the fact.

        Raises:
            OwnerError: another user has a memory with this id; nothing was stored.
            InvalidMessageError: the memory cannot be stored.
        """
        memory_id = memory.memory_id
        if memory_id is not None:
            self._check_owner(memory_id, user_id)
        place = None if memory_id is None else self._place(memory_id, user_id)
        fact = None if place is None else self._replace(user_id, place.fact_id, memory)
        if fact is None:
            with nullcontext() if memory_id is None else self._claim(memory_id, user_id):
                fact = self.facts_of(user_id).add(
                    memory.memory, topics=memory.topics, input=memory.input, actor=ACTOR
                )
        name = str(fact.fact_id) if memory_id is None else memory_id
        new_place = Place(user_id, fact.fact_id)
        if place != new_place and name != str(fact.fact_id):
            self._ids.keep(name, new_place)
        self._shown.put(name, new_place)
        return name

    def delete(self, memory_id: str, user_id: str | None = None) -> bool:
        """Delete a memory for good; False if this user has none with this id.

        Raises:
            NotFoundError: no user is given, and it is not known whose it is.
        """
        place = self._place(memory_id, user_id)
        if place is None:
            if user_id is not None:
                return False
            raise NotFoundError(
                f"Whose memory {quote(memory_id)} is, is not known here; read the memories of its user first."
            )
        is_gone = self.facts_of(place.user_id).delete(place.fact_id, actor=ACTOR)
        self._ids.forget(memory_id, place)
        self._shown.remove(memory_id)
        return is_gone

    def users(self) -> list[str]:
        """The users of the namespace with memories by id."""
        return self._ids.users()

    def forget_ids(self) -> None:
        """Forget all ids that callers gave, after the facts of the namespace were cleared."""
        self._ids.forget_all()
        self._shown.clear()

    def _check_owner(self, memory_id: str, user_id: str) -> None:
        place = self._ids.find(memory_id) or self._shown.get(memory_id)
        if place is not None and place.user_id != user_id:
            raise _owner_error(memory_id)

    @contextmanager
    def _claim(self, memory_id: str, user_id: str) -> Iterator[None]:
        owner, is_new = self._ids.claim(memory_id, user_id)
        if owner != user_id:
            raise _owner_error(memory_id)
        try:
            yield
        except BaseException:
            if is_new:
                self._ids.release(memory_id)
            raise

    def _place(self, memory_id: str, user_id: str | None) -> Place | None:
        place = self._ids.find(memory_id) or self._shown.get(memory_id)
        if place is not None:
            return place if user_id in (None, place.user_id) else None
        fact_id = as_fact_id(memory_id)
        return None if user_id is None or fact_id is None else Place(user_id, fact_id)

    def _replace(self, user_id: str, fact_id: UUID, memory: UserMemory) -> Fact | None:
        facts = self.facts_of(user_id)
        fact = facts.get(fact_id)
        if fact is None or not fact.is_live:
            return None
        if fact.text == memory.memory and memory.topics in (None, list(fact.topics)):
            return fact
        return facts.replace(fact_id, memory.memory, topics=memory.topics, actor=ACTOR)


def _owner_error(memory_id: str) -> OwnerError:
    return OwnerError(
        f"Memory {quote(memory_id)} belongs to another user; give this user's memory another id."
    )


def check_memory(memory: object) -> UserMemory:
    """Check an argument of a caller; raises InvalidMessageError if it is not a memory."""
    if not isinstance(memory, UserMemory):
        raise InvalidMessageError("memory", f"must be a UserMemory, not {type(memory).__name__}")
    return memory


def _memory(fact: Fact, memory_id: str | None) -> UserMemory:
    return UserMemory(
        memory=fact.text,
        topics=list(fact.topics),
        input=fact.input,
        last_updated=fact.updated_at,
        memory_id=memory_id or str(fact.fact_id),
    )
