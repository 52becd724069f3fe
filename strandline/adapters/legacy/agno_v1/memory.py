"""Agno 1's ``Memory`` over Strandline: what agents and teams read, write and ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from threading import Lock
from typing import Any, Generic, TypeVar

from agno.memory.v2.memory import Memory as AgnoMemory
from agno.memory.v2.memory import Message as AgnoMessage
from agno.memory.v2.memory import TeamContext
from agno.memory.v2.schema import SessionSummary, UserMemory

from strandline import ConfigurationError, Memory, NotFoundError, SummaryMemoryBlock, VectorMemoryBlock
from strandline.adapters.legacy.agno_v1.fact_calls import (
    Questions,
    RunTexts,
    conversation_of,
    relevant_facts,
    search_memories,
)
from strandline.adapters.legacy.agno_v1.memory_db import StrandlineMemoryDb
from strandline.adapters.legacy.agno_v1.messages import message_of
from strandline.adapters.legacy.agno_v1.runs import Run, StoredRun, put_run, read_runs, within_tokens
from strandline.adapters.legacy.agno_v1.session_users import SessionUsers, UserOf
from strandline.adapters.legacy.agno_v1.team_context import SCOPE, keep_interaction, keep_text, read_context
from strandline.adapters.legacy.agno_v1.user_memories import check_memory
from strandline.adapters.relevant_facts import changes_text
from strandline.producers.arguments import check_count, check_timeout
from strandline.producers.facts.listing import MAX_LIMIT
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, scope_session_id

DEFAULT_RUNS = 5
DEFAULT_MEMORIES = 50
# Memories of so many sessions are kept ready; each is made again when needed.
MAX_READY = 1_024

# Arguments of Agno's memory, and what takes their place here.
_ELSEWHERE = {
    "model": "models run in the workers; set STRANDLINE_FACTS_MODEL and STRANDLINE_SUMMARY_MODEL there",
    "memory_manager": "workers make the facts; choose what to keep with facts.set_capture(Capture(…))",
    "summarizer": "workers make the summary; say how with facts.set_capture(Capture(…))",
    "memories": "facts are in Postgres; add them with add_user_memory",
    "summaries": "summaries are made from the runs",
    "runs": "runs are in Postgres; add them with add_run",
    "delete_memories": "facts.set_capture(Capture(may_delete=…)) says it",
    "clear_memories": "no model clears a user's facts",
}


def _read_only(read: Callable[[Any], object]) -> Any:
    """A property that ignores assignments: agents give back stored values."""
    return property(read, lambda _self, _value: None, doc=read.__doc__)


class StrandlineMemory(AgnoMemory):
    """Agno 1's ``Memory``: runs are a log, facts and summaries are made from it by workers.

    Runs are also kept in ``runs``, in this process, where agents and teams look for their own.

    Args:
        user_id: the user whose sessions these are; or a function of a session's id that returns the user, for
            an agent that serves several; default: whom ``initialize`` names.
        db: where the facts are, if you have one; default: made from ``namespace`` and ``options``.
        namespace: the tenant.
        agentic: make no facts from runs: an agent with ``enable_agentic_memory`` changes them by its tool.
        max_memories: maximum number of facts in a prompt: some of the newest, and matches of the question
            (``expect``), or else the user's last words.
        wait_seconds: how long ``create_user_memories``, ``update_memory_task`` and ``create_session_summary``
            wait for workers; None: they return at once.
        options: as ``strandline.Memory.from_defaults`` takes them (``token_limit``, ``memory_blocks``,
            ``database_url``, …); ``deliver`` is ``"turn"`` here.

    Raises: as ``strandline.Memory.from_defaults``.
    """

    def __init__(
        self,
        user_id: str | UserOf | None = None,
        *,
        db: StrandlineMemoryDb | None = None,
        namespace: str | None = None,
        agentic: bool = False,
        max_memories: int = DEFAULT_MEMORIES,
        wait_seconds: float | None = None,
        debug_mode: bool = False,
        **options: Any,
    ) -> None:
        _refuse(options, db, namespace)
        tenant = namespace or (DEFAULT_NAMESPACE if db is None else db.namespace)
        place = {name: options[name] for name in ("database_url", "pool", "schema") if name in options}
        rows = StrandlineMemoryDb(namespace=tenant, **place) if db is None else db
        options = {"deliver": "turn", **rows.options, **options, "namespace": tenant}
        if agentic:
            options.setdefault("memory_blocks", [SummaryMemoryBlock(), VectorMemoryBlock()])
        # Options that cannot be used are refused now, not in the first run.
        self._resources_of_runs = Memory.from_defaults(**options)
        self._open = open_session = lru_cache(MAX_READY)(partial(_open_session, options))
        # By the memory's own resources, which consume events if its options say so.
        self.user_memories = rows.memories.with_facts(lambda user: open_session("facts", user, None).facts)
        self._users = SessionUsers(user_id)
        self._max_memories = check_count("max_memories", max_memories, most=MAX_LIMIT)
        self._wait_seconds = None if wait_seconds is None else check_timeout(wait_seconds)
        self._texts = RunTexts()
        self._questions = Questions()
        self._hidden: dict[tuple[str, str], int] = {}
        self._lock = Lock()
        super().__init__(db=rows, debug_mode=debug_mode)

    def close(self) -> None:
        """Close the resources that this process shares; its memories cannot be used after that."""
        self._resources_of_runs.close()
        self.db.close()

    def session_memory(self, session_id: str) -> Memory:
        """The memory of a session itself, for operations that Agno lacks: ``facts``, ``search``, …"""
        return self._open(session_id, self._users.of_session(session_id), None)

    # Attributes that agents and teams read.

    @_read_only
    def memories(self) -> Mapping[str, dict[str, UserMemory]]:
        """The memories of each user by id, as they are now."""
        return LiveView(self._memories_by_id, self._known_users, bool)

    @_read_only
    def summaries(self) -> Mapping[str, Mapping[str, SessionSummary]]:
        """The summaries of each user by session, as they are now."""
        return LiveView(self._summaries_of, self._known_users, lambda summaries: len(summaries) > 0)

    @_read_only
    def team_context(self) -> Mapping[str, TeamContext]:
        """The team contexts by session, as they are now."""
        return LiveView(self._team_context, lambda: [session for session, _user in self._users.sessions])

    def initialize(self, user_id: str | None = None) -> None:
        """Serve this user, if the memory was made without one."""
        self.set_log_level()
        if user_id is not None:
            self._users.bind(user_id)

    def set_model(self, model: Any) -> None:
        """Keep the model that an agent gives; facts and summaries are made by the models of the workers."""
        self.model = model

    def refresh_from_db(self, user_id: str | None = None) -> None:
        """Do nothing: every call reads the stored facts."""

    def to_dict(self) -> dict[str, Any]:
        """The state that agents keep in Agno's storage: the runs of this process, nothing derived.

        A copy of facts and summaries elsewhere would outlive what deletes them here.
        """
        runs = {session: [run.to_dict() for run in runs] for session, runs in (self.runs or {}).items()}
        return {"runs": runs}

    # User memories.

    def expect(self, question: str, user_id: str | None = None) -> None:
        """Name the subject of the next run of this thread or task; it does no I/O.

        The memories in the prompt of that run then fit it, if not all can be shown.  Agno asks
        for them without a question.

        Raises:
            ConfigurationError: the memory serves another user.
        """
        self._questions.expect(self._users.of_call(user_id), question)

    def get_user_memories(self, user_id: str | None = None) -> list[UserMemory]:
        """The facts of a user, oldest first: all, or ``max_memories`` of them.

        These are some of the newest, and matches of the question given to ``expect``, or else the user's
        words in the last run added here.
        """
        user = self._users.of_call(user_id)
        facts = self.user_memories.facts_of(user)
        chosen = relevant_facts(facts, self._questions.take(user), self._max_memories)
        return self.user_memories.of_facts(user, chosen)

    def get_user_memory(self, memory_id: str, user_id: str | None = None) -> UserMemory | None:
        """A fact of a user; None if this user has none with this id."""
        return self.user_memories.get(self._users.of_call(user_id), memory_id)

    def add_user_memory(
        self, memory: UserMemory, user_id: str | None = None, refresh_from_db: bool = True
    ) -> str:
        """Add a fact by hand and return its id: the memory's own, if it has one.

        Raises:
            OwnerError: another user has a memory with this id.
            InvalidMessageError: it cannot be stored.
        """
        stored_id = self.user_memories.put(self._users.of_call(user_id), check_memory(memory))
        memory.memory_id = stored_id
        return stored_id

    def replace_user_memory(
        self, memory_id: str, memory: UserMemory, user_id: str | None = None, refresh_from_db: bool = True
    ) -> str | None:
        """Give a fact other words; None if this user has none with this id."""
        user = self._users.of_call(user_id)
        if self.user_memories.get(user, memory_id) is None:
            return None
        check_memory(memory).memory_id = memory_id
        return self.user_memories.put(user, memory)

    def delete_user_memory(
        self, memory_id: str, user_id: str | None = None, refresh_from_db: bool = True
    ) -> None:
        """Delete a fact of a user for good; nothing happens if this user has none with this id."""
        self.user_memories.delete(memory_id, self._users.of_call(user_id))

    def search_user_memories(
        self,
        query: str | None = None,
        limit: int | None = None,
        retrieval_method: str | None = None,
        user_id: str | None = None,
        refresh_from_db: bool = True,
    ) -> list[UserMemory]:
        """Facts of a user: ``last_n``, ``first_n``, ``agentic`` (a model chooses), ``semantic`` (a search).

        Raises:
            ConfigurationError: the method is another one, or needs a query, or no model is configured.
            ModelError: the model did not answer.
        """
        user = self._users.of_call(user_id)
        facts = search_memories(self.user_memories.facts_of(user), query, limit, retrieval_method)
        return self.user_memories.of_facts(user, facts)

    def create_user_memories(
        self,
        message: str | None = None,
        messages: list[AgnoMessage] | None = None,
        user_id: str | None = None,
        refresh_from_db: bool = True,
    ) -> str:
        """Have facts made of messages; those of a run that was added are made from the run, and only once.

        Raises:
            InvalidMessageError: there is no message, or one cannot be stored.
        """
        user = self._users.of_call(user_id)
        conversation = conversation_of(message, messages)
        if self._texts.take(user, conversation):
            return "Memories are made from the run itself."
        sources = [message_of(one) for one in conversation]
        return changes_text(self.user_memories.facts_of(user).create_from(sources, wait=self._wait_seconds))

    async def acreate_user_memories(
        self,
        message: str | None = None,
        messages: list[AgnoMessage] | None = None,
        user_id: str | None = None,
        refresh_from_db: bool = True,
    ) -> str:
        """Async twin of ``create_user_memories``."""
        return await asyncio.to_thread(self.create_user_memories, message, messages, user_id)

    def update_memory_task(self, task: str, user_id: str | None = None) -> str:
        """Have the facts of this user changed as ``task`` asks for, such as "forget my address"."""
        facts = self.user_memories.facts_of(self._users.of_call(user_id))
        return changes_text(facts.instruct(task, wait=self._wait_seconds))

    async def aupdate_memory_task(self, task: str, user_id: str | None = None) -> str:
        """Async twin of ``update_memory_task``."""
        return await asyncio.to_thread(self.update_memory_task, task, user_id)

    # Summaries.

    def get_session_summary(self, session_id: str, user_id: str | None = None) -> SessionSummary | None:
        """The summary of a session as workers have it; None: they have derived none."""
        user = self._users.check_session(session_id, user_id)
        return self._read_summary(user, session_id, None)

    def get_session_summaries(self, user_id: str | None = None) -> list[SessionSummary]:
        """The summaries of the sessions of a user that this memory has served."""
        return list(self._summaries_of(self._users.of_call(user_id)).values())

    def create_session_summary(self, session_id: str, user_id: str | None = None) -> SessionSummary | None:
        """The summary of a session, once workers have told of all of it, or after ``wait_seconds``."""
        user = self._users.check_session(session_id, user_id)
        self._hidden.pop((user, session_id), None)
        return self._read_summary(user, session_id, self._wait_seconds)

    async def acreate_session_summary(
        self, session_id: str, user_id: str | None = None
    ) -> SessionSummary | None:
        """Async twin of ``create_session_summary``."""
        return await asyncio.to_thread(self.create_session_summary, session_id, user_id)

    def delete_session_summary(self, user_id: str, session_id: str) -> None:
        """Show no summary of a session until there is a newer one; ``reset(derived=True)`` deletes it."""
        user = self._users.check_session(session_id, user_id)
        summary = self._summarize(user, session_id, None)
        if summary is not None:
            self._hidden[(user, session_id)] = summary.through_seq

    # Runs.

    def add_run(self, session_id: str, run: Run) -> None:
        """Keep a run: its own messages in the session's log, where it replaces a run with the same id.

        It is delivered at its end, with an answer or without, unless it waits for something.

        Raises:
            ConfigurationError: whose session it is was not said.
            ConflictError: the run has other messages now, and too many were put behind it.
            InvalidMessageError: a message cannot be stored.
        """
        user, scope = self._users.of_session(session_id), _member_scope(run)
        memory = self._open(session_id, user, scope)
        put = put_run(memory, run)
        if put.is_open and scope is None:
            memory.deliver()
        self._texts.add(user, put.messages)
        if scope is None:
            self._questions.note_words(user, put.messages)
        with self._lock:
            super().add_run(session_id, run)

    def get_runs(self, session_id: str) -> list[Run]:
        """The runs of a session: those of this process, else those of the log."""
        if known := self._runs_here(session_id):
            return known
        return [run.as_response(session_id) for run in read_runs(self.session_memory(session_id))]

    def get_messages_from_last_n_runs(
        self,
        session_id: str,
        agent_id: str | None = None,
        team_id: str | None = None,
        last_n: int | None = DEFAULT_RUNS,
        skip_role: str | None = None,
        skip_status: list[Any] | None = None,
        skip_history_messages: bool = True,
    ) -> list[AgnoMessage]:
        """The messages of the newest runs that fit the session's token limit, in order; from its log.

        Args:
            session_id: the session.
            agent_id, team_id: only runs of this agent or team; of a member of a team, its own.
            last_n: maximum number of runs; 0: none; None: all that fit.
            skip_role, skip_status: leave out messages of this role, and runs of these statuses; default:
                runs that are paused, cancelled or failed.
            skip_history_messages: has no meaning here: a run's log has the run's own messages alone.
        """
        accept = partial(_is_shown, agent_id=agent_id, team_id=team_id, skip_status=skip_status)
        user = self._users.of_session(session_id)
        runs: list[StoredRun] = []
        for scope in ([agent_id or team_id] if agent_id or team_id else []) + [None]:
            memory = self._open(session_id, user, scope)
            runs = within_tokens(read_runs(memory, last_n, accept=accept), memory.token_limit)
            if runs:
                break
        shown: Any = _in_memory(session_id, runs)
        messages: list[AgnoMessage] = shown.get_messages_from_last_n_runs(
            session_id, skip_role=skip_role, skip_status=[]
        )
        return messages

    def get_messages_for_session(
        self,
        session_id: str,
        user_role: str = "user",
        assistant_role: list[str] | None = None,
        skip_history_messages: bool = True,
    ) -> list[AgnoMessage]:
        """Of each run of a session the user's message and the last answer, in order; from its log."""
        shown: Any = _in_memory(session_id, read_runs(self.session_memory(session_id)))
        pairs: list[AgnoMessage] = shown.get_messages_for_session(session_id, user_role, assistant_role)
        return pairs

    def get_tool_calls(self, session_id: str, num_calls: int | None = None) -> list[dict[str, Any]]:
        """The tool calls of a session, those of the newest run first; from its log."""
        shown: Any = _in_memory(session_id, read_runs(self.session_memory(session_id)))
        calls: list[dict[str, Any]] = shown.get_tool_calls(session_id, num_calls)
        return calls

    def clear(self) -> None:
        """Delete the facts of the users whom this memory serves, and its sessions with everything derived
        from them.

        Other users, and sessions that this object has not used, stay.
        """
        for session_id, user in self._users.sessions:
            self._open(session_id, user, None).reset(derived=True)
            self._open(session_id, user, SCOPE).reset(derived=True)
        for user in self._known_users():
            self.user_memories.facts_of(user).clear(actor="agno")
        self.runs: dict[str, list[Run]] = {}
        self._hidden.clear()

    # Team context.

    def add_interaction_to_team_context(
        self, session_id: str, member_name: str, task: str, run_response: Run
    ) -> None:
        """Keep a team member's task and answer."""
        keep_interaction(self._context_log(session_id), member_name, task, run_response)

    def set_team_context_text(self, session_id: str, text: dict[str, Any] | str) -> None:
        """Set the text that the team shares; a dict changes these fields of it."""
        keep_text(self._context_log(session_id), text)

    def __deepcopy__(self, memo: dict[int, Any]) -> StrandlineMemory:
        """The memory of a member of a team: it shares all but the runs of this process."""
        copied: StrandlineMemory = self.__class__.__new__(self.__class__)
        memo[id(self)] = copied
        copied.__dict__.update(self.__dict__)
        copied.runs = {session: list(runs) for session, runs in (self.runs or {}).items()}
        return copied

    def _runs_here(self, session_id: str) -> list[Run]:
        return list((self.runs or {}).get(session_id, ()))

    def _context_log(self, session_id: str) -> Memory:
        return self._open(session_id, self._users.of_session(session_id), SCOPE)

    def _team_context(self, session_id: str) -> TeamContext | None:
        return read_context(self._context_log(session_id))

    def _known_users(self) -> list[str]:
        known = {user: None for _session, user in self._users.sessions}
        return list(known) or [self._users.of_call(None)]

    def _memories_by_id(self, user_id: str) -> dict[str, UserMemory]:
        memories = self.user_memories.page(self._users.of_call(user_id), limit=MAX_LIMIT)
        return {str(memory.memory_id): memory for memory in reversed(memories)}

    def _summaries_of(self, user_id: str) -> Mapping[str, SessionSummary]:
        user = self._users.of_call(user_id)
        return LiveView(
            partial(self._summary_of_user, user),
            lambda: [session for session, owner in self._users.sessions if owner == user],
        )

    def _summary_of_user(self, user: str, session_id: str) -> SessionSummary | None:
        is_own = self._users.of_session(session_id) == user
        return self._read_summary(user, session_id, None) if is_own else None

    def _read_summary(self, user: str, session_id: str, wait_seconds: float | None) -> SessionSummary | None:
        summary = self._summarize(user, session_id, wait_seconds)
        if summary is None or summary.through_seq <= self._hidden.get((user, session_id), 0):
            return None
        return SessionSummary(
            summary=summary.text, topics=list(summary.topics), last_updated=summary.created_at
        )

    def _summarize(self, user: str, session_id: str, wait_seconds: float | None) -> Any:
        memory = self._open(session_id, user, None)
        try:
            return memory.summarize(wait=wait_seconds)
        except NotFoundError:  # nothing was said yet
            return None
        except ConfigurationError:  # its blocks make no summary
            return None


def _is_shown(
    run: StoredRun, *, agent_id: str | None, team_id: str | None, skip_status: list[Any] | None
) -> bool:
    if agent_id and run.note.agent_id != agent_id:
        return False
    if team_id and run.note.team_id != team_id:
        return False
    skipped = ["PAUSED", "CANCELLED", "ERROR"] if skip_status is None else skip_status
    return run.status not in skipped and run.status.value not in skipped


def _member_scope(run: Run) -> str | None:
    if not getattr(run, "team_session_id", None):
        return None
    return getattr(run, "agent_id", None) or getattr(run, "team_id", None)


def _in_memory(session_id: str, runs: list[StoredRun]) -> AgnoMemory:
    return AgnoMemory(runs={session_id: [run.as_response(session_id) for run in runs]})


def _open_session(options: dict[str, Any], session_id: str, user_id: str, scope: str | None) -> Memory:
    if scope is None:
        return Memory.from_defaults(session_id, user_id=user_id, **options)
    return Memory.from_defaults(
        scope_session_id(session_id, scope), user_id=user_id, **{**options, "memory_blocks": []}
    )


def _refuse(options: dict[str, Any], db: object, namespace: str | None) -> None:
    for name in _ELSEWHERE.keys() & options.keys():
        raise ConfigurationError(f"StrandlineMemory has no argument '{name}': {_ELSEWHERE[name]}.")
    if db is not None and not isinstance(db, StrandlineMemoryDb):
        raise ConfigurationError(
            f"db is a {type(db).__name__}; StrandlineMemory keeps memories in Strandline's Postgres: give a"
            " StrandlineMemoryDb, or none."
        )
    if isinstance(db, StrandlineMemoryDb) and (
        namespace not in (None, db.namespace) or {"database_url", "pool", "schema"} & options.keys()
    ):
        raise ConfigurationError("Where memories are is said twice; the given db says it alone.")


T = TypeVar("T")


class LiveView(Mapping[str, T], Generic[T]):
    """A mapping whose values are read when they are asked for.

    Args:
        read: the value of a key; None if it has none.
        keys: the keys to go through.
        is_present: whether a value counts as there when the keys are gone through.
    """

    def __init__(
        self,
        read: Callable[[str], T | None],
        keys: Callable[[], Iterable[str]],
        is_present: Callable[[T], bool] = lambda _value: True,
    ) -> None:
        self._read = read
        self._keys = keys
        self._is_present = is_present

    def __getitem__(self, key: str) -> T:
        value = self._read(key)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        for key in self._keys():
            value = self._read(key)
            if value is not None and self._is_present(value):
                yield key

    def __len__(self) -> int:
        return sum(1 for _key in self)

    def __bool__(self) -> bool:
        """True, so that whoever asks for one key does not have all of them read."""
        return True
