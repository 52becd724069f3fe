"""Agno's ``SessionSummaryManager`` over the summaries that workers make of conversations."""

from __future__ import annotations

from typing import Any, Self

from agno.session import AgentSession, TeamSession
from agno.session.summary import SessionSummary, SessionSummaryManager

from strandline.adapters.agno.memories import user_or_default
from strandline.adapters.agno.runs import memory_maker
from strandline.adapters.twins import Act, call, twins
from strandline.producers.arguments import check_timeout
from strandline.producers.memory import SessionMemory
from strandline.producers.reading.summary import Summary
from strandline.schemas.errors import NotFoundError
from strandline.schemas.values.identity import DEFAULT_NAMESPACE


class StrandlineSummaryManager(SessionSummaryManager):
    """Agno's ``SessionSummaryManager`` on Strandline, with a ``StrandlineMemoryManager``.

    It gives sessions the rolling summary of their conversation; no agent's model is asked.  With
    ``enable_session_summaries`` Agno calls it after each run.  The summary then is as workers have it: it
    tells of all runs but the last ones, which the history shows.  ``wait`` makes it wait for them.

    Args:
        namespace, options: as of the manager.
        wait: the longest wait for the workers after a run, in seconds; None: take the summary as it is.
        id, name: as Agno's manager takes them.

    Raises: as ``strandline.Memory.from_defaults``.
    """

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        wait: float | None = None,
        id: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(id=id, name=name)
        self._make_memory = memory_maker(namespace, options)
        self._wait = None if wait is None else check_timeout(wait)

    def __deepcopy__(self, _memo: object) -> Self:
        """The same object: copies of an agent share it."""
        return self

    def _create_session_summary(
        self, session: AgentSession | TeamSession, run_metrics: object = None
    ) -> Act[SessionSummary | None]:
        """Deliver the session's messages, and give the session its summary; None: none is derived yet."""
        try:
            summary = yield from call(self._memory_of(session).summarize, wait=self._wait)
        except NotFoundError:  # no run of it was kept
            return None
        return self._give(session, summary)

    create_session_summary, acreate_session_summary = twins(_create_session_summary)

    def _memory_of(self, session: AgentSession | TeamSession) -> SessionMemory:
        return self._make_memory(session.session_id, user_or_default(session.user_id), False)

    def _give(self, session: AgentSession | TeamSession, summary: Summary | None) -> SessionSummary | None:
        if summary is None:
            return None
        session_summary = SessionSummary(summary.text, list(summary.topics) or None, summary.created_at)
        session.summary = session_summary
        self.summaries_updated = True
        return session_summary
