"""Sessions as operators see them: a page of them, and one with its marks, policy, coverage and flushes."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from datetime import datetime
from json import dumps, loads
from typing import Unpack

from strandline.pipelines.audit.appending import append_inspection
from strandline.pipelines.inspect.changes import corrections_of, policy_changes
from strandline.pipelines.inspect.directory import OfUser, check_known, find_session
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, NotFoundError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.postgres.paging import query_with
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.conversation.sessions import (
    DirectoryPage,
    DirectoryPageOfNamespace,
    DirectoryPageOfUser,
    DirectoryPageWithoutUser,
    SessionCoverage,
    SessionCoverageRow,
    SessionDeadLetters,
    SessionDeadLettersRow,
    SessionFlushes,
    SessionRows,
)
from strandline.schemas.queries.inspection.verify import VerifySnapshot
from strandline.schemas.queries.rows import SessionEntryRow
from strandline.schemas.values.identity import (
    ALL_NAMESPACES,
    DEFAULT_NAMESPACE,
    SessionIdentity,
    identify_session,
)
from strandline.schemas.wire.explanations import CorrectionTrace, PolicyChangeTrace
from strandline.schemas.wire.policies import PolicyOut
from strandline.schemas.wire.report import Report
from strandline.schemas.wire.sessions import CoverageOut, FlushOut, HoleOut


class SessionPolicy(PolicyOut, Report):
    """The stored policy of a session; its tokenizer counts the tokens.

    ``flush_at_tokens`` is the mark; ``idle_seconds`` null: never flushed because it is idle; ``max_facts``
    null: no influence on when facts are condensed; ``message_flush_size`` null: a quarter of
    ``max_window_messages``.
    """


class SessionState(Report):
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


class SessionPage(Report):
    """``strandline sessions list``; ``after`` is what ``--after`` takes for the next page."""

    sessions: tuple[SessionState, ...]
    after: str | None


class PipelineCoverage(CoverageOut, Report):
    """How far a pipeline is with a session's flushes; ``generation`` null: no worker has registered it.

    Everything flushed up to ``covered_through`` is in its memory; ``due`` and ``dead`` count the rest.
    """


class SessionFlush(FlushOut, Report):
    """One flush event of a session."""


class SessionHole(HoleOut, Report):
    """A dead letter of a session; ``strandline dead-letters show`` takes its ``id``."""


class SessionPicture(Report):
    """``strandline sessions show``; ``latest_flushes`` are the newest of ``flushes``, newest first."""

    session: SessionState
    coverage: tuple[PipelineCoverage, ...]
    flushes: int
    latest_flushes: tuple[SessionFlush, ...]
    dead_letters: tuple[SessionHole, ...]
    policy_changes: tuple[PolicyChangeTrace, ...]
    corrections: tuple[CorrectionTrace, ...]


def list_sessions(
    database: Database,
    *,
    namespace: str | None = None,
    user_id: str | None = None,
    without_user: bool = False,
    limit: int = 50,
    after: str | None = None,
) -> SessionPage:
    """A page of the sessions by name: of all namespaces, of one, of a user, or without a user.

    Args:
        namespace: with a user, default ``default``.
        without_user: only those of the namespace that have no user.
        limit: at most so many.
        after: the ``after`` of the page before.

    Raises:
        NotFoundError: there is nothing in this namespace, or of this user.
        ConfigurationError: ``after`` is not a page's.
        StrandlineError: as ``Database.fetch`` does.
    """
    after_namespace, after_session = ("", "") if after is None else _read_cursor(after)
    check_known(database, namespace=namespace, user_id=user_id)
    if (user_id is not None or without_user) and namespace is None:
        namespace = DEFAULT_NAMESPACE
    append_inspection(database, namespace or ALL_NAMESPACES, "directory.read")
    statement: type[Query[SessionEntryRow]] = DirectoryPageOfUser
    if namespace is None:
        statement = DirectoryPage
    elif without_user:
        statement = DirectoryPageWithoutUser
    elif user_id is None:
        statement = DirectoryPageOfNamespace
    asked = {
        "namespace": namespace,
        "user_id": user_id,
        "after_namespace": after_namespace,
        "after_session": after_session,
        "limit": limit + 1,
    }
    listed = database.fetch(query_with(statement, asked))
    page = [identify_session(row.namespace, row.session_id, row.user_id) for row in listed[:limit]]
    last = page[-1] if len(listed) > limit and page else None
    return SessionPage(
        sessions=tuple(_states(database, page)),
        after=None if last is None else _cursor(last.namespace, last.session_id),
    )


def each_session(database: Database, **whose: Unpack[OfUser]) -> Iterator[SessionState]:
    """All sessions of a namespace, or of a user in it, page by page; raises as ``list_sessions``."""
    page = SessionPage(sessions=(), after="")
    while page.after is not None:
        page = list_sessions(database, limit=200, after=page.after or None, **whose)
        yield from page.sessions


def show_session(
    database: Database, session_id: str, *, flushes: int = 10, **whose: Unpack[OfUser]
) -> SessionPicture:
    """One session in one snapshot, with its newest ``flushes`` flush events.

    Raises:
        NotFoundError: there is no such session.
        StrandlineError: as ``Database.fetch`` does.
    """
    with database.transaction() as tx:
        tx.fetch(VerifySnapshot())
        identity = find_session(tx, session_id, **whose)
        state = session_state(tx, identity)
        events = tx.fetch(SessionFlushes(**identity.keys, limit=max(1, flushes)))
        coverage = [_coverage(state, row) for row in tx.fetch(SessionCoverage(**identity.keys))]
        changes = policy_changes(tx, identity.shard_key, identity.session_key)
        corrections = corrections_of(tx, identity.shard_key, identity.session_key)
        holes = [_hole(row) for row in tx.fetch(SessionDeadLetters(**identity.keys))]
    append_inspection(database, identity, "directory.read")
    return SessionPicture(
        session=state,
        coverage=tuple(coverage),
        flushes=events[0].flushes if events else 0,
        latest_flushes=tuple(
            SessionFlush.of(row, messages=row.message_count, at=row.created_at) for row in events[:flushes]
        ),
        dead_letters=tuple(holes),
        policy_changes=changes,
        corrections=corrections,
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
    if not sessions:
        return []
    statement = SessionRows(
        shard_keys=[session.shard_key for session in sessions],
        session_keys=[session.session_key for session in sessions],
    )
    rows = {row.session_key: row for row in fetcher.fetch(statement)}
    listed = [rows[session.session_key] for session in sessions if session.session_key in rows]
    return [
        SessionState.of(row, policy=SessionPolicy.of(row, pipelines=tuple(row.pipelines))) for row in listed
    ]


def _coverage(state: SessionState, row: SessionCoverageRow) -> PipelineCoverage:
    through = state.flushed_through if row.first_pending is None else row.first_pending - 1
    covered_through = None if row.generation_id is None else through
    return PipelineCoverage.of(row, generation=row.generation_id, covered_through=covered_through)


def _hole(row: SessionDeadLettersRow) -> SessionHole:
    id_ = f"{row.event_id}/{row.stage}"
    return SessionHole.of(row, id=id_, generation=row.generation_id, at=row.created_at)


def _cursor(namespace: str, session_id: str) -> str:
    """The place in the list, in letters that need no quotes, since names may hold anything."""
    return urlsafe_b64encode(dumps([namespace, session_id]).encode()).decode().rstrip("=")


def _read_cursor(after: str) -> tuple[str, str]:
    try:
        namespace, session_id = loads(urlsafe_b64decode(after + "=" * (-len(after) % 4)))
        identify_session(namespace, session_id, None)
        if _cursor(namespace, session_id) != after:
            raise ValueError("another spelling")
    except (ValueError, TypeError, RecursionError):
        raise ConfigurationError(
            "--after is not a value that a page of this list printed; leave it out.",
            for_clients="It is not a cursor that a page of this list gave; leave it out.",
        ) from None
    return namespace, session_id
