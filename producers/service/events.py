"""What happens in namespaces, for those who listen: one poller a process, however many they are.

The poller reads flush events by their time, since numbers that are taken before a commit cannot be followed,
and looks how pipelines stand with those that are not covered yet.  An event's id is the time up to which all
is told; whoever comes back with it hears again what came after: an event may come twice, and none is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from uuid import UUID

from strandline.producers.execution import Resources
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.async_database import AsyncDatabase
from strandline.schemas.queries.application.service import (
    FlushOutcomes,
    GenerationStates,
    Now,
    RecentFlushes,
    RecentFlushesRow,
)
from strandline.schemas.wire.operations import EventOut

logger = logging.getLogger("strandline.service")

POLL_SECONDS = 0.5
# A transaction may commit so long after the time that its event bears.
LATE_SECONDS = 10.0
# After so long an event that no pipeline has covered is not looked at any more.
MAX_OPEN_SECONDS = 3_600.0
MAX_OPEN = 10_000
FLUSHES_PER_POLL = 1_000
MAX_RESUMED_SECONDS = 86_400.0
# A listener that is behind by so many loses its stream, and comes back with its last id.
MAX_WAITING = 1_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_UUID = UUID(int=2**128 - 1)

Told = tuple[str, EventOut]


@dataclass(slots=True)
class _Open:
    """A flush event, and the pipelines whose end of it was told."""

    row: RecentFlushesRow
    pipelines_told: set[str] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class Listener:
    """One stream: the events of a namespace, of one of its users, of what has no user, or of one session."""

    namespace: str
    user_id: str | None = None
    without_user: bool = False
    session_key: UUID | None = None
    waiting: deque[Told] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    is_behind: bool = False

    def hears(self, row: RecentFlushesRow) -> bool:
        """Whether an event is one of those it listens to."""
        return (
            row.namespace == self.namespace
            and self.user_id in (None, row.user_id)
            and not (self.without_user and row.user_id is not None)
            and self.session_key in (None, row.session_key)
        )

    def tell(self, event_id: str, event: EventOut) -> None:
        if len(self.waiting) >= MAX_WAITING:
            self.is_behind = True
        else:
            self.waiting.append((event_id, event))
        self.arrived.set()


class EventHub:
    """The listeners of a process, and the poller that feeds them; for one event loop."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._listeners: set[Listener] = set()
        self._open: dict[UUID, _Open] = {}
        self._seen: dict[UUID, datetime] = {}
        self._generations: dict[int, str] | None = None
        self._through: datetime | None = None
        self._poller: asyncio.Task[None] | None = None

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    async def listen(self, listener: Listener, last_event_id: str | None) -> AsyncIterator[Told | None]:
        """The events from now on, or since an id; None now and then, so that the caller can look around.

        Raises:
            ValueError: ``last_event_id`` is not the id of an event.
        """
        since = None if last_event_id is None else _time_of(last_event_id)
        self._listeners.add(listener)
        try:
            if self._poller is None:
                self._poller = asyncio.create_task(self._poll())
            if since is not None:
                async for event in self._catch_up(listener, since):
                    yield event
            while not listener.is_behind:
                while listener.waiting:
                    yield listener.waiting.popleft()
                listener.arrived.clear()
                try:
                    async with asyncio.timeout(1.0):
                        await listener.arrived.wait()
                except TimeoutError:
                    yield None
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)

    async def _poll(self) -> None:
        """Look again and again while anybody listens."""
        try:
            while self._listeners:
                began = monotonic()
                try:
                    await self._look()
                except StrandlineError as error:
                    logger.warning(
                        "events could not be read",
                        extra={"action": "events_failed", "reason": type(error).__name__},
                    )
                await asyncio.sleep(max(0.05, POLL_SECONDS - (monotonic() - began)))
        finally:
            # The next listener begins with what is then; nobody was told of what came between.
            self._poller = None
            self._through, self._generations = None, None
            self._open.clear()
            self._seen.clear()

    async def _look(self) -> None:
        database = await self._resources.async_database()
        (clock,) = await database.fetch(Now())
        if self._through is None:
            self._through = clock.at
        await self._tell_generations(database, clock.at)
        namespaces = sorted({listener.namespace for listener in self._listeners})
        since = self._through - timedelta(seconds=LATE_SECONDS)
        async for rows in _pages(database, namespaces, None, since, until=clock.at):
            self._tell_flushed([row for row in rows if row.event_id not in self._seen])
        self._through = clock.at
        await self._tell_outcomes(database, clock.at)
        self._forget(clock.at)

    def _tell_flushed(self, rows: list[RecentFlushesRow]) -> None:
        for row in rows:
            self._seen[row.event_id] = row.created_at
            self._open[row.event_id] = _Open(row)
        position = self._position()
        for row in rows:
            self._tell(row, position, _flush_event(row))

    async def _tell_outcomes(self, database: AsyncDatabase, now: datetime) -> None:
        position = self._position()
        rows_open = [one.row for one in self._open.values()]
        for start in range(0, len(rows_open), FLUSHES_PER_POLL):
            rows = rows_open[start : start + FLUSHES_PER_POLL]
            for pipeline, outcome, row in await _outcomes(database, rows):
                known = self._open.get(row.event_id)
                if known is not None and outcome != "due" and pipeline not in known.pipelines_told:
                    known.pipelines_told.add(pipeline)
                    self._tell(row, position, _end_event(row, pipeline, outcome, now))

    async def _tell_generations(self, database: AsyncDatabase, now: datetime) -> None:
        rows = await database.fetch(GenerationStates())
        states = {row.generation_id: row.state for row in rows}
        if self._generations is not None and states != self._generations:
            position = self._position()
            for row in rows:
                if self._generations.get(row.generation_id) != row.state:
                    event = EventOut(
                        kind="generation",
                        at=now,
                        pipeline=row.pipeline,
                        generation=row.generation_id,
                        state=row.state,
                    )
                    for listener in self._listeners:
                        listener.tell(position, event)
        self._generations = states

    def _tell(self, row: RecentFlushesRow, position: str, event: EventOut) -> None:
        for listener in self._listeners:
            if listener.hears(row):
                listener.tell(position, event)

    def _position(self) -> str:
        """The time up to which all that happened was told, as the id of what is told next.

        It is found once for many events, since it asks all that are open.
        """
        surely = (self._through or datetime.now(UTC)) - timedelta(seconds=LATE_SECONDS)
        return _id_of(min([surely, *(_before(one.row) for one in self._open.values())]))

    def _forget(self, now: datetime) -> None:
        pipelines = MAX_OPEN_SECONDS
        for event_id, one in list(self._open.items()):
            if (now - one.row.created_at).total_seconds() > pipelines:
                del self._open[event_id]
        while len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]
        old = now - timedelta(seconds=3 * LATE_SECONDS)
        for event_id, at in list(self._seen.items()):
            if at < old and event_id not in self._open:
                del self._seen[event_id]

    async def _catch_up(self, listener: Listener, since: datetime) -> AsyncIterator[Told]:
        """What happened since, for a listener that comes back; what has not ended yet is followed on."""
        database = await self._resources.async_database()
        (clock,) = await database.fetch(Now())
        since = max(since, clock.at - timedelta(seconds=MAX_RESUMED_SECONDS))
        surely = clock.at - timedelta(seconds=LATE_SECONDS)
        async for rows in _pages(database, [listener.namespace], listener.session_key, since, until=clock.at):
            heard = [row for row in rows if listener.hears(row)]
            ends: dict[UUID, dict[str, str]] = {row.event_id: {} for row in heard}
            for pipeline, outcome, row in await _outcomes(database, heard):
                ends[row.event_id][pipeline] = outcome
            for row in heard:
                ended = {pipeline: how for pipeline, how in ends[row.event_id].items() if how != "due"}
                if len(ended) < len(ends[row.event_id]):
                    surely = min(surely, _before(row))
                    if len(self._open) < MAX_OPEN:
                        self._open.setdefault(row.event_id, _Open(row, set(ended)))
                event_id = _id_of(min(row.created_at, surely))
                yield event_id, _flush_event(row)
                for pipeline, how in ended.items():
                    yield event_id, _end_event(row, pipeline, how, clock.at)


async def _pages(
    database: AsyncDatabase,
    namespaces: list[str],
    session_key: UUID | None,
    since: datetime,
    *,
    until: datetime,
) -> AsyncIterator[list[RecentFlushesRow]]:
    """Flush events since a time, page by page, at least as far as those of ``until``.

    What is written meanwhile bears a later time, so the pages come to an end however much that is.
    """
    after = _LAST_UUID
    while True:
        rows = await database.fetch(
            RecentFlushes(
                namespaces=namespaces,
                session_key=session_key,
                since=since,
                after=after,
                limit=FLUSHES_PER_POLL,
            )
        )
        yield rows
        if len(rows) < FLUSHES_PER_POLL or rows[-1].created_at > until:
            return
        since, after = rows[-1].created_at, rows[-1].event_id


async def _outcomes(
    database: AsyncDatabase, rows: Iterable[RecentFlushesRow]
) -> list[tuple[str, str, RecentFlushesRow]]:
    by_place = {(row.session_key, row.from_seq): row for row in rows}
    if not by_place:
        return []
    rows_of_ends = await database.fetch(
        FlushOutcomes(
            shard_keys=[row.shard_key for row in by_place.values()],
            session_keys=[row.session_key for row in by_place.values()],
            from_seqs=[row.from_seq for row in by_place.values()],
        )
    )
    return [(one.pipeline, one.outcome, by_place[one.session_key, one.from_seq]) for one in rows_of_ends]


def _flush_event(row: RecentFlushesRow) -> EventOut:
    return EventOut(
        kind="flushed",
        at=row.created_at,
        session_id=row.session_id,
        user_id=row.user_id,
        event_id=row.event_id,
        from_seq=row.from_seq,
        through_seq=row.through_seq,
        cause=row.cause,
    )


def _end_event(row: RecentFlushesRow, pipeline: str, outcome: str, at: datetime) -> EventOut:
    return EventOut(
        kind="dead" if outcome == "dead" else "covered",
        at=at,
        session_id=row.session_id,
        user_id=row.user_id,
        event_id=row.event_id,
        from_seq=row.from_seq,
        through_seq=row.through_seq,
        pipeline=pipeline,
    )


def _before(row: RecentFlushesRow) -> datetime:
    """The time from which on a flush event is told again."""
    return row.created_at - timedelta(microseconds=1)


def _id_of(at: datetime) -> str:
    return str((at - _EPOCH) // timedelta(microseconds=1))


def _time_of(event_id: str) -> datetime:
    if not is_event_id(event_id):
        raise ValueError("not the id of an event")
    return _EPOCH + timedelta(microseconds=int(event_id))


def is_event_id(text: str) -> bool:
    """Whether a text has the form of an event's id."""
    return text.isascii() and text.isdigit() and len(text) <= 17
