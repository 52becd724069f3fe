"""Events of namespaces for listeners: one poller a process for all of them.

The poller reads flushes, the ends of pipelines and changes of derivations by the times that their rows bear,
since numbers that are taken before a commit cannot be followed.  So no state of open work is needed: an end
is seen whenever it comes.  An event's id is the time up to which all is told; a client that returns with it
gets the later events: an event may come twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from uuid import UUID

from strandline.producers.execution import Resources
from strandline.schemas.errors import StrandlineError
from strandline.schemas.queries.application.service import Happenings, HappeningsRow, Settled, SettledRow
from strandline.schemas.wire.operations import EventOut
from strandline.service.gate.limits import Asker
from strandline.service.gate.turns import endless_queue

logger = logging.getLogger("strandline.service")

POLL_SECONDS = 0.5
# Each look reads the last second once more, for concurrent commits ...
SOON_SECONDS = 1.0
# ... and an occasional look goes back to the oldest possible events.
DEEP_SECONDS = 5.0
# An open writing transaction is waited for, but no longer than a minute; one hidden from this role has ten
# seconds.
LATE_SECONDS = 10.0
LATEST_SECONDS = 60.0
ROWS_PER_PAGE = 1_000
MAX_RESUMED_SECONDS = 86_400.0
# After a restart all streams come back at once; they take turns, each with a part of its missed events, and
# tenants and their keys do, so that the streams of one delay another's by one part.
RESUMED_AT_ONCE = 2
SPAN = timedelta(minutes=10)
# A listener that is behind by so many loses its stream, and comes back with its last id.
MAX_WAITING = 1_000
# Of more than so many it is forgotten that they were told, so that they may be told twice.
MAX_TOLD = 100_000
# After so long without an event a stream says where it is.
PING_SECONDS = 15.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_UUID = UUID(int=2**128 - 1)
_LAST_GENERATION = 2**31 - 1
_TICK = timedelta(microseconds=1)

Told = tuple[str, EventOut]


@dataclass(eq=False, slots=True)
class Listener:
    """One stream: the events of a namespace, one of its users, its data without a user, or one session."""

    namespace: str
    key_id: str
    user_id: str | None = None
    without_user: bool = False
    session_key: UUID | None = None
    # All that it may hear of and that happened up to this time was told.
    through: datetime = _EPOCH
    is_resumed: bool = False
    # All that happened up to this time could be read when it came.
    came_at: datetime = _EPOCH
    waiting: deque[tuple[datetime, EventOut]] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    is_behind: bool = False

    def hears(self, row: HappeningsRow) -> bool:
        """Whether an event is one of those it listens to; changes of derivations are everybody's."""
        return row.namespace is None or (
            row.namespace == self.namespace
            and self.user_id in (None, row.user_id)
            and not (self.without_user and row.user_id is not None)
            and self.session_key in (None, row.session_key)
        )

    def tell(self, through: datetime, event: EventOut) -> None:
        if len(self.waiting) >= MAX_WAITING:
            self.is_behind = True
        else:
            self.waiting.append((through, event))
        self.arrived.set()

    def with_id(self, through: datetime, event: EventOut) -> Told:
        """An event, with the id of how far this one was told; that never goes back."""
        self.through = max(self.through, through)
        return _id_of(self.through), event

    def position(self) -> Told:
        """How far it was told, as an event of its own."""
        return _id_of(self.through), EventOut(kind="position", at=self.through)


class EventHub:
    """The listeners of a process, and the poller that feeds them; for one event loop."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._listeners: set[Listener] = set()
        self._last_told: dict[tuple[UUID, int], datetime] = {}
        # The clock at the last look; and up to when all was told.
        self._looked_at: datetime | None = None
        self._settled: datetime | None = None
        self._deep_at = 0.0
        self._poller: asyncio.Task[None] | None = None
        self._resuming = endless_queue(RESUMED_AT_ONCE, per_namespace=RESUMED_AT_ONCE)
        self.looks = 0

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def is_polling(self) -> bool:
        return self._poller is not None

    async def place(self, listener: Listener, last_event_id: str | None) -> None:
        """Let a listener begin now, or behind an id, at most a day ago.

        Raises:
            ValueError: ``last_event_id`` is not the id of an event.
            StrandlineError: the database cannot be asked.
        """
        since = None if last_event_id is None else _time_of(last_event_id)
        clock = await self._clock()
        listener.through = listener.came_at = clock.settled
        if since is not None:
            listener.is_resumed = True
            oldest = clock.at - timedelta(seconds=MAX_RESUMED_SECONDS)
            listener.through = min(max(since, oldest), clock.settled)

    async def listen(self, listener: Listener) -> AsyncGenerator[Told | None, None]:
        """First its position, then the events; None now and then, so that the caller can look around."""
        self._listeners.add(listener)
        try:
            if self._poller is None:
                # Also if the first looks fail, all from here on is told.
                self._settled = listener.came_at
                self._poller = asyncio.create_task(self._poll())
            yield listener.position()
            if listener.is_resumed:
                try:
                    async for event in self._catch_up(listener):
                        yield event
                except StrandlineError as error:
                    _note(error)
                    return  # it comes back with its last id
            said_at = monotonic()
            while True:
                while listener.waiting:
                    yield listener.with_id(*listener.waiting.popleft())
                    said_at = monotonic()
                if listener.is_behind:
                    return
                listener.through = max(listener.through, self._settled or listener.through)
                if monotonic() - said_at >= PING_SECONDS:
                    yield listener.position()
                    said_at = monotonic()
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
        failure: type[Exception] | None = None
        try:
            while self._listeners:
                began = monotonic()
                try:
                    await self._look()
                    failure = None
                except Exception as error:  # noqa: BLE001  # the outermost edge of a task's work
                    if failure is not type(error):
                        _note(error)
                    failure = type(error)
                await asyncio.sleep(max(0.05, POLL_SECONDS - (monotonic() - began)))
        finally:
            # The next listener begins with the state then; no listener missed the events between.
            self._poller = None
            self._looked_at, self._settled = None, None
            self._last_told.clear()

    async def _look(self) -> None:
        clock = await self._clock()
        settled = self._settled or clock.settled
        is_deep = self._looked_at is None or monotonic() - self._deep_at >= DEEP_SECONDS
        since = settled
        if self._looked_at is not None and not is_deep:
            since = max(settled, self._looked_at - timedelta(seconds=SOON_SECONDS))
        # Whoever came before the clock was read is among them; for others the next look goes back behind it.
        namespaces = sorted({listener.namespace for listener in self._listeners})
        async for rows in self._pages(namespaces, since, until=clock.at):
            for row in filter(self._is_new, rows):
                event = _event_of(row)
                for listener in self._listeners:
                    if listener.hears(row):
                        listener.tell(settled, event)
        self._looked_at = clock.at
        if is_deep:
            self._settled, self._deep_at = clock.settled, monotonic()
            self._forget(clock.settled)
        self.looks += 1

    def _is_new(self, row: HappeningsRow) -> bool:
        """Whether it was not told yet; an end that came once more is another one."""
        key = row.event_id, row.generation_id
        told_at = self._last_told.get(key)
        self._last_told[key] = row.at
        return told_at is None or told_at < row.at

    def _forget(self, settled: datetime) -> None:
        for key, at in list(self._last_told.items()):
            if at <= settled:
                del self._last_told[key]
        while len(self._last_told) > MAX_TOLD:
            del self._last_told[next(iter(self._last_told))]

    async def _catch_up(self, listener: Listener) -> AsyncIterator[Told]:
        """Events since the listener left, by time; the poller tells it concurrent ones."""
        clock = await self._clock()
        pages = self._pages(
            [listener.namespace],
            listener.through,
            until=clock.at,
            session_key=listener.session_key,
            asker=Asker(listener.namespace, listener.key_id),
        )
        async for rows in pages:
            for row in filter(listener.hears, rows):
                # Others may bear the same time.
                yield listener.with_id(min(row.at - _TICK, clock.settled), _event_of(row))
        listener.through = max(listener.through, clock.settled)

    async def _pages(
        self,
        namespaces: list[str],
        since: datetime,
        *,
        until: datetime,
        session_key: UUID | None = None,
        asker: Asker | None = None,
    ) -> AsyncIterator[list[HappeningsRow]]:
        """The events between two times, page by page; ``asker``: whose turns they wait for."""
        database = await self._resources.async_database()
        place = since, _LAST_UUID, _LAST_GENERATION
        while place < (until, _LAST_UUID, _LAST_GENERATION):
            end = min(place[0] + SPAN, until)
            page = Happenings(
                namespaces=namespaces,
                session_key=session_key,
                since=place[0],
                after_event=place[1],
                after_generation=place[2],
                until=end,
                limit=ROWS_PER_PAGE,
            )
            async with nullcontext() if asker is None else self._resuming.turn(asker):
                rows = await database.fetch(page)
            yield rows
            place = end, _LAST_UUID, _LAST_GENERATION
            if len(rows) == ROWS_PER_PAGE:
                place = rows[-1].at, rows[-1].event_id, rows[-1].generation_id

    async def _clock(self) -> SettledRow:
        database = await self._resources.async_database()
        (clock,) = await database.fetch(Settled(late_seconds=LATE_SECONDS, latest_seconds=LATEST_SECONDS))
        return clock


def _note(error: Exception) -> None:
    extra = {"action": "events_failed", "reason": type(error).__name__}
    logger.warning("events could not be read", extra=extra)


def _event_of(row: HappeningsRow) -> EventOut:
    event_id = None if row.kind == "generation" else row.event_id
    generation = None if row.kind == "flushed" else row.generation_id
    return EventOut(**{**row._asdict(), "event_id": event_id, "generation": generation})


def _id_of(at: datetime) -> str:
    return str((at - _EPOCH) // _TICK)


def _time_of(event_id: str) -> datetime:
    if not is_event_id(event_id):
        raise ValueError("not the id of an event")
    return _EPOCH + int(event_id) * _TICK


def is_event_id(text: str) -> bool:
    """Whether a text has the form of an event's id."""
    return text.isascii() and text.isdigit() and len(text) <= 17
