"""What a run of an agent or a team calls: memories that fit its input before, its messages kept after it.

Before a run ``begin`` says whose it is, and ``remember`` gives the memories to the one read of them that
Agno makes for the system message.  They pass by a context variable, so runs at once do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from agno.agent import Agent
from agno.db.schemas import UserMemory
from agno.run.cancel import aget_member_run_ids, get_member_run_ids
from agno.team import Team

from strandline.adapters.agno.messages import Run, messages_of
from strandline.producers.memory import SessionMemory
from strandline.schemas.errors import DatabaseUnavailableError
from strandline.schemas.values.message import Message

# Makes the memory of a conversation: of a session, its user, and whether the agent edits facts itself.
MakeMemory = Callable[[str, str, bool], SessionMemory]

# So many messages of a run are put at once; a put takes up to a thousand.
MESSAGES_PER_PUT = 500
# So many messages are held for runs whose put failed; more are left to Agno's own database.
MAX_HELD_MESSAGES = 10_000


@dataclass(frozen=True, slots=True)
class _Recalled:
    """The memories of the run that is beginning, for the manager that looked them up."""

    keeper: RunKeeper
    user_id: str
    memories: list[UserMemory]


_recalled: ContextVar[_Recalled | None] = ContextVar("strandline_agno_recalled", default=None)
# The runs of teams that this context is in, the innermost last; of one that failed the id stays, unused.
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
        self._kept: set[str] = set()
        self._held: dict[tuple[str, str], list[list[Message]]] = {}

    def begin(self, run_id: str, runner: Agent | Team) -> None:
        """Note that a run begins."""
        _recalled.set(None)
        if any(self._is_kept_by(hook) for hook in runner.post_hooks or ()):
            self._kept.add(str(runner.id))
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
        return runner_id in self._kept

    def keep(self, run: Run, session_id: str, user_id: str, runner: Agent | Team) -> None:
        """Put the messages of a run; doing it again adds nothing.

        Raises:
            StrandlineError: they could not be stored.  If Postgres could not be reached, the next run of
                this conversation puts them first.
        """
        team_runs = self._end(run, runner)
        if any(run.run_id in get_member_run_ids(team_run) for team_run in team_runs):
            return  # the team's run has the task and the answer in its own messages
        memory = self._make_memory(session_id, user_id, bool(runner.enable_agentic_memory))
        runs = [*self._held.pop((session_id, user_id), ()), messages_of(run)]
        try:
            while runs:
                for part in _parts(runs[0]):
                    memory.put_messages(part)
                if _is_open(runs.pop(0)):
                    memory.deliver()
        except DatabaseUnavailableError:
            self._hold((session_id, user_id), runs)
            raise

    async def akeep(self, run: Run, session_id: str, user_id: str, runner: Agent | Team) -> None:
        """Async twin of ``keep``."""
        team_runs = self._end(run, runner)
        for team_run in team_runs:
            if run.run_id in await aget_member_run_ids(team_run):
                return
        memory = self._make_memory(session_id, user_id, bool(runner.enable_agentic_memory))
        runs = [*self._held.pop((session_id, user_id), ()), messages_of(run)]
        try:
            while runs:
                for part in _parts(runs[0]):
                    await memory.aput_messages(part)
                if _is_open(runs.pop(0)):
                    await memory.adeliver()
        except DatabaseUnavailableError:
            self._hold((session_id, user_id), runs)
            raise

    def _end(self, run: Run, runner: Agent | Team) -> tuple[str, ...]:
        """Note that a run ended; returns the runs of teams around it."""
        self._kept.add(str(runner.id))
        _recalled.set(None)
        around = tuple(team_run for team_run in _team_runs.get() if team_run != run.run_id)
        if isinstance(runner, Team):
            _team_runs.set(around)
        return around

    def _hold(self, conversation: tuple[str, str], runs: list[list[Message]]) -> None:
        """Keep runs until the next one of their conversation, as far as there is room."""
        held = sum(len(messages) for waiting in self._held.values() for messages in waiting)
        if held + sum(map(len, runs)) <= MAX_HELD_MESSAGES:
            self._held[conversation] = runs


def _parts(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    return (messages[start : start + MESSAGES_PER_PUT] for start in range(0, len(messages), MESSAGES_PER_PUT))


def _is_open(messages: Sequence[Message]) -> bool:
    """Whether the run ended with a tool's result, so that no answer ends its turn."""
    return bool(messages) and messages[-1].role != "assistant"
