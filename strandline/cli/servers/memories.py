"""A memory or an owner's facts, opened for one command on the servers that run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from strandline.cli.servers.targets import opened_pool, servers_for_once
from strandline.facts import Facts
from strandline.memory import Memory
from strandline.pipelines.inspect.directory import check_known, find_session
from strandline.pipelines.inspect.sessions import SessionState, session_state
from strandline.producers.blocks.resolve import default_blocks, owner_wide, stored_blocks
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.producers.sessions import check_owner
from strandline.schemas.errors import NotFoundError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import SessionIdentity, identify_session
from strandline.schemas.values.policy import DEFAULT_TOKEN_LIMIT


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
            memory_blocks=stored_blocks(state.policy.pipelines, state.policy.max_facts),
            database_url=servers.database_url,
            schema=settings.database_schema,
        )
        with closing(memory):
            yield memory, state


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
        with closing(memory):
            yield memory


@contextmanager
def opened_for_agent(
    settings: Settings, user_id: str, *, namespace: str, session_id: str | None
) -> Iterator[Memory]:
    """What an agent of a user works on: facts, and the messages of all sessions; there may be nothing yet.

    With a session, its blocks and limits, and its latest messages.

    Raises:
        OwnerError: the session belongs to another owner.
        InvalidMessageError: a name cannot name anything.
    """
    with servers_for_once(settings, create=True) as servers:
        state = None
        if session_id is not None:
            with opened_pool(servers.database_url, settings) as database:
                state = _known_state(database, identify_session(namespace, session_id, user_id))
        policy = None if state is None else state.policy
        memory = Memory.from_defaults(
            session_id,
            user_id=user_id,
            namespace=namespace,
            token_limit=DEFAULT_TOKEN_LIMIT if policy is None else policy.token_limit,
            memory_blocks=owner_wide(
                default_blocks() if policy is None else stored_blocks(policy.pipelines, policy.max_facts)
            ),
            database_url=servers.database_url,
            schema=settings.database_schema,
        )
        with closing(memory):
            yield memory


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
        with closing(facts):
            yield facts


@contextmanager
def opened_namespace(settings: Settings, namespace: str) -> Iterator[NamespaceFacts]:
    """The facts of all owners of a namespace.

    Raises:
        NotFoundError: there is no such namespace.
    """
    with servers_for_once(settings) as servers:
        with opened_pool(servers.database_url, settings) as database:
            check_known(database, namespace=namespace)
        facts = Facts.of_namespace(
            namespace, database_url=servers.database_url, schema=settings.database_schema
        )
        with closing(facts):
            yield facts


def _known_state(database: Database, identity: SessionIdentity) -> SessionState | None:
    """The state of a session of this owner; None if nothing was put to it yet."""
    try:
        stored = find_session(database, identity.session_id, namespace=identity.namespace)
    except NotFoundError:
        return None
    check_owner(identity, stored.shard_key)
    return session_state(database, identity)


def _owner(database: Database, namespace: str, user_id: str | None, session_id: str | None) -> dict[str, Any]:
    check_known(database, namespace=namespace, session_id=session_id, user_id=user_id)
    if session_id is None or user_id is not None:
        return {"user_id": user_id}
    owner = find_session(database, session_id, namespace=namespace).user_id
    return {"session_id": session_id} if owner is None else {"user_id": owner}
