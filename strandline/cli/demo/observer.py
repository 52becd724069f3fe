"""Looks at the demo's session in Postgres, a few times a second, as any other process could."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.conversation.sessions import (
    ShowEvents,
    ShowEventsRow,
    ShowFacts,
    ShowSession,
    ShowStates,
    ShowStatesRow,
)
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import PIPELINES, SUMMARY

LOOK_SECONDS = 0.1
FACTS_SHOWN = 4

# An event is consumed by a pipeline once its last stage is done with it.
_LAST_STAGES = frozenset(pipeline.last_stage for pipeline in PIPELINES.values())


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """A flush event; ``consumed`` has the seconds it took by pipeline, ``outcomes`` how that ended."""

    event_id: UUID
    cause: str
    from_seq: int
    through_seq: int
    tokens: int
    consumed: Mapping[str, float]
    outcomes: Mapping[str, str]

    def is_consumed_by(self, pipelines: Sequence[str]) -> bool:
        return all(pipeline in self.consumed for pipeline in pipelines)


@dataclass(frozen=True, slots=True)
class Look:
    """The session at one moment."""

    tokens: int = 0
    mark: int = 0
    events: tuple[SeenEvent, ...] = ()
    facts: int = 0
    latest_facts: tuple[str, ...] = ()
    summary: str = ""
    summary_through: int = 0

    def consumed_by(self, pipeline: str) -> int:
        return sum(pipeline in event.consumed for event in self.events)

    def count_unconsumed(self, pipelines: Sequence[str]) -> int:
        return sum(not event.is_consumed_by(pipelines) for event in self.events)


def look_at(database: Database, identity: SessionIdentity) -> Look:
    """Read the session's marks, events, facts and summary."""
    marks = database.fetch(ShowSession(**identity.keys))
    if not marks:
        return Look()
    facts = database.fetch(ShowFacts(shard_key=identity.shard_key, limit=FACTS_SHOWN))
    states = {row.pipeline: row for row in database.fetch(ShowStates(**identity.keys))}
    summary = states.get(SUMMARY, ShowStatesRow(SUMMARY, "{}", 0))
    return Look(
        tokens=marks[0].tokens,
        mark=marks[0].flush_at_tokens,
        events=tuple(_event(row) for row in database.fetch(ShowEvents(**identity.keys))),
        facts=facts[0].facts if facts else 0,
        latest_facts=tuple(row.text for row in facts),
        summary=_summary(summary.state),
        summary_through=summary.through_seq,
    )


@dataclass
class Observer:
    """A thread that looks every ``LOOK_SECONDS`` and shows what it saw; ``with`` starts and ends it."""

    database: Database
    identity: SessionIdentity
    show: Callable[[Look], None]
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Observer:
        self._thread = threading.Thread(target=self._run, name="demo-observer", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self.show(look_at(self.database, self.identity))
            except StrandlineError:
                # The observer only looks; the thread that plays meets the same error and reports it.
                continue


def _event(row: ShowEventsRow) -> SeenEvent:
    ends = [item for item in json.loads(row.receipts) if item["stage"] in _LAST_STAGES]
    return SeenEvent(
        event_id=row.event_id,
        cause=row.cause,
        from_seq=row.from_seq,
        through_seq=row.through_seq,
        tokens=row.tokens,
        consumed={item["pipeline"]: float(item["seconds"]) for item in ends},
        outcomes={item["pipeline"]: item["outcome"] for item in ends},
    )


def _summary(state: str) -> str:
    value: dict[str, Any] = json.loads(state)
    return str(value.get("text", ""))
