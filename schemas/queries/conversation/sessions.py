"""The statements of ``schemas/sql/sessions.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import KnownRow, NamespaceRow, SessionEntryRow, UserIdRow


class ClaimSessionRow(NamedTuple):
    erasure: int | None
    owner_key: UUID
    is_encrypted: bool
    first_data_key: int
    full_of: str | None


class ClaimSession(Query[ClaimSessionRow], name="claim_session", repeatable=True):
    """Write the directory entry of a new session, or return its owner if it has one (claim_session_v1). The
    directory's shard_key is the directory key; the key that the owner's rows lie under, the parameter
    shard_key, is its owner_key. kind: a chat, or what is kept for facts alone, which no list of sessions
    shows.  erasure: the one that keeps the owner or the session away.  first_data_key: what is sealed with
    an earlier key of the owner is of a life that was erased. full_of: the bound of the namespace that
    keeps a new session away.
    """

    directory_key: UUID
    namespace: str
    session_id: str
    user_id: str | None
    shard_key: UUID
    session_key: UUID
    kind: str


class FindOwnerRow(NamedTuple):
    user_id: str | None
    owner_key: UUID


class FindOwner(Query[FindOwnerRow], name="find_owner", repeatable=True):
    """The owner of a session; no row if it was never put to."""

    directory_key: UUID


class NamespaceIsKnown(Query[KnownRow], name="namespace_is_known", repeatable=True):
    """Whether anything was ever put to a namespace, or a fact given to an owner in it."""

    namespace: str


class KnownNamespaces(Query[NamespaceRow], name="known_namespaces", repeatable=True):
    """The namespaces that hold something, or of which an operator has set something; the first so many of
    each kind.
    """

    limit: int


class NamespacesOfUser(Query[NamespaceRow], name="namespaces_of_user", repeatable=True):
    """In which of some namespaces a user of this name has sessions."""

    namespaces: list[str]
    user_id: str


class UserIsKnown(Query[KnownRow], name="user_is_known", repeatable=True):
    """Whether a user has a session, or was given a fact."""

    namespace: str
    user_id: str
    owner_key: UUID


class DirectoryPage(Query[SessionEntryRow], name="directory_page", repeatable=True):
    """The next sessions of all namespaces, by their names."""

    after_namespace: str
    after_session: str
    limit: int


class DirectoryPageOfNamespace(Query[SessionEntryRow], name="directory_page_of_namespace", repeatable=True):
    """The next sessions of a namespace."""

    namespace: str
    after_session: str
    limit: int


class DirectoryPageOfUser(Query[SessionEntryRow], name="directory_page_of_user", repeatable=True):
    """The next sessions of a user."""

    namespace: str
    user_id: str
    after_session: str
    limit: int


class DirectoryPageWithoutUser(Query[SessionEntryRow], name="directory_page_without_user", repeatable=True):
    """The next sessions of a namespace that have no user.  (By the user as well, so that the index gives the
    order.)
    """

    namespace: str
    after_session: str
    limit: int


class SessionRowsRow(NamedTuple):
    session_key: UUID
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
    token_limit: int
    flush_at_tokens: int
    token_flush_size: int
    idle_seconds: int | None
    tokenizer: str
    pipelines: list[str]
    max_facts: int | None
    shared_scope: str | None
    max_window_messages: int
    max_window_bytes: int
    message_flush_size: int | None
    deliver: str
    time_zone: str | None


class SessionRows(Query[SessionRowsRow], name="session_rows", repeatable=True):
    """Marks, sizes and policy of sessions, by their keys."""

    shard_keys: list[UUID]
    session_keys: list[UUID]


class UsersPage(Query[UserIdRow], name="users_page"):
    """The next users of a namespace who have a session, or whom people gave facts."""

    namespace: str
    after: str
    limit: int


class OwnerFiguresRow(NamedTuple):
    facts: int
    oldest_fact_at: datetime | None
    newest_fact_at: datetime | None
    sessions: int
    messages: int
    tokens: int
    first_session_at: datetime | None
    last_put_at: datetime | None


class OwnerFigures(Query[OwnerFiguresRow], name="owner_figures", repeatable=True):
    """How much there is of an owner: live facts, sessions, and the messages and tokens of their logs as they
    are; what facts were made from without a chat is no session. Tokens are added up by events, and only of
    what was not delivered by messages.
    """

    shard_key: UUID


class SessionCoverageRow(NamedTuple):
    pipeline: str
    generation_id: int | None
    due: int
    dead: int
    first_pending: int | None


class SessionCoverage(Query[SessionCoverageRow], name="session_coverage", repeatable=True):
    """The progress of each pipeline of a session: due and dead events in the derivation that serves its owner
    (null if no worker has registered it), and where the first of them begins.
    """

    shard_key: UUID
    session_key: UUID


class SessionFlushesRow(NamedTuple):
    event_id: UUID
    cause: str
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    created_at: datetime
    flushes: int


class SessionFlushes(Query[SessionFlushesRow], name="session_flushes", repeatable=True):
    """The newest flush events of a session's current incarnation, and how many there are."""

    shard_key: UUID
    session_key: UUID
    limit: int


class SessionDeadLettersRow(NamedTuple):
    event_id: UUID
    stage: str
    generation_id: int
    from_seq: int
    through_seq: int
    created_at: datetime
    reason: str


class SessionDeadLetters(Query[SessionDeadLettersRow], name="session_dead_letters", repeatable=True):
    """The first thousand holes of a session, oldest first."""

    shard_key: UUID
    session_key: UUID


class SessionPolicyRow(NamedTuple):
    token_limit: int
    flush_at_tokens: int
    token_flush_size: int
    idle_seconds: int | None
    tokenizer: str
    pipelines: list[str]
    max_facts: int | None
    shared_scope: str | None
    max_window_messages: int
    max_window_bytes: int
    message_flush_size: int | None
    deliver: str
    time_zone: str | None


class SessionPolicy(Query[SessionPolicyRow], name="session_policy", repeatable=True):
    """The policy of a session, to make a change from."""

    shard_key: UUID
    session_key: UUID


class SetPolicyRow(NamedTuple):
    status: str
    detail: str | None
    over: bool


class SetPolicy(Query[SetPolicyRow], name="set_policy", repeatable=True):
    """Change the policy, if it is still the one that the change was made from, and record the change."""

    shard_key: UUID
    session_key: UUID
    before: str
    after: str
    actor: str | None
    act: str | None


class PolicyChangesRow(NamedTuple):
    number: int
    before: str
    after: str
    flushed_through: int
    actor: str | None
    created_at: datetime


class PolicyChanges(Query[PolicyChangesRow], name="policy_changes", repeatable=True):
    """How a session's policy was changed, oldest first: the newest changes."""

    shard_key: UUID
    session_key: UUID


class ForkSessionRow(NamedTuple):
    status: str
    through_seq: int
    messages: int


class ForkSession(Query[ForkSessionRow], name="fork_session"):
    """Begin another session of the same owner with the messages of one, up to a number (fork_v1)."""

    shard_key: UUID
    session_key: UUID
    new_key: UUID
    session_id: str
    through_seq: int | None
    act: str | None


class SessionCorrectionsRow(NamedTuple):
    number: int
    kind: str
    from_seq: int
    through_seq: int
    messages: int
    actor: str | None
    created_at: datetime


class SessionCorrections(Query[SessionCorrectionsRow], name="session_corrections", repeatable=True):
    """The newest corrections of a session that concern a range of its messages, oldest first; all: from 0,
    through NULL.
    """

    shard_key: UUID
    session_key: UUID
    from_seq: int
    through_seq: int | None


class FindSessions(Query[SessionEntryRow], name="find_sessions", repeatable=True):
    """Sessions of a namespace by name or user, or those without a user, for commands."""

    namespace: str
    session_id: str | None
    user_id: str | None
    without_user: bool
    limit: int


class ShowEventsRow(NamedTuple):
    event_id: UUID
    cause: str
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    receipts: str


class ShowEvents(Query[ShowEventsRow], name="show_events", repeatable=True):
    """A session's flush events in order, each with its outcome in the pipelines so far."""

    shard_key: UUID
    session_key: UUID
