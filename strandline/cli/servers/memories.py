"""A memory or an owner's facts, opened for one command on the servers that run, and a read of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from strandline.cli.servers.options import namespace_option, owner_options, session_options
from strandline.cli.servers.targets import opened_servers
from strandline.facts import Facts
from strandline.memory import Memory
from strandline.pipelines.inspect.directory import check_known, find_session
from strandline.pipelines.inspect.sessions import SessionState, session_state
from strandline.producers.blocks.resolve import default_blocks, owner_wide, stored_blocks
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.producers.reading.context import MemoryContext
from strandline.producers.sessions import check_owner
from strandline.schemas.errors import NotFoundError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import SessionIdentity, identify_session
from strandline.schemas.values.policy import DEFAULT_TOKEN_LIMIT
from strandline.schemas.values.undelivered import Undelivered
from strandline.schemas.wire.base import WaitingOut
from strandline.schemas.wire.contexts import OmissionOut
from strandline.schemas.wire.report import Report


class ReadState(Report):
    """A read within ``token_limit``: its size, memory's progress, and the omissions."""

    namespace: str
    session_id: str
    user_id: str | None
    token_limit: int
    tokens: int
    over_budget: bool
    caught_up: bool
    covered_through: dict[str, int]
    omitted: list[OmissionOut]
    waiting: WaitingOut | None


token_limit_option = click.option(
    "--token-limit", type=click.IntRange(1), metavar="N", help="The token limit; default: the session's."
)
OpenedSession = tuple[Memory, SessionState]


@session_options
@contextmanager
def opened_session(
    settings: Settings, session: str, namespace: str, user: str | None, token_limit: int | None = None
) -> Iterator[OpenedSession]:
    """A session with the blocks and limits that are stored with it.

    Raises:
        NotFoundError: there is no such session.
    """
    with opened_servers(settings) as running:
        identity = find_session(running.database, session, namespace=namespace, user_id=user)
        state = session_state(running.database, identity)
        memory = Memory.from_defaults(
            session,
            user_id=state.user_id,
            namespace=namespace,
            token_limit=state.policy.token_limit if token_limit is None else token_limit,
            memory_blocks=stored_blocks(state.policy.pipelines, state.policy.max_facts),
            **running.urls,
        )
        with closing(memory):
            yield memory, state


@contextmanager
def opened_user(settings: Settings, user: str, namespace: str) -> Iterator[Memory]:
    """All of a user's memory, of any session.

    Raises:
        NotFoundError: the user is unknown.
    """
    with opened_servers(settings) as running:
        check_known(running.database, namespace=namespace, user_id=user)
        memory = Memory.from_defaults(user_id=user, namespace=namespace, **running.urls)
        with closing(memory):
            yield memory


@contextmanager
def opened_for_agent(settings: Settings, user: str, namespace: str, session: str | None) -> Iterator[Memory]:
    """The memory of a user as an agent gets it: facts, and the messages of all sessions, if there are any.

    With a session, its blocks and limits, and its latest messages.

    Raises:
        OwnerError: the session belongs to another owner.
        InvalidMessageError: a name is invalid.
    """
    with opened_servers(settings, create=True) as running:
        state = None
        if session is not None:
            state = _known_state(running.database, identify_session(namespace, session, user))
        policy = None if state is None else state.policy
        blocks = default_blocks() if policy is None else stored_blocks(policy.pipelines, policy.max_facts)
        memory = Memory.from_defaults(
            session,
            user_id=user,
            namespace=namespace,
            token_limit=DEFAULT_TOKEN_LIMIT if policy is None else policy.token_limit,
            memory_blocks=owner_wide(blocks),
            **running.urls,
        )
        with closing(memory):
            yield memory


@owner_options
@contextmanager
def opened_new_facts(
    settings: Settings, namespace: str, user: str | None, session: str | None, *, may_be_new: bool = True
) -> Iterator[Facts]:
    """As ``opened_facts``; a user may be new."""
    if session is None and user is None:
        raise click.UsageError("Whose facts? Give --user, or --session of a session without a user.")
    with opened_servers(settings) as running:
        if session is not None or not may_be_new:
            check_known(running.database, namespace=namespace, session_id=session, user_id=user)
        if session is not None and user is None:
            user = find_session(running.database, session, namespace=namespace).user_id
        whose = {"user_id": user} if user is not None else {"session_id": session}
        with closing(Facts.for_owner(**whose, namespace=namespace, **running.urls)) as facts:
            yield facts


@owner_options
@contextmanager
def opened_facts(
    settings: Settings, namespace: str, user: str | None, session: str | None
) -> Iterator[Facts]:
    """The facts of a user, or of a session's owner; raises UsageError without one, or NotFoundError."""
    with opened_new_facts(settings, namespace, user, session, may_be_new=False) as facts:
        yield facts


@namespace_option
@contextmanager
def opened_namespace(settings: Settings, namespace: str) -> Iterator[NamespaceFacts]:
    """The facts of all owners of a namespace; NotFoundError: there is no such namespace."""
    with opened_servers(settings) as running:
        check_known(running.database, namespace=namespace)
        with closing(Facts.of_namespace(namespace, **running.urls)) as facts:
            yield facts


def _known_state(database: Database, identity: SessionIdentity) -> SessionState | None:
    try:
        stored = find_session(database, identity.session_id, namespace=identity.namespace)
    except NotFoundError:
        return None
    check_owner(identity, stored.shard_key)
    return session_state(database, identity)


def read(opened: OpenedSession, query: str | None) -> tuple[MemoryContext, ReadState]:
    """The read of ``Memory.get`` with the default blocks of the session's pipelines, and its state."""
    memory, stored = opened
    context = memory.get(query)
    state = ReadState.of(
        context,
        namespace=stored.namespace,
        session_id=stored.session_id,
        user_id=stored.user_id,
        token_limit=memory.token_limit,
    )
    return context, state


def coverage_lines(state: ReadState) -> Iterator[str]:
    """How far memory is, by pipeline."""
    for pipeline, seq in state.covered_through.items():
        yield f"{pipeline}: covered through {seq}"
    if not state.caught_up:
        yield "not caught up: flushed messages are still on their way to a block"
    if state.waiting is not None:
        yield str(Undelivered(**dict(state.waiting)))


def omission_lines(state: ReadState) -> Iterator[str]:
    """The omissions, with reasons."""
    for item in state.omitted:
        yield f"left out: {item.name} ({item.kind}): {item.reason}"
