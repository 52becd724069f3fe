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
    """The same, locked: to rotate it, or since it makes another."""

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
    made_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_over: bool


class AddServiceKey(Query[AddServiceKeyRow]):
    """Store a new key, which ends with the key that made it, or before; no row: its request was made before,
    and made one.
    """

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
        made_by: str | None,
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
            made_by,
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
    made_by: str | None
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
    made_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime
    is_over: bool


class RevokeServiceKey(Query[RevokeServiceKeyRow]):
    """End a key now, and perhaps all that it made, that these made, and that any of them was rotated to; one
    that is revoked keeps its time.
    """

    __slots__ = ()
    name = "revoke_service_key"
    repeatable = True
    row = RevokeServiceKeyRow

    def __init__(self, *, key_id: str, namespace: str | None, with_made: bool) -> None:
        self.values = (key_id, namespace, with_made)


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


class SettledRow(NamedTuple):
    at: datetime
    settled: datetime


class Settled(Query[SettledRow]):
    """The clock, and the time up to which whatever was written is there to be read: a row bears the time of
    its write, and is seen after the commit of its transaction.  A transaction that writes and is still
    open holds it back, but for no longer than latest_seconds; late_seconds is for those that this role may
    not see.
    """

    __slots__ = ()
    name = "settled"
    repeatable = True
    row = SettledRow

    def __init__(self, *, latest_seconds: float, late_seconds: float) -> None:
        self.values = (latest_seconds, late_seconds)


class HappeningsRow(NamedTuple):
    at: datetime
    event_id: UUID
    generation_id: int
    kind: str
    namespace: str | None
    session_key: UUID | None
    session_id: str | None
    user_id: str | None
    from_seq: int | None
    through_seq: int | None
    cause: str | None
    pipeline: str | None
    state: str | None


class Happenings(Query[HappeningsRow]):
    """What happened behind a time, an event and a derivation, up to another time, oldest first, for those who
    listen to namespaces: flushes, how pipelines ended with them in the derivation that serves, and changes
    of derivations, which concern all.  Only of one session, if it is named.  Many rows may bear the same
    time, so a page ends at all three. A receipt of an earlier stage is no end, nor is one while the event
    is due again.  The rows of a time are looked up one by one (LIMIT 1): what is read then follows from
    what happened, and not from how much there is.
    """

    __slots__ = ()
    name = "happenings"
    repeatable = True
    row = HappeningsRow

    def __init__(
        self,
        *,
        namespaces: list[str],
        since: datetime,
        after_event: UUID,
        until: datetime,
        session_key: UUID | None,
        limit: int,
        after_generation: int,
    ) -> None:
        self.values = (namespaces, since, after_event, until, session_key, limit, after_generation)
