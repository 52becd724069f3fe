"""The statements of ``schemas/sql/status.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, Never
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import ColumnNameRow, PipelineRow, SecondsRow


class StatusPipelinesRow(NamedTuple):
    pipeline: str
    generation_id: int
    state: str
    entry_stage: str
    config: str
    due: str
    leased: str
    dead: str


class StatusPipelines(Query[StatusPipelinesRow], name="status_pipelines", repeatable=True):
    """Per stage: what is due, held, dead, and how late the oldest work is that waits for no budget
    (ring_due); a turn in company is late once it is ready.
    """

    dead_after_seconds: Decimal | float


class StatusTotalsRow(NamedTuple):
    sessions: int
    messages: int
    events: int
    facts: int
    chunks: int


class StatusTotals(Query[StatusTotalsRow], name="status_totals", repeatable=True):
    """Totals; of derived memory only what serves."""


class LedgerTotalsRow(NamedTuple):
    model: str
    step: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float
    last_at: datetime


class LedgerTotals(Query[LedgerTotalsRow], name="ledger_totals", repeatable=True):
    """The ledger of model calls, by model and by what they were for."""


class StageRatesRow(NamedTuple):
    generation_id: int
    stage: str
    minutes_ago: int
    events: int


class StageRates(Query[StageRatesRow], name="stage_rates", repeatable=True):
    """The events that each stage was done with, by minutes of the last hour."""


class LongestDueRow(NamedTuple):
    stage: str
    namespace: str
    session_id: str
    user_id: str | None
    from_seq: int
    through_seq: int
    waits_since: datetime


class LongestDue(Query[LongestDueRow], name="longest_due", repeatable=True):
    """Of each stage the event that waits longest, by name."""


class WaitingMessagesRow(NamedTuple):
    messages: int
    sessions: int
    tokens: int | None
    flush_at_tokens: int | None
    deliver_at: datetime | None


class WaitingMessages(Query[WaitingMessagesRow], name="waiting_messages", repeatable=True):
    """The messages that no flush has delivered yet, of an owner or of all, and what the next delivery waits
    for.
    """

    shard_key: UUID | None


class StatusKeysRow(NamedTuple):
    namespace: str
    reason: str
    kek_ids: list[str]
    lanes: int
    events: int


class StatusKeys(Query[StatusKeysRow], name="status_keys", repeatable=True):
    """Lanes with due work of encrypted namespaces that were given back with an error, by what it says; with
    the keys that wrap those of their owners. Which of these errors are of a key, the caller sees.
    """


class StatusWorkersRow(NamedTuple):
    worker_id: UUID
    host: str
    pid: int
    version: str
    stages: list[str]
    started_at: datetime
    beat_seconds_ago: Decimal
    unbuildable: list[int]
    condition: str


class StatusWorkers(Query[StatusWorkersRow], name="status_workers", repeatable=True):
    """The live workers, and the stages that each one serves."""

    dead_after_seconds: Decimal | float


class FailingStagesRow(NamedTuple):
    generation_id: int
    stage: str
    next_attempt_at: datetime


class FailingStages(Query[FailingStagesRow], name="failing_stages", repeatable=True):
    """The stages with due lanes whose last attempt failed, if none has succeeded since; and when the first is
    tried again.
    """


class OldestUnchained(Query[SecondsRow], name="oldest_unchained", repeatable=True):
    """The age of the oldest act that no worker has chained into its trail; null if all are."""


class UsedPipelines(Query[PipelineRow], name="used_pipelines", repeatable=True):
    """The pipelines that sessions feed; work of those that no live worker serves piles up."""


class DescribeServerRow(NamedTuple):
    server: str
    vector_installed: str | None
    vector_available: str | None
    may_create_schema: bool
    may_create_vector: bool
    schema_exists: bool
    epoch_seconds: Decimal
    encoding: str
    is_standby: bool


class DescribeServer(Query[DescribeServerRow], name="describe_server", repeatable=True):
    """Version, pgvector, rights and clock of the server; needs no tables."""

    schema: str


class MissingRightsRow(NamedTuple):
    right_name: str
    kind: str
    schema_name: str
    example: str
    objects: int
    role_name: str


class MissingRights(Query[MissingRightsRow], name="missing_rights", repeatable=True):
    """Rights that this user lacks on the schema of the tables, and on pgvector's; an object of each, and
    their number.
    """

    schema: str


class GuardedTablesRow(NamedTuple):
    table_name: str
    has_policies: bool
    role_name: str


class GuardedTables(Query[GuardedTablesRow], name="guarded_tables", repeatable=True):
    """Tables of which this user sees only the rows that policies show it, and whether there are policies."""

    schema: str


class StoredFunctionsRow(NamedTuple):
    function_name: str
    digest: str


class StoredFunctions(Query[StoredFunctionsRow], name="stored_functions", repeatable=True):
    """The functions of the schema, with a digest of their bodies."""

    schema: str


class StoredColumns(Query[ColumnNameRow], name="stored_columns", repeatable=True):
    """The columns of the schema's tables, as ``table.column``."""

    schema: str


class SchemaRevisionRow(NamedTuple):
    version_num: str
    is_own: bool


class SchemaRevision(Query[SchemaRevisionRow], name="schema_revision", repeatable=True):
    """Which migration the tables are at, and whether they are ours: other applications have a table of that
    name.
    """


class SetRevision(Query[Never], name="set_revision"):
    """The tables are at another migration."""

    revision: str


class DividedTablesRow(NamedTuple):
    table_name: str
    partitions: int


class DividedTables(Query[DividedTablesRow], name="divided_tables", repeatable=True):
    """The tables that are divided (strandline migrate --partitions), and into how many partitions."""

    schema: str


class TableSizesRow(NamedTuple):
    table_name: str
    part_name: str
    row_count: int
    bytes: int


class TableSizes(Query[TableSizesRow], name="table_sizes", repeatable=True):
    """Each whole table, and each partition of a divided one: about how many rows, and bytes without indexes."""

    schema: str
