"""The statements of ``schemas/sql/service.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import HasKeyRow, KeyIdRow, RequestKeyRow, ServiceKeyRow, ShardKeyRow
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


class FindServiceKeys(Query[FindServiceKeysRow], name="find_service_keys", repeatable=True):
    """Keys by their ids, whatever their state.  The clock is Postgres's, so that all processes agree when one
    ends.
    """

    key_ids: list[str]


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


class LockServiceKey(Query[LockServiceKeyRow], name="lock_service_key"):
    """The same, locked: to rotate it, or since it makes another."""

    key_id: str


class AddServiceKey(Query[ServiceKeyRow], name="add_service_key"):
    """Store a new key, which ends with the key that made it, or before; no row: its request was made before,
    and made one.
    """

    key_id: str
    secret_digest: bytes
    namespace: str | None
    user_id: str | None
    scopes: list[str]
    shared_scopes: list[str]
    label: str
    rotated_from: str | None
    made_by: str | None
    request_key: UUID | None
    expires_in_seconds: float | None


class FindRequestedServiceKey(Query[KeyIdRow], name="find_requested_service_key", repeatable=True):
    """The key that a request made."""

    request_key: UUID


class ListServiceKeys(Query[ServiceKeyRow], name="list_service_keys", repeatable=True):
    """The next keys by their ids: of a namespace, or of all."""

    namespace: str | None
    after: str
    limit: int


class EndServiceKeyRow(NamedTuple):
    key_id: str
    expires_at: datetime


class EndServiceKey(Query[EndServiceKeyRow], name="end_service_key"):
    """Let a key end in so many seconds, unless it ends before."""

    in_seconds: float
    key_id: str


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


class RevokeServiceKey(Query[RevokeServiceKeyRow], name="revoke_service_key", repeatable=True):
    """End a key now, and perhaps the keys that it was rotated from, all that these and it made, that these
    made, and that any of them was rotated to; one that is revoked keeps its time.
    """

    key_id: str
    namespace: str | None
    with_made: bool


class HasServiceKey(Query[HasKeyRow], name="has_service_key", repeatable=True):
    """Whether any key opens the service now."""


class BeginKeptResponse(Query[RequestKeyRow], name="begin_kept_response"):
    """Take a request's place, so that another with the same key waits for this transaction; no row: it was
    taken.
    """

    shard_key: UUID
    request_key: UUID
    session_key: UUID | None
    request_digest: bytes


class KeepResponse(Query[Never], name="keep_response"):
    """Keep the response of a request in the transaction of its effect."""

    marks = Marks(owner=2, seals=(Mark(1, "json", "response"),))
    status: int
    body: str | None
    shard_key: UUID
    request_key: UUID


class FindKeptResponseRow(NamedTuple):
    request_digest: bytes
    status: int
    body: str | None


class FindKeptResponse(Query[FindKeptResponseRow], name="find_kept_response", repeatable=True):
    """The response that was given to a request."""

    marks = Marks(owner=0, opens=(Mark(2, "json", "response"),))
    shard_key: UUID
    request_key: UUID


class ForgetKeptResponses(Query[ShardKeyRow], name="forget_kept_responses"):
    """Delete a page of responses that were kept for a day."""

    limit: int


class SettledRow(NamedTuple):
    at: datetime
    settled: datetime


class Settled(Query[SettledRow], name="settled", repeatable=True):
    """The clock, and the time up to which whatever was written is there to be read: a row bears the time of
    its write, and is seen after the commit of its transaction.  A transaction that writes and is still
    open holds it back, but for no longer than latest_seconds; late_seconds is for those that this role may
    not see.
    """

    latest_seconds: float
    late_seconds: float


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


class Happenings(Query[HappeningsRow], name="happenings", repeatable=True):
    """What happened behind a time, an event and a derivation, up to another time, oldest first, for those who
    listen to namespaces: flushes, how pipelines ended with them in the derivation that serves, and changes
    of derivations, which concern all.  Only of one session, if it is named.  Many rows may bear the same
    time, so a page ends at all three. A receipt of an earlier stage is no end, nor is one while the event
    is due again.  The rows of a time are looked up one by one (LIMIT 1): what is read then follows from
    what happened, and not from how much there is.
    """

    namespaces: list[str]
    since: datetime
    after_event: UUID
    until: datetime
    session_key: UUID | None
    limit: int
    after_generation: int
