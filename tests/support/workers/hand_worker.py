"""Draining by hand: engines whose worker rows, stop points and hints a test holds in its hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from strandline import Memory
from strandline.pipelines.engine.drain import drain
from strandline.pipelines.engine.engine import Engine, Outcome, StopPoint
from strandline.pipelines.engine.failures import RetryPolicy
from strandline.pipelines.engine.leases import LeaseTerms
from strandline.pipelines.engine.stage import Batch, Call, RawAnswer, Stage, Stages
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.queries.work.states import InsertState
from strandline.schemas.queries.work.workers import Beat
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import SUMMARY_STAGE, Lane
from tests.conftest import rows_of
from tests.support.workers.draining import due_lanes

# Nobody beats for these workers: one that a test lets live lives for as long as the test takes.
TERMS = LeaseTerms(dead_after_seconds=1_800.0, deadline_seconds=3_600.0)
QUICK = RetryPolicy(base_seconds=0.001, max_seconds=0.002, max_failures=3, max_crashes=3)

# What consuming writes; the rest is the log, or changes with every lease.
DERIVED = (
    "batch",
    "answer",
    "model_call",
    "receipt",
    "dead_letter",
    "fact_candidate",
    "fact",
    "fact_revision",
    "block_state",
    "chunk",
    "due",
)


class FixedStages(dict[str, Stage[Any, Any]]):
    """The same stages for every generation."""

    def of(self, generation_id: int, stage: str) -> Stage[Any, Any] | None:
        return self.get(stage)

    def unbuildable(self) -> list[int]:
        return []


@dataclass
class HandWorker:
    """A worker without threads: it drains when told to, and its heartbeat is a row that a test may age."""

    database: Database
    stages: Stages
    terms: LeaseTerms = TERMS
    retry: RetryPolicy = QUICK
    budget: int = 8_000
    reach: Callable[[StopPoint], None] = lambda _point: None
    rung: list[Lane] = field(default_factory=list)
    worker_id: UUID = field(default_factory=uuid4)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.beat()
        self.engine = Engine(
            database=self.database,
            stages=self.stages,
            worker_id=self.worker_id,
            terms=self.terms,
            retry=self.retry,
            batch_token_budget=self.budget,
            ring=self.rung.extend,
            stopping=lambda: self.stopping,
            reach=self.reach,
        )

    def beat(self) -> None:
        stages = list(self.stages)
        self.database.fetch(Beat(worker_id=self.worker_id, host="here", pid=1, version="0", stages=stages))

    def die(self, url: str) -> None:
        """Its heartbeat has stopped a while ago."""
        age = "UPDATE strandline.worker SET heartbeat_at = heartbeat_at - interval '1 hour'"
        rows_of(url, f"{age} WHERE worker_id = %s RETURNING 1", self.worker_id)

    def drain(self, lane: Lane) -> Outcome:
        turn = drain(self.engine, lane)
        self.rung.extend(turn.next_lanes)
        return turn.outcome

    def drain_all(self, url: str) -> list[Outcome]:
        """Drain each lane that has work, once."""
        return [self.drain(lane) for lane in due_lanes(url, list(self.stages))]


@dataclass
class CountingStage:
    """A summary without a model: its state is which messages were folded, in order.

    ``calls_made`` counts what stands for model calls, each of so many ``tokens``; ``fail`` is asked before
    each.
    """

    fail: Callable[[Batch], None] = lambda _batch: None
    calls_made: int = 0
    tokens: int = 0
    name: str = SUMMARY_STAGE

    def wait_seconds(self) -> float:
        return 0.0

    def load(self, fetcher: Fetcher, batch: Batch) -> list[int]:
        return [event.from_seq for event in batch.events]

    def calls(self, batch: Batch, work: list[int]) -> Sequence[Call]:
        def make() -> RawAnswer:
            self.calls_made += 1
            self.fail(batch)
            return RawAnswer("counting", "0", ",".join(map(str, work)).encode(), self.tokens)

        return (Call("count", make),)

    def effect(self, batch: Batch, work: list[int], answers: Mapping[str, RawAnswer]) -> str:
        return f'{{"folded": [{answers["count"].body.decode()}]}}'

    def write(self, fetcher: Fetcher, batch: Batch, work: list[int], effect: str) -> list[Lane]:
        fetcher.fetch(
            InsertState(
                shard_key=batch.lane.shard_key,
                scope_key=batch.lane.scope_key,
                generation_id=batch.lane.generation_id,
                through_seq=batch.events[-1].through_seq,
                state=effect,
                batch_id=batch.batch_id,
            )
        )
        return []


def counting(stage: CountingStage | None = None) -> FixedStages:
    """The stages of a worker that only counts."""
    return FixedStages({SUMMARY_STAGE: stage or CountingStage()})


def say(memory: Memory, *texts: str) -> None:
    """Put each text as a message and flush it as a separate event."""
    for text in texts:
        memory.put({"role": "user", "content": text})
        assert len(memory.flush(all=True)) == 1


def summary_lane(url: str, session_id: str, user_id: str | None = None) -> Lane:
    keys = identify_session("default", session_id, user_id)
    ((generation_id,),) = rows_of(
        url, "SELECT generation_id FROM strandline.generation WHERE pipeline = 'summary'"
    )
    return Lane(keys.shard_key, keys.session_key, generation_id, SUMMARY_STAGE)


def contents(url: str) -> set[tuple[str, str]]:
    """Every row of the derived tables, as text."""
    return {
        (table, row[0])
        for table in DERIVED
        for row in rows_of(url, f"SELECT t::text FROM strandline.{table} t")
    }


def folded(url: str) -> list[int]:
    """The states of the counting stage, in order."""
    rows = rows_of(url, "SELECT state->'folded' FROM strandline.block_state ORDER BY through_seq")
    return [seq for (seqs,) in rows for seq in seqs]
