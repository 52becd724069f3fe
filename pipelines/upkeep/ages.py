"""What grows beside the log, and has an age of its own: answers, the ledger, traces, facts that ended.

Deleted owner by owner and some hundred rows at a time, so that no transaction is long.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.conversation.retention import (
    AgedOwners,
    ForgetEndedFacts,
    ForgetOldAnswers,
    ForgetOldCalls,
    ForgetOldTraces,
    RetainedNamespaces,
)

OWNERS_PER_PAGE = 200
ROWS_AT_ONCE = 500

_Forget = Callable[[UUID, float], Query[object]]

_STATEMENTS: Mapping[str, _Forget] = {
    "answers_seconds": lambda owner, age: ForgetOldAnswers(
        shard_key=owner, age_seconds=age, limit=ROWS_AT_ONCE
    ),
    "calls_seconds": lambda owner, age: ForgetOldCalls(shard_key=owner, age_seconds=age, limit=ROWS_AT_ONCE),
    "traces_seconds": lambda owner, age: ForgetOldTraces(
        shard_key=owner, age_seconds=age, limit=ROWS_AT_ONCE
    ),
    "ended_facts_seconds": lambda owner, age: ForgetEndedFacts(
        shard_key=owner, age_seconds=age, limit=ROWS_AT_ONCE
    ),
}


def forget_aged(
    database: Database, is_ending: Callable[[], bool] = lambda: False, namespace: str | None = None
) -> dict[str, int]:
    """Delete what is past its age, in one namespace or in all; returns how many rows, by kind."""
    counts: Counter[str] = Counter()
    for row in database.fetch(RetainedNamespaces()):
        if namespace is not None and row.namespace != namespace:
            continue
        ages: dict[str, int] = json.loads(row.ages)
        chosen = {name: age for name, age in ages.items() if age and name in _STATEMENTS}
        for owner in _owners(database, row.namespace) if chosen else ():
            for name, age in chosen.items():
                counts[name.removesuffix("_seconds")] += _forget(database, owner, name, age, is_ending)
            if is_ending():
                return dict(counts)
    return dict(counts)


def _forget(database: Database, owner: UUID, name: str, age: int, is_ending: Callable[[], bool]) -> int:
    total = 0
    while not is_ending():
        gone = len(database.fetch(_STATEMENTS[name](owner, float(age))))
        total += gone
        if not gone:
            break
    return total


def _owners(database: Database, namespace: str) -> Iterator[UUID]:
    after = UUID(int=0)
    while page := database.fetch(AgedOwners(namespace=namespace, after=after, limit=OWNERS_PER_PAGE)):
        for row in page:
            yield row.shard_key
        after = page[-1].shard_key
