"""The play: measured puts and reads, and looks at their session in Postgres, as any other process could."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from strandline.memory import Memory
from strandline.producers.facts.listing import Fact
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.conversation.sessions import (
    ShowEvents,
    ShowEventsRow,
    ShowFacts,
    ShowSession,
    ShowStates,
)
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import PIPELINES, SUMMARY
from strandline.schemas.values.message import Message

PAUSE_SECONDS = 0.05
FACTS_PER_PAGE = 1_000

# An event is consumed by a pipeline once its last stage is done with it.
_LAST_STAGES = frozenset(pipeline.last_stage for pipeline in PIPELINES.values())


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """A flush event; ``consumed`` has the seconds it took by pipeline, ``outcomes`` how that ended."""

    row: ShowEventsRow
    consumed: Mapping[str, float]
    outcomes: Mapping[str, str]

    def is_consumed_by(self, pipelines: Sequence[str]) -> bool:
        return all(pipeline in self.consumed for pipeline in pipelines)


@dataclass(frozen=True, slots=True)
class Look:
    """The session at one moment."""

    tokens: int = 0
    mark: int = 0
    events: Sequence[SeenEvent] = ()
    facts: int = 0
    summary: str = ""
    summary_through: int = 0


@dataclass
class Play:
    """A conversation that is played, with its measurements and final findings.

    Attributes:
        get_tokens: the size of each read.
        over_budget: counts reads that said so; ``unexplained`` reads above the limit did not.
        consumed_after: seconds from the last put until all was consumed; None: the demo gave up waiting.
    """

    memory: Memory
    messages: Sequence[Message] = ()
    put_ms: list[float] = field(default_factory=list)
    get_ms: list[float] = field(default_factory=list)
    get_tokens: list[int] = field(default_factory=list)
    over_budget: int = 0
    unexplained: int = 0
    seconds: float = 0.0
    consumed_after: float | None = None
    look: Look = field(default_factory=Look)
    stored: Sequence[Message] = ()
    facts: list[Fact] = field(default_factory=list)

    @property
    def pipelines(self) -> list[str]:
        return [block.pipeline for block in self.memory.memory_blocks if block.pipeline is not None]

    @property
    def applications(self) -> int:
        outcomes = (outcome for event in self.look.events for outcome in event.outcomes.values())
        return sum(outcome == "applied" for outcome in outcomes)

    def put_all(self, *, reads: int, wait: Callable[[], None]) -> None:
        """Put every message by itself, and read at ``reads`` user messages spread over them."""
        asked = [number for number, message in enumerate(self.messages) if message.role == "user"]
        read_at = asked[:: max(1, math.ceil(len(asked) / reads))]
        began = time.monotonic()
        for number, message in enumerate(self.messages):
            started = time.perf_counter()
            self.memory.put(message)
            self.put_ms.append((time.perf_counter() - started) * 1000)
            if number in read_at:
                self.get(message.text)
            wait()
        self.seconds = time.monotonic() - began

    def get(self, query: str) -> MemoryContext:
        """One read, measured."""
        started = time.perf_counter()
        context = self.memory.get(query)
        self.get_ms.append((time.perf_counter() - started) * 1000)
        self.get_tokens.append(context.tokens)
        self.over_budget += context.over_budget
        self.unexplained += context.tokens > self.memory.token_limit and not context.over_budget
        return context

    def read_back(self) -> None:
        """Read all messages and facts."""
        self.stored = self.memory.get_all()
        while page := self.memory.facts.list(limit=FACTS_PER_PAGE, offset=len(self.facts)):
            self.facts += page


def await_consumed(
    look: Callable[[], Look],
    pipelines: Sequence[str],
    *,
    patience_seconds: Callable[[], float],
    pause: Callable[[float], None],
) -> tuple[Look, float | None]:
    """Wait until every event is consumed by all ``pipelines``.

    ``patience_seconds`` says how long to wait for a next event; it is asked again and again, as that may
    change.  Returns the last look, and the seconds it took; None if no next event came in time.
    """
    before, since = -1, time.monotonic()
    moved_at = since
    while True:
        seen, now = look(), time.monotonic()
        if all(event.is_consumed_by(pipelines) for event in seen.events):
            return seen, now - since
        done = sum(len(event.consumed) for event in seen.events)
        if done > before:
            before, moved_at = done, now
        elif now - moved_at > patience_seconds():
            return seen, None
        pause(PAUSE_SECONDS)


def look_at(database: Database, identity: SessionIdentity) -> Look:
    """Read the session's marks, events, facts and summary."""
    marks = database.fetch(ShowSession(**identity.keys))
    if not marks:
        return Look()
    facts = database.fetch(ShowFacts(shard_key=identity.shard_key, limit=1))
    summaries = [row for row in database.fetch(ShowStates(**identity.keys)) if row.pipeline == SUMMARY]
    return Look(
        tokens=marks[0].tokens,
        mark=marks[0].flush_at_tokens,
        events=[_event(row) for row in database.fetch(ShowEvents(**identity.keys))],
        facts=facts[0].facts if facts else 0,
        summary=str(json.loads(summaries[0].state).get("text", "")) if summaries else "",
        summary_through=summaries[0].through_seq if summaries else 0,
    )


def _event(row: ShowEventsRow) -> SeenEvent:
    ends = [item for item in json.loads(row.receipts) if item["stage"] in _LAST_STAGES]
    return SeenEvent(
        row,
        consumed={item["pipeline"]: float(item["seconds"]) for item in ends},
        outcomes={item["pipeline"]: item["outcome"] for item in ends},
    )
