"""Sessions as operators see them: a page of them, and one with its marks, policy, coverage and flushes."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime
from json import dumps, loads
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from strandline.pipelines.inspect.directory import check_known, find_session
from strandline.pipelines.inspect.policy_history import PolicyChangeTrace, policy_changes
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, NotFoundError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.postgres.operations import Row
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, SessionIdentity, identify_session

P = TypeVar("P", bound=BaseModel)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SessionPolicy(_Part):
    """The stored policy of a session; its tokenizer counts the tokens.

    ``flush_at_tokens`` is the mark; ``idle_seconds`` null: never flushed because it is idle; ``max_facts``
    null: no influence on when facts are condensed.
    """

    token_limit: int
    flush_at_tokens: int
    token_flush_size: int
    idle_seconds: int | None
    tokenizer: str
    pipelines: tuple[str, ...]
    max_facts: int | None
    shared_scope: str | None
    max_window_messages: int
    max_window_bytes: int


class SessionState(_Part):
    """One session: how much it holds, and its marks (docs/architecture/log-and-marks.md)."""

    namespace: str
    session_id: str
    user_id: str | None
    messages: int
    log_start_seq: int
    pinned_through: int
    flushed_through: int
    window_from: int
    last_seq: int
    pinned_tokens: int
    window_tokens: int
    created_at: datetime
    last_put_at: datetime
    policy: SessionPolicy


class SessionPage(_Part):
    """``strandline sessions list``; ``after`` is what ``--after`` takes for the next page."""

    sessions: tuple[SessionState, ...]
    after: str | None


class PipelineCoverage(_Part):
    """How far a pipeline is with a session's flushes; ``generation`` null: no worker has registered it.

    Everything flushed up to ``covered_through`` is in what it derived; ``due`` and ``dead`` count the rest.
    """

    pipeline: str
    generation: int | None
    covered_through: int | None
    due: int
    dead: int


class SessionFlush(_Part):
    """One flush event of a session."""

    event_id: UUID
    cause: str
    from_seq: int
    through_seq: int
    messages: int
    tokens: int
    at: datetime


class SessionHole(_Part):
    """A dead letter of a session; ``strandline dead-letters show`` takes its ``id``."""

    id: str
    generation: int
    from_seq: int
    through_seq: int
    at: datetime
    reason: str


class SessionPicture(_Part):
    """``strandline sessions show``; ``latest_flushes`` are the newest of ``flushes``, newest first."""

    session: SessionState
    coverage: tuple[PipelineCoverage, ...]
    flushes: int
    latest_flushes: tuple[SessionFlush, ...]
    dead_letters: tuple[SessionHole, ...]
    policy_changes: tuple[PolicyChangeTrace, ...]


def list_sessions(
    database: Database,
    *,
    namespace: str | None = None,
    user_id: str | None = None,
    limit: int = 50,
    after: str | None = None,
) -> SessionPage:
    """A page of the sessions by name: of all namespaces, of one, or of a user.

    Args:
        namespace: of a user, ``default`` if none is given.
        limit: at most so many.
        after: the ``after`` of the page before.

    Raises:
        NotFoundError: there is nothing in this namespace, or of this user.
        ConfigurationError: ``after`` is not what a page gave.
        StrandlineError: as ``Database.fetch`` does.
    """
    check_known(database, namespace=namespace, user_id=user_id)
    if user_id is not None and namespace is None:
        namespace = DEFAULT_NAMESPACE
    after_namespace, after_session = ("", "") if after is None else _read_cursor(after)
    statement = "directory_page" if namespace is None else "directory_page_of_namespace"
    listed = database.fetch(
        statement if user_id is None else "directory_page_of_user",
        {
            "namespace": namespace,
            "user_id": user_id,
            "after_namespace": after_namespace,
            "after_session": after_session,
            "limit": limit + 1,
        },
    )
    page = [identify_session(*row) for row in listed[:limit]]
    last = page[-1] if len(listed) > limit and page else None
    return SessionPage(
        sessions=tuple(_states(database, page)),
        after=None if last is None else _cursor(last.namespace, last.session_id),
    )


def show_session(
    database: Database,
    session_id: str,
    *,
    namespace: str | None = None,
    user_id: str | None = None,
    flushes: int = 10,
) -> SessionPicture:
    """One session in one snapshot, with its newest ``flushes`` flush events.

    Raises:
        NotFoundError: there is no such session.
        StrandlineError: as ``Database.fetch`` does.
    """
    with database.transaction() as tx:
        tx.fetch("verify_snapshot", {})
        identity = find_session(tx, session_id, namespace=namespace, user_id=user_id)
        state = session_state(tx, identity)
        keys = {"shard_key": identity.shard_key, "session_key": identity.session_key}
        events = tx.fetch("session_flushes", keys | {"limit": max(1, flushes)})
        coverage = [_coverage(state, row) for row in tx.fetch("session_coverage", keys)]
        changes = policy_changes(tx, identity.shard_key, identity.session_key)
        holes = [_hole(row) for row in tx.fetch("session_dead_letters", keys)]
    return SessionPicture(
        session=state,
        coverage=tuple(coverage),
        flushes=events[0][-1] if events else 0,
        latest_flushes=tuple(_part(SessionFlush, row[:-1]) for row in events[:flushes]),
        dead_letters=tuple(holes),
        policy_changes=changes,
    )


def session_state(fetcher: Fetcher, identity: SessionIdentity) -> SessionState:
    """A session that was found in the directory.

    Raises:
        NotFoundError: its id was claimed, and nothing was put to it.
    """
    for state in _states(fetcher, [identity]):
        return state
    raise NotFoundError(
        f"Nothing has been put yet to session {quote(identity.session_id)}"
        f" in namespace {quote(identity.namespace)}."
    )


def _states(fetcher: Fetcher, sessions: Sequence[SessionIdentity]) -> list[SessionState]:
    """In the order given; an id that was claimed and not put to yet has no state."""
    keys = {
        "shard_keys": [session.shard_key for session in sessions],
        "session_keys": [session.session_key for session in sessions],
    }
    rows = {row[0]: row[1:] for row in fetcher.fetch("session_rows", keys)} if sessions else {}
    return [_state(rows[session.session_key]) for session in sessions if session.session_key in rows]


def _state(row: Row) -> SessionState:
    policy = _part(SessionPolicy, row[-len(SessionPolicy.model_fields) :])
    names = [name for name in SessionState.model_fields if name != "policy"]
    return SessionState(**dict(zip(names, row, strict=False)), policy=policy)


def _part(kind: type[P], row: Sequence[Any]) -> P:
    return kind(**dict(zip(kind.model_fields, row, strict=True)))


def _coverage(state: SessionState, row: Row) -> PipelineCoverage:
    pipeline, generation, due, dead, first_pending = row
    through = state.flushed_through if first_pending is None else first_pending - 1
    return PipelineCoverage(
        pipeline=pipeline,
        generation=generation,
        covered_through=None if generation is None else through,
        due=due,
        dead=dead,
    )


def _hole(row: Row) -> SessionHole:
    event_id, stage, generation, from_seq, through_seq, at, reason = row
    return SessionHole(
        id=f"{event_id}/{stage}",
        generation=generation,
        from_seq=from_seq,
        through_seq=through_seq,
        at=at,
        reason=reason,
    )


def _cursor(namespace: str, session_id: str) -> str:
    """Names may hold anything, so the place in the list is written in letters that need no quotes."""
    return urlsafe_b64encode(dumps([namespace, session_id]).encode()).decode().rstrip("=")


def _read_cursor(after: str) -> tuple[str, str]:
    try:
        namespace, session_id = loads(urlsafe_b64decode(after + "=" * (-len(after) % 4)))
        identify_session(namespace, session_id, None)
    except (ValueError, TypeError):
        raise ConfigurationError(
            "--after is not a value that a page of this list printed; leave it out."
        ) from None
    return namespace, session_id
