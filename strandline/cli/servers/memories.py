"""A memory or an owner's facts, opened for one command on the servers that run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from strandline.cli.servers.targets import opened_pool, servers_for_once
from strandline.facts import Facts
from strandline.memory import Memory
from strandline.pipelines.inspect.directory import check_known, find_session
from strandline.pipelines.inspect.sessions import SessionState, session_state
from strandline.producers.blocks.base import FactExtractionMemoryBlock
from strandline.producers.blocks.resolve import BlockSource, default_blocks
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import FACTS


@contextmanager
def opened_session(
    settings: Settings,
    session_id: str,
    *,
    namespace: str,
    user_id: str | None,
    token_limit: int | None = None,
) -> Iterator[tuple[Memory, SessionState]]:
    """A session with the blocks and limits that are stored with it.

    Raises:
        NotFoundError: there is no such session.
    """
    with servers_for_once(settings) as servers:
        with opened_pool(servers.database_url, settings) as database:
            identity = find_session(database, session_id, namespace=namespace, user_id=user_id)
            state = session_state(database, identity)
        memory = Memory.from_defaults(
            session_id,
            user_id=state.user_id,
            namespace=namespace,
            token_limit=state.policy.token_limit if token_limit is None else token_limit,
            memory_blocks=blocks_of(state.policy.pipelines, state.policy.max_facts),
            database_url=servers.database_url,
            schema=settings.database_schema,
        )
        try:
            yield memory, state
        finally:
            memory.close()


@contextmanager
def opened_user(settings: Settings, user_id: str, *, namespace: str) -> Iterator[Memory]:
    """All that is known of a user, whatever the session.

    Raises:
        NotFoundError: there is nothing of this user.
    """
    with servers_for_once(settings) as servers:
        with opened_pool(servers.database_url, settings) as database:
            check_known(database, namespace=namespace, user_id=user_id)
        memory = Memory.from_defaults(
            user_id=user_id,
            namespace=namespace,
            database_url=servers.database_url,
            schema=settings.database_schema,
        )
        try:
            yield memory
        finally:
            memory.close()


@contextmanager
def opened_facts(
    settings: Settings, *, namespace: str, user_id: str | None, session_id: str | None
) -> Iterator[Facts]:
    """The facts of a user, or of whoever owns a session.

    Raises:
        UsageError: neither is given.
        NotFoundError: there is no such user or session.
    """
    if session_id is None and user_id is None:
        raise click.UsageError("Whose facts? Give --user, or --session of a session without a user.")
    with servers_for_once(settings) as servers:
        with opened_pool(servers.database_url, settings) as database:
            whose = _owner(database, namespace, user_id, session_id)
        facts = Facts.for_owner(
            **whose,
            namespace=namespace,
            database_url=servers.database_url,
            schema=settings.database_schema,
        )
        try:
            yield facts
        finally:
            facts.close()


def blocks_of(pipelines: Sequence[str], max_facts: int | None) -> list[BlockSource]:
    """The blocks that a memory has by default, of these pipelines; others by name."""
    own: dict[str, BlockSource] = {block.pipeline or "": block for block in default_blocks()}
    if max_facts is not None:
        own[FACTS] = FactExtractionMemoryBlock(max_facts=max_facts)
    return [own.get(pipeline, pipeline) for pipeline in pipelines]


def _owner(database: Database, namespace: str, user_id: str | None, session_id: str | None) -> dict[str, Any]:
    check_known(database, namespace=namespace, session_id=session_id, user_id=user_id)
    if session_id is None or user_id is not None:
        return {"user_id": user_id}
    owner = find_session(database, session_id, namespace=namespace).user_id
    return {"session_id": session_id} if owner is None else {"user_id": owner}
