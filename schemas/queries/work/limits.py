"""The statements of ``schemas/sql/limits.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import MayWriteRow, NamespaceRow, NothingRow, ShardKeyRow


class SetLimits(Query[NamespaceRow], name="set_limits"):
    """Set limits of a namespace; a limit that is not given (NULL) stays as it was."""

    namespace: str
    max_lanes: int | None
    max_lanes_per_worker: int | None
    calls_per_day: int | None
    tokens_per_day: int | None
    usd_per_day: float | None
    agents_read_only: bool | None
    max_sessions: int | None
    max_bytes: int | None


class ClearLimits(Query[NamespaceRow], name="clear_limits"):
    """Remove the named limits of a namespace."""

    cleared: list[str]
    namespace: str


class ForgetCleared(Query[Never], name="forget_cleared"):
    """Delete the row of a namespace without any limit."""

    namespace: str


class CountAnew(Query[Never], name="count_anew"):
    """Have what a namespace has stored counted by the next put, if there is a bound on it; after a change of
    its limits.
    """

    namespace: str


class AgentsMayWrite(Query[MayWriteRow], name="agents_may_write", repeatable=True):
    """Whether agents may change memories of a namespace by their tools."""

    namespace: str


class RevokeSlices(Query[Never], name="revoke_slices"):
    """Make workers return the slices of a namespace's budget, which were cut from the earlier one."""

    namespace: str


class RevokedSlices(Query[NamespaceRow], name="revoked_slices", repeatable=True):
    """The namespaces whose slices this worker is to return."""

    namespaces: list[str]
    days: list[date]
    worker_id: UUID


class RingPutOff(Query[ShardKeyRow], name="ring_put_off"):
    """Ring now for a page of the work that waited for a namespace's budget; by owner, and locked in this
    order.
    """

    namespace: str
    from_shard: UUID
    limit: int


class ListLimitsRow(NamedTuple):
    namespace: str
    max_lanes: int | None
    max_lanes_per_worker: int | None
    calls_per_day: int | None
    tokens_per_day: int | None
    usd_per_day: float | None
    agents_read_only: bool
    max_sessions: int | None
    max_bytes: int | None
    sessions_stored: int | None
    bytes_stored: int | None
    calls_today: int
    tokens_today: int
    usd_today: float
    lanes_at_work: int
    due: int
    waits_until: datetime | None
    waits_for: str


class ListLimits(Query[ListLimitsRow], name="list_limits", repeatable=True):
    """The limits of namespaces, their use today, and their work under way and waiting."""

    dead_after_seconds: Decimal | float
    namespace: str | None


class TakeSliceRow(NamedTuple):
    day: date
    has_budget: bool
    is_granted: bool
    calls: int | None
    tokens: int | None
    usd: float | None
    seconds: float
    waits_for: str | None


class TakeSlice(Query[TakeSliceRow], name="take_slice"):
    """The next slice of a namespace's budget for this worker (take_slice_v1)."""

    namespace: str
    worker_id: UUID
    day: date
    calls_used: int
    tokens_used: int
    usd_used: float
    tokens_wanted: int
    slice_seconds: float


class ReturnSlice(Query[Never], name="return_slice"):
    """Record this worker's use of a day's budget; it no longer holds a slice of it."""

    namespace: str
    day: date
    worker_id: UUID
    calls_used: int
    tokens_used: int
    usd_used: float


class AdmitCallRow(NamedTuple):
    day: date | None
    waits_for: str | None
    seconds: float


class AdmitCall(Query[AdmitCallRow], name="admit_call"):
    """Count a producer's model call before it is made; no row without a budget (admit_call_v1)."""

    namespace: str
    tokens: int


class SettleCall(Query[Never], name="settle_call"):
    """Count the difference between the use of a producer's call and its estimate."""

    calls: int
    tokens: int
    usd: float
    namespace: str
    day: date


class RecordCall(Query[NothingRow], name="record_call"):
    """Write a producer's model call, which belongs to no derivation, into the ledger (record_call_v1)."""

    shard_key: UUID
    call_id: UUID
    purpose: str
    batch_id: UUID
    step: str
    model: str
    prompt_hash: str
    input_tokens: int
    output_tokens: int
    seconds: float
    cost_usd: Decimal | float | None


class LockPaceRow(NamedTuple):
    pace: str | None
    now: float


class LockPace(Query[LockPaceRow], name="lock_pace"):
    """The pace that workers keep with a model server, as JSON, and the present in seconds; locked to the end
    of the transaction.
    """

    server: str


class KeepPace(Query[Never], name="keep_pace"):
    """Keep the pace that was locked."""

    pace: str
    server: str
