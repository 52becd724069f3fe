"""The statements of ``schemas/sql/read.sql``.  Written by `make queries`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import MessageRow
from strandline.schemas.sealing.marks import Mark, Marks


class ReadRow(NamedTuple):
    part: int
    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


class Read(Query[ReadRow], name="read", repeatable=True):
    """One snapshot for a read: part 0 is the header (marks, coverage, facts, states), part 1 the tail, newest
    first and cut off by count and bytes, and the question of the turn inside of which the window begins,
    part 2 the pinned head or what replaced it, the newest system message behind it, and the window,
    without what is known of it. A chosen generation stands in for the one of its pipeline that serves.
    """

    marks = Marks(
        owner=1,
        opens=(
            Mark(6, "json", "message", 2),
            Mark(7, "json", "metadata", 2),
            Mark(6, "within", "facts.*.text=text:fact;states.*=json:state"),
        ),
    )
    session_key: UUID
    shard_key: UUID
    generation_id: int | None
    pipelines: list[str]
    tail_rows: int
    tail_bytes: int
    known_through: int | None
    known_from: int | None
    known_seal: str | None
    max_facts: int
    known_facts: str | None


class CallsOfResults(Query[MessageRow], name="calls_of_results", repeatable=True):
    """Before a number, the newest messages with some calls, and the results of all their calls; for results
    that came when their calls had left the window.
    """

    marks = Marks(
        owner=1,
        opens=(
            Mark(5, "json", "message", 1),
            Mark(6, "json", "metadata", 1),
        ),
    )
    session_key: UUID
    shard_key: UUID
    before_seq: int
    within: int
    calls: list[str]


class CoverageRow(NamedTuple):
    pipeline: str | None
    from_seq: int | None
    last_seq: int
    waits: bool


class Coverage(Query[CoverageRow], name="coverage", repeatable=True):
    """Which ranges some pipelines have not covered yet, and the last message there is (for a bounded wait);
    and whether a range waits for more to share its model call (end_delay).
    """

    shard_key: UUID
    pipelines: list[str]
    session_key: UUID
    seq: int


class ServingGenerationRow(NamedTuple):
    generation_id: int
    config: str
    pieces_version: str
    time_zone: str | None


class ServingGeneration(Query[ServingGenerationRow], name="serving_generation", repeatable=True):
    """The derivation of a pipeline that serves an owner, and its recipe; the version of the owner's pieces,
    and its time zone.
    """

    shard_key: UUID
    pipeline: str


class FactSourcesRow(NamedTuple):
    fact_id: UUID
    said_at: datetime
    session_key: UUID | None
    seqs: list[int] | None


class FactSources(Query[FactSourcesRow], name="fact_sources", repeatable=True):
    """Some live facts of an owner, of a generation or (NULL) the serving one: when each was last said, and
    where; a row per session that said it.
    """

    generation_id: int | None
    shard_key: UUID
    fact_ids: list[UUID]
