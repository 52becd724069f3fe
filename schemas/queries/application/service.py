"""The statements of ``schemas/sql/service.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.sealing.marks import Mark, Marks


class FindServiceKeysRow(NamedTuple):
    key_id: str
    secret_digest: bytes
    namespace: str | None
    user_id: str | None
    scopes: list[str]
    shared_scopes: list[str]
    label: str
    rotated_from: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    seconds_left: float | None


class FindServiceKeys(Query[FindServiceKeysRow]):
    """Keys by their ids, whatever their state.  The clock is Postgres's, so that all processes agree when one
    ends.
    """

    __slots__ = ()
    name = "find_service_keys"
    repeatable = True
    row = FindServiceKeysRow

    def __init__(self, *, key_ids: list[str]) -> None:
        self.values = (key_ids,)


class LockServiceKeyRow(NamedTuple):
    key_id: str
    namespace: str | None
    user_id: str | None
    scopes: list[str]
    shared_scopes: list[str]
    label: str
    rotated_from: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_over: bool


class LockServiceKey(Query[LockServiceKeyRow]):
    """The same, locked, to rotate it."""

    __slots__ = ()
    name = "lock_service_key"
    row = LockServiceKeyRow

    def __init__(self, *, key_id: str) -> None:
        self.values = (key_id,)


class AddServiceKeyRow(NamedTuple):
    key_id: str
    namespace: str | None
    user_id: str | None
    scopes: list[str]
    shared_scopes: list[str]
    label: str
    rotated_from: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_over: bool


class AddServiceKey(Query[AddServiceKeyRow]):
    """Store a new key; no row: its request was made before, and made one."""

    __slots__ = ()
    name = "add_service_key"
    row = AddServiceKeyRow

    def __init__(
        self,
        *,
        key_id: str,
        secret_digest: bytes,
        namespace: str | None,
        user_id: str | None,
        scopes: list[str],
        shared_scopes: list[str],
        label: str,
        rotated_from: str | None,
        request_key: UUID | None,
        expires_in_seconds: float | None,
    ) -> None:
        self.values = (
            key_id,
            secret_digest,
            namespace,
            user_id,
            scopes,
            shared_scopes,
            label,
            rotated_from,
            request_key,
            expires_in_seconds,
        )


class FindRequestedServiceKeyRow(NamedTuple):
    key_id: str


class FindRequestedServiceKey(Query[FindRequestedServiceKeyRow]):
    """The key that a request made."""

    __slots__ = ()
    name = "find_requested_service_key"
    repeatable = True
    row = FindRequestedServiceKeyRow

    def __init__(self, *, request_key: UUID) -> None:
        self.values = (request_key,)


class ListServiceKeysRow(NamedTuple):
    key_id: str
    namespace: str | None
    user_id: str | None
    scopes: list[str]
    shared_scopes: list[str]
    label: str
    rotated_from: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_over: bool


class ListServiceKeys(Query[ListServiceKeysRow]):
    """The next keys by their ids: of a namespace, or of all."""

    __slots__ = ()
    name = "list_service_keys"
    repeatable = True
    row = ListServiceKeysRow

    def __init__(self, *, namespace: str | None, after: str, limit: int) -> None:
        self.values = (namespace, after, limit)


class EndServiceKeyRow(NamedTuple):
    key_id: str
    expires_at: datetime


class EndServiceKey(Query[EndServiceKeyRow]):
    """Let a key end in so many seconds, unless it ends before."""

    __slots__ = ()
    name = "end_service_key"
    row = EndServiceKeyRow

    def __init__(self, *, in_seconds: float, key_id: str) -> None:
        self.values = (in_seconds, key_id)


class RevokeServiceKeyRow(NamedTuple):
    key_id: str
    namespace: str | None
    user_id: str | None
    scopes: list[str]
    shared_scopes: list[str]
    label: str
    rotated_from: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime
    is_over: bool


class RevokeServiceKey(Query[RevokeServiceKeyRow]):
    """End a key now; one that is revoked keeps its time."""

    __slots__ = ()
    name = "revoke_service_key"
    repeatable = True
    row = RevokeServiceKeyRow

    def __init__(self, *, key_id: str, namespace: str | None) -> None:
        self.values = (key_id, namespace)


class HasServiceKeyRow(NamedTuple):
    has_key: bool


class HasServiceKey(Query[HasServiceKeyRow]):
    """Whether any key opens the service now."""

    __slots__ = ()
    name = "has_service_key"
    repeatable = True
    row = HasServiceKeyRow


class BeginKeptResponseRow(NamedTuple):
    request_key: UUID


class BeginKeptResponse(Query[BeginKeptResponseRow]):
    """Take a request's place, so that another with the same key waits for this transaction; no row: it was
    taken.
    """

    __slots__ = ()
    name = "begin_kept_response"
    row = BeginKeptResponseRow

    def __init__(
        self, *, shard_key: UUID, request_key: UUID, session_key: UUID | None, request_digest: bytes
    ) -> None:
        self.values = (shard_key, request_key, session_key, request_digest)


class KeepResponse(Query[Never]):
    """Keep the response of a request in the transaction of its effect."""

    __slots__ = ()
    name = "keep_response"
    marks = Marks(owner=2, seals=(Mark(1, "json", "response"),))

    def __init__(self, *, status: int, body: str | None, shard_key: UUID, request_key: UUID) -> None:
        self.values = (status, body, shard_key, request_key)


class FindKeptResponseRow(NamedTuple):
    request_digest: bytes
    status: int
    body: str | None


class FindKeptResponse(Query[FindKeptResponseRow]):
    """The response that was given to a request."""

    __slots__ = ()
    name = "find_kept_response"
    repeatable = True
    row = FindKeptResponseRow
    marks = Marks(owner=0, opens=(Mark(2, "json", "response"),))

    def __init__(self, *, shard_key: UUID, request_key: UUID) -> None:
        self.values = (shard_key, request_key)


class ForgetKeptResponsesRow(NamedTuple):
    shard_key: UUID


class ForgetKeptResponses(Query[ForgetKeptResponsesRow]):
    """Delete a page of responses that were kept for a day."""

    __slots__ = ()
    name = "forget_kept_responses"
    row = ForgetKeptResponsesRow

    def __init__(self, *, limit: int) -> None:
        self.values = (limit,)


class RecentFlushesRow(NamedTuple):
    shard_key: UUID
    session_key: UUID
    namespace: str
    session_id: str
    user_id: str | None
    event_id: UUID
    from_seq: int
    through_seq: int
    cause: str
    created_at: datetime


class RecentFlushes(Query[RecentFlushesRow]):
    """Flush events of namespaces behind a time and an id, oldest first, for those who listen; only of one
    session, if it is named.  Many events may bear the same time, so a page ends at an id.
    """

    __slots__ = ()
    name = "recent_flushes"
    repeatable = True
    row = RecentFlushesRow

    def __init__(
        self, *, since: datetime, after: UUID, namespaces: list[str], session_key: UUID | None, limit: int
    ) -> None:
        self.values = (since, after, namespaces, session_key, limit)


class FlushOutcomesRow(NamedTuple):
    session_key: UUID
    from_seq: int
    pipeline: str
    outcome: str


class FlushOutcomes(Query[FlushOutcomesRow]):
    """How each pipeline of their sessions stands with flush events: due, dead, or covered."""

    __slots__ = ()
    name = "flush_outcomes"
    repeatable = True
    row = FlushOutcomesRow

    def __init__(self, *, shard_keys: list[UUID], session_keys: list[UUID], from_seqs: list[int]) -> None:
        self.values = (shard_keys, session_keys, from_seqs)


class NowRow(NamedTuple):
    at: datetime


class Now(Query[NowRow]):
    """The clock of the database."""

    __slots__ = ()
    name = "now"
    repeatable = True
    row = NowRow


class GenerationStatesRow(NamedTuple):
    generation_id: int
    pipeline: str
    state: str


class GenerationStates(Query[GenerationStatesRow]):
    """The state of each generation that is not retired."""

    __slots__ = ()
    name = "generation_states"
    repeatable = True
    row = GenerationStatesRow
