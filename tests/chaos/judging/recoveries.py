"""How long until work goes on after a fault, seen from outside: in the tables and in the journals.

Each recovery is timed twice: from the fault itself, and from when all that it needs was there again, since
faults overlap: a lane cannot be taken up while Postgres is away.  Bounds hold for the second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from strandline.schemas.values.lanes import STAGES
from tests.chaos.judging.timeline import Timeline
from tests.chaos.plan import Kind

Connection = psycopg.Connection[Any]
LaneKey = tuple[Any, Any, int, str]

# Work that is rung for is live; that of a replay never is, and waits for its turn among the replay's lanes.
_DUE = """EXISTS (
    SELECT FROM strandline.due d WHERE d.shard_key = l.shard_key AND d.scope_key = l.scope_key
        AND d.generation_id = l.generation_id AND d.stage = l.stage AND d.ring_at {compared} 'infinity')"""
_LIVE, _REPLAYED = _DUE.format(compared="<"), _DUE.format(compared="=")
HELD = """
SELECT l.shard_key, l.scope_key, l.generation_id, l.stage, l.lease_epoch
FROM strandline.lane l WHERE l.holder = (
    SELECT worker_id FROM strandline.worker WHERE pid = %s ORDER BY started_at DESC LIMIT 1)
    AND l.stage = ANY (%s) AND {work}
"""
STILL_HELD = """
SELECT l.shard_key, l.scope_key, l.generation_id, l.stage
FROM unnest(%s::uuid[], %s::uuid[], %s::integer[], %s::text[], %s::bigint[])
    AS h (shard_key, scope_key, generation_id, stage, lease_epoch)
JOIN strandline.lane l USING (shard_key, scope_key, generation_id, stage)
WHERE l.lease_epoch = h.lease_epoch AND l.holder IS NOT NULL AND {work}
"""
CONSUMED_SINCE = """
SELECT EXISTS (SELECT FROM strandline.lane WHERE leased_at > to_timestamp(%(at)s))
    AND EXISTS (SELECT FROM strandline.receipt
        WHERE applied_at > to_timestamp(%(at)s) AND stage = ANY (%(stages)s))
"""


@dataclass
class Recovery:
    """One recovery that is being waited for, and later how long it took.

    Attributes:
        needs: what must not be away; see ``Timeline.could_begin``.
        seconds: since all that it needs was there; ``raw_seconds`` since the fault.  None: not yet.
        begin: asked once with a connection; False means that it is to be asked again.
        done: asked with a connection until it is True.
        held: the lanes that are to be taken up, where it is about lanes.
    """

    kind: Kind
    number: int
    at: float
    needs: Collection[str]
    done: Callable[[Connection], bool]
    begin: Callable[[Connection], None] = lambda _connection: None
    held: HeldLanes | None = None
    begun: bool = False
    seconds: float | None = None
    raw_seconds: float | None = None

    def look(self, connection: Connection, timeline: Timeline) -> bool:
        """Ask whether it is over; note how long it took."""
        if not self.begun:
            self.begin(connection)
            self.begun = True
        if not self.done(connection):
            return False
        now = time.monotonic()
        self.raw_seconds = now - self.at
        self.seconds = now - timeline.could_begin(self.at, now, self.needs)
        return True

    def waited(self, timeline: Timeline) -> float:
        """For how long it could have been over, so far."""
        now = time.monotonic()
        return now - timeline.could_begin(self.at, now, self.needs)


@dataclass
class HeldLanes:
    """The lanes that a worker held when it was lost, until each was claimed by another or has no work.

    Those with live work, or with ``of_replays`` those with a replay's work alone.  ``found`` is how many
    there were.
    """

    pid: int
    stages: Sequence[str]
    of_replays: bool = False
    epochs: dict[LaneKey, int] = field(default_factory=dict)
    found: int = 0

    def begin(self, connection: Connection) -> None:
        for *key, epoch in connection.execute(self._query(HELD), [self.pid, list(self.stages)]):
            self.epochs[tuple(key)] = epoch
        self.found = len(self.epochs)

    def taken_up(self, connection: Connection) -> bool:
        if self.epochs:
            keys = list(self.epochs)
            columns = [[key[place] for key in keys] for place in range(4)]
            rows = connection.execute(self._query(STILL_HELD), [*columns, list(self.epochs.values())])
            still = {tuple(row) for row in rows}
            self.epochs = {key: epoch for key, epoch in self.epochs.items() if key in still}
        return not self.epochs

    def _query(self, query: str) -> str:
        return query.format(work=f"NOT {_LIVE} AND {_REPLAYED}" if self.of_replays else _LIVE)


def lanes_held(database_url: str, pid: int) -> int:
    """How many lanes with live work a worker holds; 0 as well where Postgres is away."""
    try:
        with psycopg.connect(database_url, autocommit=True, connect_timeout=2) as connection:
            held = HeldLanes(pid, STAGES)
            held.begin(connection)
            held.taken_up(connection)
            return len(held.epochs)
    except psycopg.Error:
        return 0


def consumed_since(at: float, stages: Collection[str]) -> Callable[[Connection], bool]:
    """Whether a lane was claimed and a receipt written after ``at`` (seconds since the epoch)."""
    params: Mapping[str, Any] = {"at": at, "stages": list(stages)}

    def look(connection: Connection) -> bool:
        ((consumed,),) = connection.execute(CONSUMED_SINCE, params)
        return bool(consumed)

    return look
