"""The output of ``status``, ``limits`` and the commands that do work at once, under ``--json``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from strandline.schemas.wire.base import WaitingOut
from strandline.schemas.wire.report import Report


class StageReport(Report):
    """One stage of a pipeline.

    ``lag_seconds`` is the age of its oldest due work that waits for no budget, 0 without any.  A
    turn that waits for others has no age until that wait ends.
    ``reason``: why that work waits, as a live worker says; null where none knows a reason.
    ``retry_at``: when the first of its dead letters is retried by itself; null if none is.
    ``dead_reason``: of the newest one.
    """

    name: str
    due: int
    leased: int
    dead: int
    lag_seconds: float
    reason: str | None
    retry_at: datetime | None = None
    dead_reason: str | None = None


class PipelineReport(Report):
    """One derivation of a pipeline.

    ``used`` says whether sessions feed it, ``served`` whether live workers run all of its stages, as it was
    made; ``differences`` where the settings of this process differ from its own, if it serves.
    """

    name: str
    generation: int
    state: str
    due: int
    leased: int
    dead: int
    lag_seconds: float
    used: bool
    served: bool
    differences: list[str]
    stages: list[StageReport]


class WorkerReport(Report):
    """A worker with a heartbeat; ``dropped_hints`` counts messages of the broker's that were not hints.

    ``lost_threads``: in which code of a custom block runs that did not come back in time.  ``no_broker``: how
    it shows that the worker does not reach its broker; null where it does.
    """

    worker_id: str
    host: str
    pid: int
    version: str
    stages: list[str]
    started_at: str
    beat_seconds_ago: float
    dropped_hints: int
    lost_threads: int
    no_broker: str | None = None


class ModelCallsReport(Report):
    """The ledger of one model: its calls, their tokens, and their cost in US dollars.

    ``cost_usd`` is null where no call had a price in STRANDLINE_MODEL_PRICES when it was made.
    """

    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


class CallsReport(Report):
    """The ledger of model calls, summed and by model; ``cost_usd`` is the sum of the calls with a price."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    by_model: list[ModelCallsReport]


class ReplayReport(Report):
    """One replay and how it stands; ``counts`` depends on its kind, ``new`` or ``in_place``.

    ``is_alive``: it is running, and its process has reported on it within 15 seconds.
    """

    replay_id: int
    kind: str
    pipeline: str
    generation: int
    state: str
    counts: dict[str, Any]
    is_alive: bool


class NamespaceLimitsReport(Report):
    """The limits of a namespace (null: unlimited), and its use today (UTC).

    Workers write their use about once a minute. ``lanes_at_work`` are those of all workers; ``due`` counts
    due events, each in every stage that it is due in; ``waits_until`` says until when they wait for a budget
    that is used up or held by workers, ``waits_for`` which.  ``agents_read_only``: agents may read memories
    by their tools, and not change them.  ``sessions_stored`` and ``bytes_stored`` (of messages) are as they
    were counted last; null: nothing bounds them.
    """

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
    waits_for: str | None


class LimitsReport(Report):
    """``strandline limits list`` and ``set``."""

    namespaces: list[NamespaceLimitsReport]


class KeyWaitReport(Report):
    """Due work of an encrypted namespace that a worker could not open, and ``reason``: its words.

    ``key_ids``: the keys that wrap those of the owners.
    """

    namespace: str
    key_ids: list[str]
    lanes: int
    events: int
    reason: str


class Standing(Report):
    """Waiting work and workers, without totals, which take long for large tables; see ``StatusReport``."""

    pipelines: list[PipelineReport]
    workers: list[WorkerReport]
    unserved: list[str]
    replays: list[ReplayReport]
    limits: list[NamespaceLimitsReport]
    waiting_for_keys: list[KeyWaitReport]
    unchained_seconds: float


class StatusReport(Report):
    """``strandline status``; ``events`` are flush events, ``unserved`` pipelines that no worker runs.

    ``replays`` are the unfinished ones; ``limits`` those of each namespace that has some;
    ``waiting_for_keys`` lists namespaces with events that no worker could open;
    ``waiting``: messages in windows that no flush has delivered yet.
    ``unchained_seconds``: the age of the oldest act that no worker has chained into the audit trail; 0 if
    all are.
    """

    pipelines: list[PipelineReport]
    sessions: int
    messages: int
    events: int
    facts: int
    chunks: int
    model_calls: CallsReport
    workers: list[WorkerReport]
    unserved: list[str]
    replays: list[ReplayReport]
    limits: list[NamespaceLimitsReport]
    waiting_for_keys: list[KeyWaitReport]
    unchained_seconds: float
    waiting: WaitingOut | None


class FlushReport(Report):
    """``strandline flush``: the events recorded; none if there was nothing to deliver."""

    namespace: str
    session_id: str
    user_id: str | None
    events: list[str]


class ImportReport(Report):
    """``strandline import``: messages ``added``, those there already (``known``), and flush ``events``.

    With ``dry_run``, ``added`` and ``facts_added`` count everything read, whether or not it is there already.
    ``left_out`` counts what could not be taken, or only in part; ``reasons`` why.
    """

    source: str
    dry_run: bool
    namespace: str
    sessions: int
    added: int
    known: int
    events: int
    facts_added: int = 0
    facts_known: int = 0
    left_out: int = 0
    reasons: dict[str, int] = Field(default_factory=dict)


class ClearFactsReport(Report):
    """``strandline facts clear``: the facts cleared, or to be cleared (``dry_run``); ``facts`` are live
    ones.
    """

    namespace: str
    dry_run: bool
    owners: int
    facts: int


class PlannedStepReport(Report):
    """A step that ``strandline migrate`` would take, with its lock on an existing table; empty: none.

    ``seconds``: about how long it holds the lock, by the table's size; 0: a moment.
    """

    revision: str
    text: str
    table: str
    lock: str
    rows: int
    bytes: int
    seconds: float


class MigrateReport(Report):
    """``strandline migrate``: the revision before (null: no tables) and after.

    ``partitions``: how many each table has that is divided; empty where all are whole.
    ``plan``: the steps that ``--plan`` found to do, none of which is done; else empty.
    """

    database_schema: str
    before: str | None
    after: str | None
    partitions: dict[str, int]
    plan: list[PlannedStepReport]
