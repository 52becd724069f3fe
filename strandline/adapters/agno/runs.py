"""Hooks of an agent's or a team's run: fetch fitting memories before it, keep its messages after it.

Before a run ``begin`` names its owner, and ``remember`` gives the memories to Agno's one read of them, for
the system message.  They pass by a context variable, which keeps concurrent runs apart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from threading import Lock
from typing import Any
from uuid import uuid4

from agno.agent import Agent
from agno.db.schemas import UserMemory
from agno.run.base import RunStatus
from agno.run.cancel import get_member_run_ids
from agno.session import AgentSession, TeamSession
from agno.team import Team

from strandline.adapters.agno.messages import Run, messages_of
from strandline.adapters.recently_used import RecentlyUsed
from strandline.adapters.storable import parts_of, storable
from strandline.adapters.twins import Act, call, twins
from strandline.memory import Memory
from strandline.producers.memory import SessionMemory
from strandline.schemas.errors import DatabaseUnavailableError, StrandlineError
from strandline.schemas.values.lanes import FACTS
from strandline.schemas.values.message import Message

logger = logging.getLogger("strandline.adapters")

# Makes the memory of a conversation: of a session, its user, and whether the agent edits facts itself.
MakeMemory = Callable[[str, str, bool], SessionMemory]
AnySession = AgentSession | TeamSession

# Memories of so many conversations are kept ready; each is made again when it is needed.
_MAX_READY_MEMORIES = 1_024
# A run of more messages cannot be put at once, so none of them can be replaced.
MAX_RUN_MESSAGES = 1_000
# So many messages are held for runs whose put failed; more are left to Agno's own database.
MAX_HELD_MESSAGES = 10_000
# Of so many agents and teams it is known that their runs are kept; one without a name is another for each
# run.
MAX_KNOWN_RUNNERS = 10_000


@dataclass(frozen=True, slots=True)
class _EndedRun:
    """A run that ended.

    Attributes:
        run_id: under which it is kept; the same id again replaces it.
        agent_id, team_id: the runner.
        place: counts the runs that ended in this process.
    """

    run_id: str
    messages: list[Message]
    agent_id: str | None
    team_id: str | None
    place: int

    @property
    def is_long(self) -> bool:
        """Whether it has more messages than can be put at once."""
        return len(self.messages) > MAX_RUN_MESSAGES

    @property
    def is_open(self) -> bool:
        """Whether it ended with a tool's result, so that no answer ends its turn."""
        return bool(self.messages) and self.messages[-1].role != "assistant"


@dataclass(frozen=True, slots=True)
class _Recalled:
    keeper: RunKeeper
    user_id: str
    memories: list[UserMemory]


_recalled: ContextVar[_Recalled | None] = ContextVar("strandline_agno_recalled", default=None)
# This context's team runs, the innermost last; of a failed one the id stays, unused.
_team_runs: ContextVar[tuple[str, ...]] = ContextVar("strandline_agno_team_runs", default=())
_MAX_TEAM_RUNS = 16


class RunKeeper:
    """Keeps the runs of agents and teams in the memory of their conversations.

    Args:
        make_memory: makes the memory of a conversation; it does no I/O.
        is_kept_by: whether a hook of an agent keeps its runs.
    """

    def __init__(self, make_memory: MakeMemory, is_kept_by: Callable[[object], bool]) -> None:
        self._make_memory = make_memory
        self._is_kept_by = is_kept_by
        self._kept: RecentlyUsed[str, bool] = RecentlyUsed(MAX_KNOWN_RUNNERS)
        self._held: dict[tuple[str, str], list[_EndedRun]] = {}
        self._lock = Lock()  # of the runs that are held
        self._places = count()

    def begin(self, run_id: str, runner: Agent | Team) -> None:
        """Note that a run begins."""
        _recalled.set(None)
        if any(self._is_kept_by(hook) for hook in runner.post_hooks or ()):
            self._kept.put(str(runner.id), True)
        if isinstance(runner, Team):
            _team_runs.set((*_team_runs.get(), run_id)[-_MAX_TEAM_RUNS:])

    def remember(self, user_id: str, memories: list[UserMemory]) -> None:
        """Hold the memories of the run for the next ``take_recalled``."""
        _recalled.set(_Recalled(self, user_id, memories))

    def take_recalled(self, user_id: str) -> list[UserMemory] | None:
        """The memories of the run that is beginning, once; None outside of one."""
        recalled = _recalled.get()
        if recalled is None or recalled.keeper is not self or recalled.user_id != user_id:
            return None
        _recalled.set(None)
        return recalled.memories

    def keeps_runs_of(self, runner_id: str | None) -> bool:
        """Whether the messages of this agent's or team's runs are kept when a run has ended."""
        return runner_id is not None and bool(self._kept.get(runner_id))

    def _keep(self, run: Run, session: AnySession, user_id: str, runner: Agent | Team) -> Act[None]:
        """Store the messages of a run, in place of its earlier ones if it comes again.

        Raises:
            StrandlineError: they could not be stored.  If Postgres could not be reached, the next run of
                this conversation puts them first, within the bounds of the buffer.
        """
        for team_run in self._end(run, runner):
            if run.run_id in (yield from call(get_member_run_ids, team_run)):
                return  # the team's run has the task and the answer in its own messages
        memory = self._make_memory(session.session_id, user_id, bool(runner.enable_agentic_memory))
        ended_run = self._ended_run(run, session, memory)
        with self._runs_to_store((session.session_id, user_id), ended_run) as runs:
            while runs:
                yield from _store(memory, runs[0])
                if runs.pop(0).is_open:
                    yield from call(memory.deliver)

    keep, akeep = twins(_keep)

    def _end(self, run: Run, runner: Agent | Team) -> tuple[str, ...]:
        self._kept.put(str(runner.id), True)
        _recalled.set(None)
        around = tuple(team_run for team_run in _team_runs.get() if team_run != run.run_id)
        if isinstance(runner, Team):
            _team_runs.set(around)
        return around

    def _ended_run(self, run: Run, session: AnySession, memory: SessionMemory) -> _EndedRun:
        return _EndedRun(
            run_id=_stored_run_id(run, session),
            messages=storable(messages_of(run), memory.put_limits),
            agent_id=getattr(run, "agent_id", None),
            team_id=getattr(run, "team_id", None),
            place=next(self._places),
        )

    @contextmanager
    def _runs_to_store(self, conversation: tuple[str, str], run: _EndedRun) -> Iterator[list[_EndedRun]]:
        """Take a conversation's held runs and this one, to store them.

        The remaining ones are held again, except a run that cannot be stored as it is.
        """
        with self._lock:
            runs = [*self._held.pop(conversation, ()), run]
        try:
            yield runs
        except StrandlineError as error:
            self._hold(conversation, runs if isinstance(error, DatabaseUnavailableError) else runs[1:])
            raise
        except BaseException:
            self._hold(conversation, runs)
            raise

    def _hold(self, conversation: tuple[str, str], runs: Sequence[_EndedRun]) -> None:
        with self._lock:
            waiting = sorted([*self._held.pop(conversation, ()), *runs], key=lambda run: run.place)
            room = MAX_HELD_MESSAGES - sum(len(run.messages) for held in self._held.values() for run in held)
            kept: list[_EndedRun] = []
            for run in waiting:
                room -= len(run.messages)
                if room < 0:
                    break
                kept.append(run)
            if kept:
                self._held[conversation] = kept
        if dropped := waiting[len(kept) :]:
            logger.warning(
                "runs were not kept, since too many wait for Postgres",
                extra={
                    "action": "runs_dropped",
                    "runs": len(dropped),
                    "messages": sum(len(run.messages) for run in dropped),
                },
            )


def _store(memory: SessionMemory, run: _EndedRun) -> Act[None]:
    if run.is_long:
        for part in parts_of(run.messages):
            yield from call(memory.put_messages, part)
    elif run.messages:
        yield from call(memory.add_run, run.run_id, run.messages, agent_id=run.agent_id, team_id=run.team_id)


def _stored_run_id(run: Run, session: AnySession) -> str:
    """The id under which a run is kept: its own, or that of the run it regenerates.

    Agno gives a regenerated run a new id, and marks the run that it replaces.
    """
    known = {one.run_id: one for one in session.runs or ()}
    run_id, source = run.run_id, getattr(run, "regenerated_from", None)
    while source in known and known[source].status == RunStatus.regenerated:
        run_id, source = source, getattr(known.pop(source), "regenerated_from", None)
    return run_id or uuid4().hex


def memory_maker(namespace: str, options: dict[str, Any]) -> MakeMemory:
    """Makes memories with these options; of an agent that edits facts itself, without deriving them."""
    common = {"deliver": "turn", **options, "namespace": namespace}
    blocks = Memory.from_defaults(**common).memory_blocks  # options that cannot be used are refused now
    without_facts = [block for block in blocks if block.pipeline != FACTS]

    @lru_cache(maxsize=_MAX_READY_MEMORIES)
    def make(session_id: str, user_id: str, is_agentic: bool) -> Memory:
        chosen = {**common, "memory_blocks": without_facts} if is_agentic else common
        return Memory.from_defaults(session_id, user_id=user_id, **chosen)

    return make
