"""Agno 1: ``StrandlineMemory``, for ``memory=`` of agents and teams, and ``StrandlineMemoryDb``.

pip install 'strandline[agno1]'
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from strandline import ConfigurationError, Facts, Memory, SummaryMemoryBlock, VectorMemoryBlock
from strandline.adapters.legacy.agno_v1.memory import DEFAULT_MEMORIES, RunMemory
from strandline.adapters.legacy.agno_v1.memory_db import FactDb
from strandline.adapters.legacy.agno_v1.memory_ids import MemoryIds
from strandline.adapters.legacy.agno_v1.session_users import UserOf
from strandline.adapters.legacy.agno_v1.user_memories import UserMemories
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, scope_session_id
from strandline.wiring.environment import settings_with
from strandline.wiring.runtime import Pool, runtime_for

__all__ = ["StrandlineMemory", "StrandlineMemoryDb"]

# Memories of so many sessions, and facts of so many users, are kept ready; each is made again when needed.
MAX_READY = 1_024

# Arguments of Agno's memory, and what takes their place here.
_ELSEWHERE = {
    "model": "models run in the workers; set STRANDLINE_FACTS_MODEL and STRANDLINE_SUMMARY_MODEL there",
    "memory_manager": "workers make the facts; say what they keep with facts.set_capture(Capture(…))",
    "summarizer": "workers make the summary; say how with facts.set_capture(Capture(…))",
    "memories": "facts are in Postgres; add them with add_user_memory",
    "summaries": "summaries are made from the runs",
    "runs": "runs are in Postgres; add them with add_run",
    "delete_memories": "facts.set_capture(Capture(may_delete=…)) says it",
    "clear_memories": "no model clears a user's facts",
}


class StrandlineMemoryDb(FactDb):
    """Agno's ``MemoryDb`` in Strandline's Postgres: user memories are facts of their users.

    Args:
        namespace: the tenant; nothing is shared between namespaces, and ``clear`` goes no further.
        database_url, pool, schema: as for ``strandline.Memory.from_defaults``.

    Raises:
        ConfigurationError: a setting cannot be used.
        InvalidMessageError: ``namespace`` is not a valid name.
    """

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        database_url: str | None = None,
        pool: Pool | None = None,
        schema: str | None = None,
    ) -> None:
        self.options: dict[str, Any] = {"database_url": database_url, "pool": pool, "schema": schema}
        settings = settings_with(database_url=database_url, database_schema=schema)
        ids = MemoryIds(runtime_for(settings, pool=pool, consume=None), namespace)
        facts_of = lru_cache(MAX_READY)(partial(_facts_of, namespace, self.options))
        super().__init__(UserMemories(facts_of, ids), Facts.of_namespace(namespace, **self.options))


class StrandlineMemory(RunMemory):
    """Agno 1's ``Memory``: runs are a log, facts and summaries are made from it by workers.

    Args:
        user_id: the user whose sessions these are; or a function of a session's id that returns the user, for
            an agent that serves several; default: whom ``initialize`` names.
        db: where the facts are, if you have one; default: made from ``namespace`` and ``options``.
        namespace: the tenant.
        agentic: make no facts from runs: an agent with ``enable_agentic_memory`` changes them by its tool.
        max_memories: maximum number of facts in a prompt: some of the newest, and those that fit the question
            (``expect``), or else what the user said last.
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
        open_session = lru_cache(MAX_READY)(partial(_open_session, options))
        super().__init__(
            open_session,
            rows,
            # By the memory's own resources, which consume events if its options say so.
            rows.memories.with_facts(lambda user: open_session("facts", user, None).facts),
            user_id=user_id,
            max_memories=max_memories,
            wait_seconds=wait_seconds,
            debug_mode=debug_mode,
        )

    def close(self) -> None:
        """Close the resources that this process shares; its memories cannot be used after that."""
        self._resources_of_runs.close()
        self.db.close()


def _facts_of(namespace: str, options: dict[str, Any], user_id: str) -> Facts:
    return Facts.for_owner(user_id=user_id, namespace=namespace, **options)


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
