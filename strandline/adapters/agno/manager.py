"""Agno's ``MemoryManager`` over the facts of a namespace's users, with the hooks that keep whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal, Self, TypeVar, cast, get_args

from agno.agent import Agent
from agno.db.base import AsyncBaseDb, BaseDb
from agno.db.schemas import UserMemory
from agno.memory.manager import MemoryManager
from agno.memory.strategies import MemoryOptimizationStrategy, MemoryOptimizationStrategyType
from agno.models.base import Model
from agno.models.message import Message as AgnoMessage
from agno.run import RunContext
from agno.run.agent import RunInput, RunOutput
from agno.run.team import TeamRunInput, TeamRunOutput
from agno.team import Team

from strandline.adapters.agno.memories import (
    MemoryQuery,
    memories_of,
    optimized_memories,
    user_or_default,
)
from strandline.adapters.agno.messages import plain_messages, query_of
from strandline.adapters.agno.operations import MemoryOperations
from strandline.adapters.agno.overlay import overlay_memories
from strandline.adapters.agno.runs import AnySession, RunKeeper, memory_maker
from strandline.adapters.relevant_facts import changes_text
from strandline.adapters.twins import Act, call, twins
from strandline.producers.arguments import check_timeout
from strandline.producers.execution import Closing, OperationRunner
from strandline.producers.facts.listing import checked_limit
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas.errors import ConfigurationError, InvalidMessageError
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, identify_user
from strandline.schemas.values.message import Message
from strandline.wiring.environment import settings_with
from strandline.wiring.runtime import runtime_for

Db = TypeVar("Db", bound=BaseDb | AsyncBaseDb)
Retrieval = Literal["last_n", "first_n", "agentic"]
Strategy = MemoryOptimizationStrategyType | MemoryOptimizationStrategy

_KEPT_WITH_RUN = "The run is kept whole when it has ended; memories follow from it."
_READ_ONLY = "Agents may not change memories in this namespace; nothing was changed."


# Arguments of Agno's manager, and what takes their place here.
_SET_CAPTURE = "set it once for a namespace or a user, with set_capture of strandline.Facts"
_ELSEWHERE = {
    "db": "memories are in Postgres; pass database_url=",
    "system_message": _SET_CAPTURE,
    "memory_capture_instructions": _SET_CAPTURE,
    "additional_instructions": _SET_CAPTURE,
    "add_memories": _SET_CAPTURE,
    "update_memories": _SET_CAPTURE,
    "delete_memories": _SET_CAPTURE,
    "clear_memories": "clearing is not offered to models; call manager.clear_user_memories(user)",
}


class StrandlineMemoryManager(Closing, MemoryManager):
    """Agno's ``MemoryManager`` on Strandline; one for all agents, teams and users of an application.

    Its methods ``recall`` and ``keep`` (``arecall`` and ``akeep`` for ``arun``) are an agent's hooks.  No
    agent's model is asked: workers derive memories.

    Where no ``user_id`` is given, the user is ``"default"``, as in Agno.

    Args:
        namespace: the tenant; managers of other namespaces neither see nor change its memories.
        max_memories: most memories shown to a run: some fit its input, some are the newest; 0: none.
        wait: the longest wait for workers in ``create_user_memories`` and ``update_memory_task``, in seconds;
            None: do not wait.
        actor: the name that changes by hand are recorded with.
        model: a model of Agno, for an optimization strategy of your own; nothing else calls it.
        id, name, debug_mode: as Agno's manager takes them.
        options: as ``strandline.Memory.from_defaults`` takes them (``token_limit``, ``memory_blocks``,
            ``database_url``, …); ``deliver`` is ``"turn"`` unless it is given.

    Raises: as ``strandline.Memory.from_defaults``.

    All methods that read or write raise DatabaseUnavailableError if Postgres cannot be reached, and those
    that write UnknownPipelineError before any worker has ever run.
    """

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        max_memories: int = 30,
        wait: float | None = 10.0,
        actor: str | None = None,
        model: Model | str | None = None,
        id: str | None = None,
        name: str | None = None,
        debug_mode: bool = False,
        **options: Any,
    ) -> None:
        for argument in options:
            if argument in _ELSEWHERE:
                raise ConfigurationError(
                    f"StrandlineMemoryManager has no argument {argument!r}: {_ELSEWHERE[argument]}."
                )
        super().__init__(model=model, id=id, name=name, debug_mode=debug_mode)
        settings = settings_with(
            database_url=options.get("database_url"),
            broker_url=options.get("broker_url"),
            database_schema=options.get("schema"),
        )
        self._resources = runtime_for(settings, pool=options.get("pool"), consume=options.get("consume"))
        self._runner = OperationRunner(self._resources)
        self._operations = MemoryOperations(self._resources, namespace, actor)
        self.namespace = namespace
        make_memory = memory_maker(namespace, options)
        self._keeper = RunKeeper(make_memory, lambda hook: getattr(hook, "__self__", None) is self)
        self._max_memories = checked_limit(max_memories)
        self._wait = None if wait is None else check_timeout(wait)

    def __deepcopy__(self, _memo: object) -> Self:
        """The same object: copies of an agent, and their hooks, share it."""
        return self

    def facts(self, user_id: str | None = None) -> OwnerFacts:
        """The facts behind a user's memories, for what Agno has no name for: history, topics, capture."""
        return OwnerFacts(self._resources, identify_user(self.namespace, user_or_default(user_id)))

    # Hooks.  Agno calls a pre-hook with the input and the session of a run, and a post-hook with its output.
    # It logs a hook's exception and continues the run.

    def _recall(
        self,
        run_input: RunInput | TeamRunInput,
        run_context: RunContext,
        user_id: str | None = None,
        agent: Agent | None = None,
        team: Team | None = None,
    ) -> Act[None]:
        """A pre-hook: look up the memories that fit the run's input, for its system message."""
        user = user_or_default(user_id)
        self._keeper.begin(run_context.run_id, _runner_of(agent, team))
        self._keeper.remember(user, [])  # for a run whose look-up fails
        relevant = self._operations.relevant(user, query_of(run_input), self._max_memories)
        self._keeper.remember(user, (yield from call(self._runner.run, relevant)))

    recall, arecall = twins(_recall)

    def _keep(
        self,
        run_output: RunOutput | TeamRunOutput,
        session: AnySession,
        user_id: str | None = None,
        agent: Agent | None = None,
        team: Team | None = None,
    ) -> Act[None]:
        """A post-hook: store the messages of the run, and deliver them to the workers.

        A run that comes again, retried, continued or regenerated, replaces its earlier messages.  A team
        keeps the runs of its members with its own.
        """
        runner = _runner_of(agent, team)
        yield from call(self._keeper.keep, run_output, session, user_or_default(user_id), runner)

    keep, akeep = twins(_keep)

    def overlay(self, db: Db) -> Db:
        """Your own Agno database, with these memories in the place of its own, as for AgentOS.

        It is of the class of ``db``, and shares everything else with it.

        Raises:
            ConfigurationError: ``db`` is not a database of Agno.
        """
        return overlay_memories(db, self._resources, self.namespace, self._operations.actor)

    # Reads.

    def _read_from_db(self, user_id: str | None = None) -> Act[dict[str, list[UserMemory]]]:
        """Memories by user; without a user those of all users of the namespace."""
        page = yield from call(self._runner.run, self._operations.page(user_id, MemoryQuery()))
        return _by_user(page.memories)

    read_from_db, aread_from_db = twins(_read_from_db)

    def _get_user_memories(self, user_id: str | None = None) -> Act[list[UserMemory]]:
        """For a run's system message, what ``recall`` looked up for it; else all memories of the user."""
        user = user_or_default(user_id)
        recalled = self._keeper.take_recalled(user)
        if recalled is not None:
            return recalled
        return (yield from call(self._runner.run, self._operations.all(user)))

    get_user_memories, aget_user_memories = twins(_get_user_memories)

    def get_user_memory(self, memory_id: str, user_id: str | None = None) -> UserMemory | None:
        """One memory of the user; None if no memory has this id."""
        return self._runner.run(self._operations.one(user_or_default(user_id), memory_id))

    def search_user_memories(
        self,
        query: str | None = None,
        limit: int | None = None,
        retrieval_method: Retrieval | None = None,
        user_id: str | None = None,
    ) -> list[UserMemory]:
        """The newest (``last_n``) or oldest (``first_n``) memories in order, or a model's choice.

        Args:
            query: the question, for ``agentic``.
            limit: how many at most; None: all (``agentic``: ten); 0: none.
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

    def _clear_user_memories(self, user_id: str | None = None) -> Act[None]:
        """Delete all memories of the user for good; conversations stay."""
        yield from call(self._runner.run, self._operations.clear(user_or_default(user_id)))

    clear_user_memories, aclear_user_memories = twins(_clear_user_memories)

    def clear(self) -> None:
        """Delete all memories of all users of this namespace for good, and nothing of another."""
        NamespaceFacts(self._resources, self.namespace).clear(actor=self._operations.actor)

    # Changes by workers.

    def _create_user_memories(
        self,
        message: str | None = None,
        messages: list[AgnoMessage] | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        user_id: str | None = None,
        run_metrics: Any = None,
    ) -> Act[str]:
        """Have memories made of messages that are in no conversation; says in a sentence what came of it.

        Agno calls it for each run with ``update_memory_on_run``: that does nothing where ``keep`` keeps the
        run, and does not wait elsewhere.
        """
        if run_metrics is not None and self._keeper.keeps_runs_of(agent_id or team_id):
            return _KEPT_WITH_RUN
        source = plain_messages(message, messages)
        wait = None if run_metrics is not None else self._wait
        facts = self.facts(user_id)
        return changes_text((yield from call(facts.create_from, source, key=_key(source), wait=wait)))

    create_user_memories, acreate_user_memories = twins(_create_user_memories)

    def _update_memory_task(self, task: str, user_id: str | None = None) -> Act[str]:
        """Have this user's memories changed as asked ("forget my address"); returns a description of the
        changes.

        An agent with ``enable_agentic_memory`` calls it, so a namespace can forbid it.
        """
        if not (yield from call(self._runner.run, self._operations.agents_may_write())):
            return _READ_ONLY
        return changes_text((yield from call(self.facts(user_id).instruct, task, wait=self._wait)))

    update_memory_task, aupdate_memory_task = twins(_update_memory_task)

    def _optimize_memories(
        self,
        user_id: str | None = None,
        strategy: Strategy = MemoryOptimizationStrategyType.SUMMARIZE,
        apply: bool = True,
    ) -> Act[list[UserMemory]]:
        """Say the user's memories in fewer sentences; returns all of them as they are then, or would be.

        All or nothing is done.  A strategy of your own works on the memories with ``model``; memories that it
        omits are deleted once the others are stored.  Memories added since stay.

        Raises:
            ConflictError: one of the memories was changed or deleted since; nothing was changed.

            And as ``OwnerFacts.optimize`` and ``apply_optimization``.
        """
        user = user_or_default(user_id)
        before = yield from call(self._runner.run, self._operations.all(user))
        if not before:
            return []
        if isinstance(strategy, MemoryOptimizationStrategy):
            compared = self._operations.snapshot(user, before)
            after = yield from call(strategy.optimize, memories=before, model=self.get_model())
            if not apply:
                return after
            return (yield from call(self._runner.run, self._operations.exchange(user, compared, after)))
        facts = self.facts(user)
        proposal = yield from call(facts.optimize)
        if not apply:
            return optimized_memories(before, proposal, user)
        yield from call(facts.apply_optimization, proposal)
        return (yield from call(self._runner.run, self._operations.all(user)))

    optimize_memories, aoptimize_memories = twins(_optimize_memories)

    def _upsert(self, memory: UserMemory, user_id: str) -> str | None:
        memory.user_id = user_id
        stored = self._runner.run(self._operations.upsert(memory))
        memory.memory_id, memory.updated_at = stored.memory_id, stored.updated_at
        return stored.memory_id


def _runner_of(agent: Agent | None, team: Team | None) -> Agent | Team:
    runner = agent if team is None else team
    if runner is None:
        raise ConfigurationError("recall and keep are hooks of an agent or a team, which Agno calls.")
    return runner


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
