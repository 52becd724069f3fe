"""The hooks of a manager: ``recall`` before a run, ``keep`` after it, and their async twins."""

from __future__ import annotations

from agno.agent import Agent
from agno.db.schemas import UserMemory
from agno.run import RunContext
from agno.run.agent import RunInput, RunOutput
from agno.run.team import TeamRunInput, TeamRunOutput
from agno.team import Team

from strandline.adapters.agno.memories import user_or_default
from strandline.adapters.agno.messages import query_of
from strandline.adapters.agno.operations import MemoryOperations
from strandline.adapters.agno.runs import AnySession, MakeMemory, RunKeeper
from strandline.producers.execution import OperationRunner, Resources
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation


class RunHooks:
    """Methods to give an agent or a team as hooks.

    Agno calls a pre-hook with the input and the session of a run, and a post-hook with its output.  What a
    hook raises is logged by Agno, and the run goes on.
    """

    def __init__(
        self, operations: MemoryOperations, resources: Resources, make_memory: MakeMemory, max_memories: int
    ) -> None:
        self.namespace = operations.namespace
        self._operations = operations
        self._resources = resources
        self._runner = OperationRunner(resources)
        self._max_memories = max_memories
        self._keeper = RunKeeper(make_memory, lambda hook: getattr(hook, "__self__", None) is self)

    def recall(
        self,
        run_input: RunInput | TeamRunInput,
        run_context: RunContext,
        user_id: str | None = None,
        agent: Agent | None = None,
        team: Team | None = None,
    ) -> None:
        """A pre-hook: look up the memories that fit the run's input, for its system message."""
        user = user_or_default(user_id)
        self._keeper.begin(run_context.run_id, _runner(agent, team))
        self._keeper.remember(user, [])  # what a run is shown if the look-up fails
        self._keeper.remember(user, self._runner.run(self._relevant(user, run_input)))

    async def arecall(
        self,
        run_input: RunInput | TeamRunInput,
        run_context: RunContext,
        user_id: str | None = None,
        agent: Agent | None = None,
        team: Team | None = None,
    ) -> None:
        """Async twin of ``recall``, for ``arun``."""
        user = user_or_default(user_id)
        self._keeper.begin(run_context.run_id, _runner(agent, team))
        self._keeper.remember(user, [])
        self._keeper.remember(user, await self._runner.arun(self._relevant(user, run_input)))

    def keep(
        self,
        run_output: RunOutput | TeamRunOutput,
        session: AnySession,
        user_id: str | None = None,
        agent: Agent | None = None,
        team: Team | None = None,
    ) -> None:
        """A post-hook: store the messages of the run, and deliver them to the workers.

        A run that comes again, retried, continued or regenerated, takes the place of what it was.  A team
        keeps the runs of its members with its own.
        """
        runner = _runner(agent, team)
        self._keeper.keep(run_output, session, user_or_default(user_id), runner)

    async def akeep(
        self,
        run_output: RunOutput | TeamRunOutput,
        session: AnySession,
        user_id: str | None = None,
        agent: Agent | None = None,
        team: Team | None = None,
    ) -> None:
        """Async twin of ``keep``, for ``arun``."""
        await self._keeper.akeep(run_output, session, user_or_default(user_id), _runner(agent, team))

    def _relevant(
        self, user_id: str, run_input: RunInput | TeamRunInput | None
    ) -> Operation[list[UserMemory]]:
        return self._operations.relevant(user_id, query_of(run_input), self._max_memories)


def _runner(agent: Agent | None, team: Team | None) -> Agent | Team:
    runner = agent if team is None else team
    if runner is None:
        raise ConfigurationError("recall and keep are hooks of an agent or a team, which Agno calls.")
    return runner
