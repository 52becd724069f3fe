"""Agno's ``MemoryManager`` over the facts of a namespace's users, with the hooks that keep whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal, Self, cast, get_args

from agno.db.schemas import UserMemory
from agno.memory.manager import MemoryManager
from agno.memory.strategies import MemoryOptimizationStrategy, MemoryOptimizationStrategyType
from agno.models.base import Model
from agno.models.message import Message as AgnoMessage

from strandline.adapters.agno.changes import changes_text, optimized_memories
from strandline.adapters.agno.hooks import RunHooks
from strandline.adapters.agno.memories import MemoryQuery, memories_of, user_or_default
from strandline.adapters.agno.messages import plain_messages
from strandline.adapters.agno.operations import MemoryOperations
from strandline.adapters.agno.runs import MakeMemory
from strandline.producers.execution import Resources
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.message import Message

Retrieval = Literal["last_n", "first_n", "agentic"]
Strategy = MemoryOptimizationStrategyType | MemoryOptimizationStrategy

_KEPT_WITH_RUN = "The run is kept whole when it has ended; memories follow from it."
_READ_ONLY = "Agents may not change memories in this namespace; nothing was changed."


class FactManager(RunHooks, MemoryManager):
    """The memories of users as Agno's agents and teams manage them; one object serves all of them.

    Give an agent or a team ``memory_manager=``, and the hooks ``recall`` and ``keep``; if it is run with
    ``arun`` alone, ``arecall`` and ``akeep``.  No agent's model is asked: workers derive memories.

    Where no ``user_id`` is given, the user is ``"default"``, as in Agno.

    Args:
        resources: of this process.
        namespace: the tenant.
        make_memory: makes the memory of a conversation.
        max_memories: how many memories a run is shown at most.
        wait: the longest wait for workers in ``create_user_memories`` and ``update_memory_task``, in seconds.
        actor: the name that edits are recorded with.
        fields: as ``agno.memory.MemoryManager`` takes them.

    All methods that read or write raise DatabaseUnavailableError if Postgres cannot be reached, and those
    that write UnknownPipelineError before any worker has ever run.
    """

    def __init__(
        self,
        resources: Resources,
        namespace: str,
        make_memory: MakeMemory,
        *,
        max_memories: int,
        wait: float | None,
        actor: str | None,
        model: Model | str | None = None,
        **fields: Any,
    ) -> None:
        MemoryManager.__init__(self, model=model, **fields)
        RunHooks.__init__(
            self, MemoryOperations(resources, namespace, actor), resources, make_memory, max_memories
        )
        self._wait = wait

    def __deepcopy__(self, _memo: object) -> Self:
        """The same object: copies of an agent, and their hooks, share it."""
        return self

    def facts(self, user_id: str | None = None) -> OwnerFacts:
        """The facts behind a user's memories, for what Agno has no name for: history, topics, capture."""
        return OwnerFacts(self._resources, identify_user(self.namespace, user_or_default(user_id)))

    # Reads.

    def read_from_db(self, user_id: str | None = None) -> dict[str, list[UserMemory]]:
        """Memories by user; without a user those of all users of the namespace."""
        return _by_user(self._runner.run(self._operations.page(user_id, MemoryQuery())).memories)

    async def aread_from_db(self, user_id: str | None = None) -> dict[str, list[UserMemory]]:
        """Async twin of ``read_from_db``."""
        page = await self._runner.arun(self._operations.page(user_id, MemoryQuery()))
        return _by_user(page.memories)

    def get_user_memories(self, user_id: str | None = None) -> list[UserMemory]:
        """For a run's system message, what ``recall`` looked up for it; else all memories of the user."""
        recalled = self._keeper.take_recalled(user_or_default(user_id))
        if recalled is not None:
            return recalled
        return self._runner.run(self._operations.all(user_or_default(user_id)))

    async def aget_user_memories(self, user_id: str | None = None) -> list[UserMemory]:
        """Async twin of ``get_user_memories``."""
        recalled = self._keeper.take_recalled(user_or_default(user_id))
        if recalled is not None:
            return recalled
        return await self._runner.arun(self._operations.all(user_or_default(user_id)))

    def get_user_memory(self, memory_id: str, user_id: str | None = None) -> UserMemory | None:
        """One memory of the user; None if there is none with this id."""
        return self._runner.run(self._operations.one(user_or_default(user_id), memory_id))

    def search_user_memories(
        self,
        query: str | None = None,
        limit: int | None = None,
        retrieval_method: Retrieval | None = None,
        user_id: str | None = None,
    ) -> list[UserMemory]:
        """The newest (``last_n``) or oldest (``first_n``) memories in order, or those that a model chooses.

        Args:
            query: the question, for ``agentic``.
            limit: how many at most; None: all of them (``agentic``: ten); 0: none.
            retrieval_method: default ``last_n``.

        Raises:
            InvalidMessageError: ``agentic`` has no query, or the method does not exist.
            ModelError, ConfigurationError: as ``OwnerFacts.choose``, for ``agentic``.
        """
        facts = self.facts(user_id)
        if _method(retrieval_method, query) == "agentic":
            assert query is not None  # noqa: S101  # checked with the method
            return memories_of(facts.choose(query, limit=10 if limit is None else limit))
        if limit is None:
            return self._runner.run(self._operations.all(user_or_default(user_id)))
        if retrieval_method == "first_n":
            return memories_of(facts.list(first_n=limit))
        return memories_of(facts.list(last_n=limit))

    # Changes by hand.

    def add_user_memory(self, memory: UserMemory, user_id: str | None = None) -> str | None:
        """Add a memory under its id, if it has one; returns the id.

        If the user has a memory in the same words, that one is meant, and its id returned.
        """
        return self._upsert(memory, user_or_default(user_id))

    def replace_user_memory(
        self, memory_id: str, memory: UserMemory, user_id: str | None = None
    ) -> str | None:
        """Give the user's memory other words, topics and feedback; without one of this id, add it."""
        memory.memory_id = memory_id
        return self._upsert(memory, user_or_default(user_id))

    def delete_user_memory(self, memory_id: str, user_id: str | None = None) -> None:
        """Delete a memory of the user for good; earlier messages do not bring it back."""
        self._runner.run(self._operations.delete(user_or_default(user_id), [memory_id]))

    def clear_user_memories(self, user_id: str | None = None) -> None:
        """Delete all memories of the user for good; conversations stay."""
        self._runner.run(self._operations.clear(user_or_default(user_id)))

    async def aclear_user_memories(self, user_id: str | None = None) -> None:
        """Async twin of ``clear_user_memories``."""
        await self._runner.arun(self._operations.clear(user_or_default(user_id)))

    def clear(self) -> None:
        """Delete all memories of all users of this namespace for good, and nothing of another."""
        NamespaceFacts(self._resources, self.namespace).clear(actor=self._operations.actor)

    # Changes by workers.

    def create_user_memories(
        self,
        message: str | None = None,
        messages: list[AgnoMessage] | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        user_id: str | None = None,
        run_metrics: Any = None,
    ) -> str:
        """Have memories made of messages that are in no conversation; says in a sentence what came of it.

        Agno calls it for each run with ``update_memory_on_run``: that does nothing where ``keep`` keeps the
        run, and does not wait elsewhere.
        """
        if run_metrics is not None and self._keeper.keeps_runs_of(agent_id or team_id):
            return _KEPT_WITH_RUN
        source = plain_messages(message, messages)
        wait = None if run_metrics is not None else self._wait
        return changes_text(self.facts(user_id).create_from(source, key=_key(source), wait=wait))

    async def acreate_user_memories(
        self,
        message: str | None = None,
        messages: list[AgnoMessage] | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        user_id: str | None = None,
        run_metrics: Any = None,
    ) -> str:
        """Async twin of ``create_user_memories``."""
        if run_metrics is not None and self._keeper.keeps_runs_of(agent_id or team_id):
            return _KEPT_WITH_RUN
        source = plain_messages(message, messages)
        wait = None if run_metrics is not None else self._wait
        return changes_text(await self.facts(user_id).acreate_from(source, key=_key(source), wait=wait))

    def update_memory_task(self, task: str, user_id: str | None = None) -> str:
        """Have this user's memories changed as asked ("forget my address"); says what changed.

        It is what an agent with ``enable_agentic_memory`` calls, so a namespace can forbid it.
        """
        if not self._runner.run(self._operations.agents_may_write()):
            return _READ_ONLY
        return changes_text(self.facts(user_id).instruct(task, wait=self._wait))

    async def aupdate_memory_task(self, task: str, user_id: str | None = None) -> str:
        """Async twin of ``update_memory_task``."""
        if not await self._runner.arun(self._operations.agents_may_write()):
            return _READ_ONLY
        return changes_text(await self.facts(user_id).ainstruct(task, wait=self._wait))

    def optimize_memories(
        self,
        user_id: str | None = None,
        strategy: Strategy = MemoryOptimizationStrategyType.SUMMARIZE,
        apply: bool = True,
    ) -> list[UserMemory]:
        """Say the user's memories in fewer sentences; returns all of them as they are then, or would be.

        All of it is done, or nothing.  A strategy of your own works on the memories with ``model``; those
        that it leaves out are deleted once the others are stored.  What was added meanwhile stays.

        Raises:
            ConflictError: one of the memories was changed or deleted meanwhile; nothing was changed.

            And as ``OwnerFacts.optimize`` and ``apply_optimization``.
        """
        user = user_or_default(user_id)
        before = self._runner.run(self._operations.all(user))
        if not before:
            return []
        if isinstance(strategy, MemoryOptimizationStrategy):
            compared = self._operations.snapshot(user, before)
            after = strategy.optimize(memories=before, model=self.get_model())
            return self._runner.run(self._operations.exchange(user, compared, after)) if apply else after
        facts = self.facts(user)
        proposal = facts.optimize()
        if not apply:
            return optimized_memories(before, proposal, user)
        facts.apply_optimization(proposal)
        return self._runner.run(self._operations.all(user))

    async def aoptimize_memories(
        self,
        user_id: str | None = None,
        strategy: Strategy = MemoryOptimizationStrategyType.SUMMARIZE,
        apply: bool = True,
    ) -> list[UserMemory]:
        """Async twin of ``optimize_memories``."""
        user = user_or_default(user_id)
        before = await self._runner.arun(self._operations.all(user))
        if not before:
            return []
        if isinstance(strategy, MemoryOptimizationStrategy):
            compared = self._operations.snapshot(user, before)
            after = await strategy.aoptimize(memories=before, model=self.get_model())
            return (
                await self._runner.arun(self._operations.exchange(user, compared, after)) if apply else after
            )
        facts = self.facts(user)
        proposal = await facts.aoptimize()
        if not apply:
            return optimized_memories(before, proposal, user)
        await facts.aapply_optimization(proposal)
        return await self._runner.arun(self._operations.all(user))

    def _upsert(self, memory: UserMemory, user_id: str) -> str | None:
        memory.user_id = user_id
        stored = self._runner.run(self._operations.upsert(memory))
        memory.memory_id, memory.updated_at = stored.memory_id, stored.updated_at
        return stored.memory_id


def _method(method: object, query: str | None) -> Retrieval:
    if method is not None and method not in get_args(Retrieval):
        raise InvalidMessageError("retrieval_method", f"must be one of {', '.join(get_args(Retrieval))}")
    if method == "agentic" and not query:
        raise InvalidMessageError("query", "is missing; a model chooses memories for a question")
    return cast(Retrieval, method or "last_n")


def _by_user(memories: Sequence[UserMemory]) -> dict[str, list[UserMemory]]:
    by_user: dict[str, list[UserMemory]] = {}
    for memory in memories:
        by_user.setdefault(str(memory.user_id), []).append(memory)
    return by_user


def _key(source: Sequence[Message]) -> str | None:
    """The name of a call about these messages: the same if Agno repeats it; None if they have no ids."""
    if any(message.id is None for message in source):
        return None
    return blake2b("\n".join(str(message.id) for message in source).encode(), digest_size=16).hexdigest()
