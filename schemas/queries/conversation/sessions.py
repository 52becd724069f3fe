"""The statements of ``schemas/sql/sessions.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class ClaimSessionRow(NamedTuple):
    erasure: int | None
    owner_key: UUID
    is_encrypted: bool
    first_data_key: int
    full_of: str | None


class ClaimSession(Query[ClaimSessionRow]):
    """Write the directory entry of a new session, or return its owner if it has one (claim_session_v1). The
    directory's shard_key is the directory key; the key that the owner's rows lie under, the parameter
    shard_key, is its owner_key. kind: a chat, or what is kept for facts alone, which no list of sessions
    shows.  erasure: the one that keeps the owner or the session away.  first_data_key: what is sealed with
    an earlier key of the owner is of a life that was erased. full_of: the bound of the namespace that
    keeps a new session away.
    """

    __slots__ = ()
    name = "claim_session"
    repeatable = True
    row = ClaimSessionRow

    def __init__(
        self,
        *,
        directory_key: UUID,
        namespace: str,
        session_id: str,
        user_id: str | None,
        shard_key: UUID,
        session_key: UUID,
        kind: str,
    ) -> None:
        self.values = (directory_key, namespace, session_id, user_id, shard_key, session_key, kind)


class FindOwnerRow(NamedTuple):
    user_id: str | None
    owner_key: UUID


class FindOwner(Query[FindOwnerRow]):
    """The owner of a session; no row if it was never put to."""

    __slots__ = ()
    name = "find_owner"
    repeatable = True
    row = FindOwnerRow

    def __init__(self, *, directory_key: UUID) -> None:
        self.values = (directory_key,)


class NamespaceIsKnownRow(NamedTuple):
    known: bool


class NamespaceIsKnown(Query[NamespaceIsKnownRow]):
    """Whether anything was ever put to a namespace, or a fact given to an owner in it."""

    __slots__ = ()
    name = "namespace_is_known"
    row = NamespaceIsKnownRow

    def __init__(self, *, namespace: str) -> None:
        self.values = (namespace,)


class KnownNamespacesRow(NamedTuple):
    namespace: str


class KnownNamespaces(Query[KnownNamespacesRow]):
    """The namespaces that hold something, or of which an operator has set something; the first so many of
    each kind.
    """

    __slots__ = ()
    name = "known_namespaces"
    repeatable = True
    row = KnownNamespacesRow

    def __init__(self, *, limit: int) -> None:
        self.values = (limit,)


class NamespacesOfUserRow(NamedTuple):
    namespace: str


class NamespacesOfUser(Query[NamespacesOfUserRow]):
    """In which of some namespaces a user of this name has sessions."""

    __slots__ = ()
    name = "namespaces_of_user"
    repeatable = True
    row = NamespacesOfUserRow

    def __init__(self, *, namespaces: list[str], user_id: str) -> None:
        self.values = (namespaces, user_id)


class UserIsKnownRow(NamedTuple):
    known: bool


class UserIsKnown(Query[UserIsKnownRow]):
    """Whether a user has a session, or was given a fact."""

    __slots__ = ()
    name = "user_is_known"
    row = UserIsKnownRow

    def __init__(self, *, namespace: str, user_id: str, owner_key: UUID) -> None:
        self.values = (namespace, user_id, owner_key)


class DirectoryPageRow(NamedTuple):
    namespace: str
    session_id: str
    user_id: str | None


class DirectoryPage(Query[DirectoryPageRow]):
    """The next sessions of all namespaces, by their names."""

    __slots__ = ()
    name = "directory_page"
    row = DirectoryPageRow

    def __init__(self, *, after_namespace: str, after_session: str, limit: int) -> None:
        self.values = (after_namespace, after_session, limit)


class DirectoryPageOfNamespaceRow(NamedTuple):
    namespace: str
    session_id: str
    user_id: str | None


class DirectoryPageOfNamespace(Query[DirectoryPageOfNamespaceRow]):
    """The next sessions of a namespace."""

    __slots__ = ()
    name = "directory_page_of_namespace"
    row = DirectoryPageOfNamespaceRow

    def __init__(self, *, namespace: str, after_session: str, limit: int) -> None:
        self.values = (namespace, after_session, limit)


class DirectoryPageOfUserRow(NamedTuple):
    namespace: str
    session_id: str
    user_id: str | None


class DirectoryPageOfUser(Query[DirectoryPageOfUserRow]):
    """The next sessions of a user."""

    __slots__ = ()
    name = "directory_page_of_user"
    row = DirectoryPageOfUserRow

    def __init__(self, *, namespace: str, user_id: str, after_session: str, limit: int) -> None:
        self.values = (namespace, user_id, after_session, limit)


class DirectoryPageWithoutUserRow(NamedTuple):
    namespace: str
    session_id: str
    user_id: str | None


class DirectoryPageWithoutUser(Query[DirectoryPageWithoutUserRow]):
    """The next sessions of a namespace that have no user.  (By the user as well, so that the index gives the
    order.)
    """

    __slots__ = ()
    name = "directory_page_without_user"
    row = DirectoryPageWithoutUserRow

    def __init__(self, *, namespace: str, after_session: str, limit: int) -> None:
        self.values = (namespace, after_session, limit)


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


class SessionRows(Query[SessionRowsRow]):
    """Marks, sizes and policy of sessions, by their keys."""

    __slots__ = ()
    name = "session_rows"
    row = SessionRowsRow

    def __init__(self, *, shard_keys: list[UUID], session_keys: list[UUID]) -> None:
        self.values = (shard_keys, session_keys)


class UsersPageRow(NamedTuple):
    user_id: str


class UsersPage(Query[UsersPageRow]):
    """The next users of a namespace who have a session, or whom people gave facts."""

    __slots__ = ()
    name = "users_page"
    row = UsersPageRow

    def __init__(self, *, namespace: str, after: str, limit: int) -> None:
        self.values = (namespace, after, limit)


class OwnerFiguresRow(NamedTuple):
    facts: int
    oldest_fact_at: datetime | None
    newest_fact_at: datetime | None
    sessions: int
    messages: int
    tokens: int
    first_session_at: datetime | None
    last_put_at: datetime | None


class OwnerFigures(Query[OwnerFiguresRow]):
    """How much there is of an owner: live facts, sessions, and the messages and tokens of their logs as they
    are; what facts were made from without a chat is no session. Tokens are added up by events, and only of
    what was not delivered by messages.
    """

    __slots__ = ()
    name = "owner_figures"
    repeatable = True
    row = OwnerFiguresRow

    def __init__(self, *, shard_key: UUID) -> None:
        self.values = (shard_key,)


class SessionCoverageRow(NamedTuple):
    pipeline: str
    generation_id: int | None
    due: int
    dead: int
    first_pending: int | None


class SessionCoverage(Query[SessionCoverageRow]):
    """The progress of each pipeline of a session: due and dead events in the derivation that serves its owner
    (null if no worker has registered it), and where the first of them begins.
    """

    __slots__ = ()
    name = "session_coverage"
    row = SessionCoverageRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class SessionFlushesRow(NamedTuple):
    event_id: UUID
    cause: str
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    created_at: datetime
    flushes: int


class SessionFlushes(Query[SessionFlushesRow]):
    """The newest flush events of a session's current incarnation, and how many there are."""

    __slots__ = ()
    name = "session_flushes"
    row = SessionFlushesRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, limit: int) -> None:
        self.values = (shard_key, session_key, limit)


class SessionDeadLettersRow(NamedTuple):
    event_id: UUID
    stage: str
    generation_id: int
    from_seq: int
    through_seq: int
    created_at: datetime
    reason: str


class SessionDeadLetters(Query[SessionDeadLettersRow]):
    """The first thousand holes of a session, oldest first."""

    __slots__ = ()
    name = "session_dead_letters"
    row = SessionDeadLettersRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


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


class SessionPolicy(Query[SessionPolicyRow]):
    """The policy of a session, to make a change from."""

    __slots__ = ()
    name = "session_policy"
    repeatable = True
    row = SessionPolicyRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class SetPolicyRow(NamedTuple):
    status: str
    detail: str | None
    over: bool


class SetPolicy(Query[SetPolicyRow]):
    """Change the policy, if it is still the one that the change was made from, and record the change."""

    __slots__ = ()
    name = "set_policy"
    repeatable = True
    row = SetPolicyRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        before: str,
        after: str,
        actor: str | None,
        act: str | None,
    ) -> None:
        self.values = (shard_key, session_key, before, after, actor, act)


class PolicyChangesRow(NamedTuple):
    number: int
    before: str
    after: str
    flushed_through: int
    actor: str | None
    created_at: datetime


class PolicyChanges(Query[PolicyChangesRow]):
    """How a session's policy was changed, oldest first: the newest changes."""

    __slots__ = ()
    name = "policy_changes"
    row = PolicyChangesRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class ForkSessionRow(NamedTuple):
    status: str
    through_seq: int
    messages: int


class ForkSession(Query[ForkSessionRow]):
    """Begin another session of the same owner with the messages of one, up to a number (fork_v1)."""

    __slots__ = ()
    name = "fork_session"
    row = ForkSessionRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        session_key: UUID,
        new_key: UUID,
        session_id: str,
        through_seq: int | None,
        act: str | None,
    ) -> None:
        self.values = (shard_key, session_key, new_key, session_id, through_seq, act)


class SessionCorrectionsRow(NamedTuple):
    number: int
    kind: str
    from_seq: int
    through_seq: int
    messages: int
    actor: str | None
    created_at: datetime


class SessionCorrections(Query[SessionCorrectionsRow]):
    """The newest corrections of a session that concern a range of its messages, oldest first; all: from 0,
    through NULL.
    """

    __slots__ = ()
    name = "session_corrections"
    row = SessionCorrectionsRow

    def __init__(self, *, shard_key: UUID, session_key: UUID, from_seq: int, through_seq: int | None) -> None:
        self.values = (shard_key, session_key, from_seq, through_seq)


class FindSessionsRow(NamedTuple):
    namespace: str
    session_id: str
    user_id: str | None


class FindSessions(Query[FindSessionsRow]):
    """Sessions of a namespace by name or user, or those without a user, for commands."""

    __slots__ = ()
    name = "find_sessions"
    row = FindSessionsRow

    def __init__(
        self, *, namespace: str, session_id: str | None, user_id: str | None, without_user: bool, limit: int
    ) -> None:
        self.values = (namespace, session_id, user_id, without_user, limit)


class ShowSessionRow(NamedTuple):
    messages: int
    tokens: int
    flush_at_tokens: int
    token_limit: int
    window_from: int
    flushed_through: int
    pinned_through: int


class ShowSession(Query[ShowSessionRow]):
    """The state of a session: its marks and its short-term tokens."""

    __slots__ = ()
    name = "show_session"
    row = ShowSessionRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class ShowEventsRow(NamedTuple):
    event_id: UUID
    cause: str
    from_seq: int
    through_seq: int
    message_count: int
    tokens: int
    receipts: str


class ShowEvents(Query[ShowEventsRow]):
    """A session's flush events in order, each with what the pipelines have done with it so far."""

    __slots__ = ()
    name = "show_events"
    row = ShowEventsRow

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)


class ShowFactsRow(NamedTuple):
    facts: int
    text: str


class ShowFacts(Query[ShowFactsRow]):
    """How many live facts an owner has, and the latest of them."""

    __slots__ = ()
    name = "show_facts"
    row = ShowFactsRow
    marks = Marks(owner=0, opens=(Mark(1, "text", "fact"),))

    def __init__(self, *, shard_key: UUID, limit: int) -> None:
        self.values = (shard_key, limit)


class ShowStatesRow(NamedTuple):
    pipeline: str
    state: str
    through_seq: int


class ShowStates(Query[ShowStatesRow]):
    """The newest state of each folding pipeline of a session, or of its owner."""

    __slots__ = ()
    name = "show_states"
    row = ShowStatesRow
    marks = Marks(owner=0, opens=(Mark(1, "json", "state"),))

    def __init__(self, *, shard_key: UUID, session_key: UUID) -> None:
        self.values = (shard_key, session_key)
