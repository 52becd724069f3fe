"""Agno 3: ``StrandlineMemoryManager`` with its hooks, and ``StrandlineSummaryManager``.

pip install 'strandline[agno]'
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

from agno.db.base import AsyncBaseDb, BaseDb
from agno.models.base import Model

from strandline.adapters.agno.manager import FactManager
from strandline.adapters.agno.messages import messages_of
from strandline.adapters.agno.overlay import overlay_memories
from strandline.adapters.agno.runs import MakeMemory
from strandline.adapters.agno.summaries import RollingSummaryManager
from strandline.memory import Memory
from strandline.producers.arguments import check_timeout
from strandline.producers.facts.listing import checked_limit
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.values.lanes import FACTS
from strandline.wiring.environment import settings_with
from strandline.wiring.runtime import Runtime, runtime_for

__all__ = ["StrandlineMemoryManager", "StrandlineSummaryManager", "messages_of"]

Db = TypeVar("Db", bound=BaseDb | AsyncBaseDb)

# Memories of so many conversations are kept ready; each is made again when it is needed.
_MAX_READY_MEMORIES = 1_024

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


class StrandlineMemoryManager(FactManager):
    """Agno's ``MemoryManager`` on Strandline; one for all agents, teams and users of an application.

    Its methods ``recall`` and ``keep`` (``arecall`` and ``akeep`` for ``arun``) are an agent's hooks.

    Args:
        namespace: the tenant; managers of other namespaces neither see nor change its memories.
        max_memories: how many memories a run is shown at most: those that fit its input, and some of the
            newest; 0: none.
        wait: the longest wait for workers in ``create_user_memories`` and ``update_memory_task``, in seconds;
            None: do not wait.
        actor: the name that changes by hand are recorded with.
        model: a model of Agno, for an optimization strategy of your own; nothing else calls it.
        id, name, debug_mode: as Agno's manager takes them.
        options: as ``strandline.Memory.from_defaults`` takes them (``token_limit``, ``memory_blocks``,
            ``database_url``, …); ``deliver`` is ``"turn"`` unless it is given.

    Raises: as ``strandline.Memory.from_defaults``.
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
        super().__init__(
            _resources(options),
            namespace,
            _memory_maker(namespace, options),
            max_memories=checked_limit(max_memories),
            wait=None if wait is None else check_timeout(wait),
            actor=actor,
            model=model,
            id=id,
            name=name,
            debug_mode=debug_mode,
        )

    def overlay(self, db: Db) -> Db:
        """Your own Agno database, with these memories in the place of its own, as for AgentOS.

        It is of the class of ``db``, and shares everything else with it.

        Raises:
            ConfigurationError: ``db`` is not a database of Agno.
        """
        return overlay_memories(db, self._resources, self.namespace, self._operations.actor)

    def close(self) -> None:
        """Close the resources that this process shares: pools, threads, the embedded servers; its memories
        cannot be used after that.
        """
        self._resources.close()

    async def aclose(self) -> None:
        """Async twin of ``close``; to be called on the event loop that used the manager."""
        await self._resources.aclose()


class StrandlineSummaryManager(RollingSummaryManager):
    """Agno's ``SessionSummaryManager`` on Strandline, beside a ``StrandlineMemoryManager``.

    Args:
        namespace, options: those of the manager.
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
        super().__init__(
            _memory_maker(namespace, options),
            wait=None if wait is None else check_timeout(wait),
            id=id,
            name=name,
        )


def _resources(options: dict[str, Any]) -> Runtime:
    settings = settings_with(
        database_url=options.get("database_url"),
        broker_url=options.get("broker_url"),
        database_schema=options.get("schema"),
    )
    return runtime_for(settings, pool=options.get("pool"), consume=options.get("consume"))


def _memory_maker(namespace: str, options: dict[str, Any]) -> MakeMemory:
    """Makes memories with these options; of an agent that edits facts itself, without deriving them."""
    common = {"deliver": "turn", **options, "namespace": namespace}
    blocks = Memory.from_defaults(**common).memory_blocks  # options that cannot be used are refused now
    without_facts = [block for block in blocks if block.pipeline != FACTS]

    @lru_cache(maxsize=_MAX_READY_MEMORIES)
    def make(session_id: str, user_id: str, is_agentic: bool) -> Memory:
        chosen = {**common, "memory_blocks": without_facts} if is_agentic else common
        return Memory.from_defaults(session_id, user_id=user_id, **chosen)

    return make
