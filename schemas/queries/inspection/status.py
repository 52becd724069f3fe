"""The statements of ``schemas/sql/status.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query


class StatusPipelinesRow(NamedTuple):
    pipeline: str
    generation_id: int
    state: str
    entry_stage: str
    config: str
    due: str
    leased: str
    dead: str


class StatusPipelines(Query[StatusPipelinesRow]):
    """Per stage: what is due, held, dead, and how late the oldest work is that waits for no budget
    (ring_due); a turn in company is late once it is ready.
    """

    __slots__ = ()
    name = "status_pipelines"
    row = StatusPipelinesRow

    def __init__(self, *, dead_after_seconds: Decimal | float) -> None:
        self.values = (dead_after_seconds,)


class StatusTotalsRow(NamedTuple):
    sessions: int
    messages: int
    events: int
    facts: int
    chunks: int
    calls_by_model: str


class StatusTotals(Query[StatusTotalsRow]):
    """Totals; of derived memory only what serves."""

    __slots__ = ()
    name = "status_totals"
    row = StatusTotalsRow


class StatusKeysRow(NamedTuple):
    namespace: str
    reason: str
    kek_ids: list[str]
    lanes: int
    events: int


class StatusKeys(Query[StatusKeysRow]):
    """Lanes with due work of encrypted namespaces that were given back with an error, by what it says; with
    the keys that wrap those of their owners. Which of these errors are of a key, the caller sees.
    """

    __slots__ = ()
    name = "status_keys"
    row = StatusKeysRow


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


class StatusWorkers(Query[StatusWorkersRow]):
    """The live workers, and the stages that each one serves."""

    __slots__ = ()
    name = "status_workers"
    row = StatusWorkersRow

    def __init__(self, *, dead_after_seconds: Decimal | float) -> None:
        self.values = (dead_after_seconds,)


class UsedPipelinesRow(NamedTuple):
    pipeline: str


class UsedPipelines(Query[UsedPipelinesRow]):
    """The pipelines that sessions feed; work of those that no live worker serves piles up."""

    __slots__ = ()
    name = "used_pipelines"
    row = UsedPipelinesRow


class DescribeServerRow(NamedTuple):
    server: str
    vector_installed: str | None
    vector_available: str | None
    may_create_schema: bool
    may_create_vector: bool
    schema_exists: bool
    epoch_seconds: Decimal


class DescribeServer(Query[DescribeServerRow]):
    """Version, pgvector, rights and clock of the server; needs no tables."""

    __slots__ = ()
    name = "describe_server"
    row = DescribeServerRow

    def __init__(self, *, schema: str) -> None:
        self.values = (schema,)


class SchemaRevisionRow(NamedTuple):
    version_num: str
    is_own: bool


class SchemaRevision(Query[SchemaRevisionRow]):
    """Which migration the tables are at, and whether they are ours: other applications have a table of that
    name.
    """

    __slots__ = ()
    name = "schema_revision"
    row = SchemaRevisionRow


class DividedTablesRow(NamedTuple):
    table_name: str
    partitions: int


class DividedTables(Query[DividedTablesRow]):
    """The tables that are divided (strandline migrate --partitions), and into how many partitions."""

    __slots__ = ()
    name = "divided_tables"
    row = DividedTablesRow

    def __init__(self, *, schema: str) -> None:
        self.values = (schema,)
