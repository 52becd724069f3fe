"""The statements of ``schemas/sql/limits.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query


class SetLimitsRow(NamedTuple):
    namespace: str


class SetLimits(Query[SetLimitsRow]):
    """Set limits of a namespace; a limit that is not given (NULL) stays as it was."""

    __slots__ = ()
    name = "set_limits"
    row = SetLimitsRow

    def __init__(
        self,
        *,
        namespace: str,
        max_lanes: int | None,
        max_lanes_per_worker: int | None,
        calls_per_day: int | None,
        tokens_per_day: int | None,
        usd_per_day: float | None,
        agents_read_only: bool | None,
        max_sessions: int | None,
        max_bytes: int | None,
    ) -> None:
        self.values = (
            namespace,
            max_lanes,
            max_lanes_per_worker,
            calls_per_day,
            tokens_per_day,
            usd_per_day,
            agents_read_only,
            max_sessions,
            max_bytes,
        )


class ClearLimitsRow(NamedTuple):
    namespace: str


class ClearLimits(Query[ClearLimitsRow]):
    """Remove the named limits of a namespace."""

    __slots__ = ()
    name = "clear_limits"
    row = ClearLimitsRow

    def __init__(self, *, cleared: list[str], namespace: str) -> None:
        self.values = (cleared, namespace)


class ForgetCleared(Query[Never]):
    """Delete the row of a namespace without any limit."""

    __slots__ = ()
    name = "forget_cleared"

    def __init__(self, *, namespace: str) -> None:
        self.values = (namespace,)


class CountAnew(Query[Never]):
    """Have what a namespace has stored counted by the next put, if there is a bound on it; after a change of
    its limits.
    """

    __slots__ = ()
    name = "count_anew"

    def __init__(self, *, namespace: str) -> None:
        self.values = (namespace,)


class AgentsMayWriteRow(NamedTuple):
    may_write: bool


class AgentsMayWrite(Query[AgentsMayWriteRow]):
    """Whether agents may change memories of a namespace by their tools."""

    __slots__ = ()
    name = "agents_may_write"
    repeatable = True
    row = AgentsMayWriteRow

    def __init__(self, *, namespace: str) -> None:
        self.values = (namespace,)


class RevokeSlices(Query[Never]):
    """Make workers return the slices of a namespace's budget, which were cut from the earlier one."""

    __slots__ = ()
    name = "revoke_slices"

    def __init__(self, *, namespace: str) -> None:
        self.values = (namespace,)


class RevokedSlicesRow(NamedTuple):
    namespace: str


class RevokedSlices(Query[RevokedSlicesRow]):
    """The namespaces whose slices this worker is to return."""

    __slots__ = ()
    name = "revoked_slices"
    row = RevokedSlicesRow

    def __init__(self, *, namespaces: list[str], days: list[date], worker_id: UUID) -> None:
        self.values = (namespaces, days, worker_id)


class RingPutOffRow(NamedTuple):
    shard_key: UUID


class RingPutOff(Query[RingPutOffRow]):
    """Ring now for a page of the work that waited for a namespace's budget; by owner, and locked in this
    order.
    """

    __slots__ = ()
    name = "ring_put_off"
    row = RingPutOffRow

    def __init__(self, *, namespace: str, from_shard: UUID, limit: int) -> None:
        self.values = (namespace, from_shard, limit)


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


class ListLimits(Query[ListLimitsRow]):
    """The limits of namespaces, their use today, and their work under way and waiting."""

    __slots__ = ()
    name = "list_limits"
    repeatable = True
    row = ListLimitsRow

    def __init__(self, *, dead_after_seconds: Decimal | float, namespace: str | None) -> None:
        self.values = (dead_after_seconds, namespace)


class TakeSliceRow(NamedTuple):
    day: date
    has_budget: bool
    is_granted: bool
    calls: int | None
    tokens: int | None
    usd: float | None
    seconds: float
    waits_for: str | None


class TakeSlice(Query[TakeSliceRow]):
    """The next slice of a namespace's budget for this worker (take_slice_v1)."""

    __slots__ = ()
    name = "take_slice"
    row = TakeSliceRow

    def __init__(
        self,
        *,
        namespace: str,
        worker_id: UUID,
        day: date,
        calls_used: int,
        tokens_used: int,
        usd_used: float,
        tokens_wanted: int,
        slice_seconds: float,
    ) -> None:
        self.values = (
            namespace,
            worker_id,
            day,
            calls_used,
            tokens_used,
            usd_used,
            tokens_wanted,
            slice_seconds,
        )


class ReturnSlice(Query[Never]):
    """Record this worker's use of a day's budget; it no longer holds a slice of it."""

    __slots__ = ()
    name = "return_slice"

    def __init__(
        self,
        *,
        namespace: str,
        day: date,
        worker_id: UUID,
        calls_used: int,
        tokens_used: int,
        usd_used: float,
    ) -> None:
        self.values = (namespace, day, worker_id, calls_used, tokens_used, usd_used)


class AdmitCallRow(NamedTuple):
    day: date | None
    waits_for: str | None
    seconds: float


class AdmitCall(Query[AdmitCallRow]):
    """Count a producer's model call before it is made; no row without a budget (admit_call_v1)."""

    __slots__ = ()
    name = "admit_call"
    row = AdmitCallRow

    def __init__(self, *, namespace: str, tokens: int) -> None:
        self.values = (namespace, tokens)


class SettleCall(Query[Never]):
    """Count the difference between the use of a producer's call and its estimate."""

    __slots__ = ()
    name = "settle_call"

    def __init__(self, *, calls: int, tokens: int, usd: float, namespace: str, day: date) -> None:
        self.values = (calls, tokens, usd, namespace, day)


class RecordCallRow(NamedTuple):
    nothing: str


class RecordCall(Query[RecordCallRow]):
    """Write a producer's model call, which belongs to no derivation, into the ledger (record_call_v1)."""

    __slots__ = ()
    name = "record_call"
    row = RecordCallRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        call_id: UUID,
        purpose: str,
        batch_id: UUID,
        step: str,
        model: str,
        prompt_hash: str,
        input_tokens: int,
        output_tokens: int,
        seconds: float,
        cost_usd: Decimal | float | None,
    ) -> None:
        self.values = (
            shard_key,
            call_id,
            purpose,
            batch_id,
            step,
            model,
            prompt_hash,
            input_tokens,
            output_tokens,
            seconds,
            cost_usd,
        )


class LockPaceRow(NamedTuple):
    pace: str | None
    now: float


class LockPace(Query[LockPaceRow]):
    """The pace that workers keep with a model server, as JSON, and the present in seconds; locked to the end
    of the transaction.
    """

    __slots__ = ()
    name = "lock_pace"
    row = LockPaceRow

    def __init__(self, *, server: str) -> None:
        self.values = (server,)


class KeepPace(Query[Never]):
    """Keep the pace that was locked."""

    __slots__ = ()
    name = "keep_pace"

    def __init__(self, *, pace: str, server: str) -> None:
        self.values = (pace, server)
