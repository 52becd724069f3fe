"""Passes over all sessions to find expired data, page by page.

Several processes share a pass: each takes the next page in a short transaction.  A page whose process died is
skipped in that pass; its plans are recorded, and the next pass finds the rest.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TypedDict
from uuid import UUID

from strandline.pipelines.upkeep.removal import Removal, Remover
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.paging import pages
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.conversation.retention import (
    AdvanceRun,
    AgedOwners,
    BeginRun,
    CountRun,
    ForgetEndedFacts,
    ForgetOldAnswers,
    ForgetOldCalls,
    ForgetOldTraces,
    ForgetRuns,
    OpenSteps,
    RetainedNamespaces,
    RetentionIsSet,
    SessionsToRetain,
    TakeRun,
)
from strandline.schemas.values.identity import SessionKeys

OWNERS_PER_PAGE = 200
ROWS_AT_ONCE = 500

_STATEMENTS: Mapping[str, Callable[..., Query[object]]] = {
    "answers_seconds": ForgetOldAnswers,
    "calls_seconds": ForgetOldCalls,
    "traces_seconds": ForgetOldTraces,
    "ended_facts_seconds": ForgetEndedFacts,
}


def forget_aged(
    database: Database, is_ending: Callable[[], bool] = lambda: False, namespace: str | None = None
) -> dict[str, int]:
    """Delete expired rows, in one namespace or in all; returns how many, by kind."""
    counts: Counter[str] = Counter()
    for row in database.fetch(RetainedNamespaces()):
        if namespace is not None and row.namespace != namespace:
            continue
        ages: dict[str, int] = json.loads(row.ages)
        chosen = {name: age for name, age in ages.items() if age and name in _STATEMENTS}
        owners = pages(database, AgedOwners, namespace=row.namespace, limit=OWNERS_PER_PAGE)
        for owner in chain.from_iterable(owners) if chosen else ():
            for name, age in chosen.items():
                removed = _forget(database, owner.shard_key, name, age, is_ending)
                counts[name.removesuffix("_seconds")] += removed
            if is_ending():
                return dict(counts)
    return dict(counts)


def _forget(database: Database, owner: UUID, name: str, age: int, is_ending: Callable[[], bool]) -> int:
    total = 0
    forget = _STATEMENTS[name](shard_key=owner, age_seconds=float(age), limit=ROWS_AT_ONCE)
    while not is_ending() and (gone := len(database.fetch(forget))):
        total += gone
    return total


SESSIONS_PER_PAGE = 500
STEPS_PER_TICK = 20
_FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Page:
    """Some sessions of a pass that may hold expired data."""

    run_id: int
    sessions: tuple[SessionKeys, ...]
    looked_at: int
    is_last: bool


class Which(TypedDict):
    """The sessions that are meant: of a namespace, one, or all."""

    namespace: str | None
    session_key: UUID | None


def is_set(database: Database) -> bool:
    """Whether anything is kept for a time only."""
    return database.fetch(RetentionIsSet())[0].is_set


def concerned_sessions(database: Database, which: Which) -> Iterator[SessionKeys]:
    """The sessions that may hold expired data; nothing is written."""
    for rows in pages(database, SessionsToRetain, **which, limit=SESSIONS_PER_PAGE):
        for row in rows:
            if row.is_concerned:
                yield SessionKeys(shard_key=row.shard_key, session_key=row.session_key)


def run_once(
    database: Database,
    remover: Remover,
    which: Which,
    *,
    on_progress: Callable[[Removal], None] = lambda _removal: None,
    stop: threading.Event | None = None,
) -> Removal:
    """Remove expired data from the selected sessions.

    It can be stopped at any time, and started again: steps resume.
    """
    done = Removal()
    for session in concerned_sessions(database, which):
        if stop is not None and stop.is_set():
            break
        done += remover.retain(session)
        on_progress(done)
    return done


def tick(
    database: Database, remover: Remover, *, interval_seconds: float, is_ending: Callable[[], bool]
) -> Removal:
    """A worker's turn: steps that were left, and the next page of the pass, if there is one."""
    if not is_set(database):
        return Removal()
    done = Removal()
    for step in database.fetch(OpenSteps(namespace=None, limit=STEPS_PER_TICK)):
        if is_ending():
            return done
        session = SessionKeys(shard_key=step.shard_key, session_key=step.session_key)
        done += remover.retain(session, max_steps=1)
    if database.fetch(BeginRun(namespace=None, interval_seconds=interval_seconds)):
        database.fetch(ForgetRuns())
    page = _take_page(database)
    if page is None:
        return done
    for session in page.sessions:
        if is_ending():
            break
        done += remover.retain(session)
    counts = {name: number for name, number in asdict(done).items() if number}
    counts["sessions"] = page.looked_at
    if page.is_last:
        counts |= forget_aged(database, is_ending)
    database.fetch(CountRun(run_id=page.run_id, counts=json.dumps(counts)))
    return done


def _take_page(database: Database) -> Page | None:
    with database.transaction() as tx:
        for run in tx.fetch(TakeRun(namespace=None)):
            rows = tx.fetch(
                SessionsToRetain(
                    after_shard_key=run.position_shard or _FIRST,
                    after_session_key=run.position_session or _FIRST,
                    namespace=None,
                    session_key=None,
                    limit=SESSIONS_PER_PAGE,
                )
            )
            is_last = len(rows) < SESSIONS_PER_PAGE
            tx.fetch(
                AdvanceRun(
                    run_id=run.run_id,
                    position_shard=rows[-1].shard_key if rows else None,
                    position_session=rows[-1].session_key if rows else None,
                    is_done=is_last,
                )
            )
            concerned = tuple(
                SessionKeys(shard_key=row.shard_key, session_key=row.session_key)
                for row in rows
                if row.is_concerned
            )
            return Page(run.run_id, concerned, len(rows), is_last)
    return None
