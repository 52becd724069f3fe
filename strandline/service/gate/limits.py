"""Admission: how many requests of a class are worked on at once, and how many may wait, for how long.

A request that is not admitted costs nothing but its headers: it is refused before its body is read.  Those
that wait take turns, first by namespace and then by key: a thousand requests of one client, or a hundred keys
of one tenant, delay another tenant's request by one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from strandline.service.gate.problems import BUSY, TOO_MANY, ProblemError

# A key whose share is waiting is refused after this delay: a hundred connections that retry at once would
# keep the loop busy with refusals.
REFUSAL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class ClassLimits:
    """The bounds of one class of routes: in all, of one key and of one namespace (None: as of all)."""

    at_once: int
    waiting: int
    wait_seconds: float
    at_once_per_key: int | None = None
    waiting_per_key: int | None = None
    at_once_per_namespace: int | None = None
    waiting_per_namespace: int | None = None
    max_bytes: int = 0
    bytes_per_key: int = 0
    bytes_per_namespace: int = 0


class Asker(NamedTuple):
    """Who asks for permits: a key, of a namespace or (None) of the whole installation."""

    namespace: str | None
    key_id: str


class _Tally:
    """The total, and the counts of each key and each namespace; zeros take no memory."""

    def __init__(self) -> None:
        self.total = 0
        self._of: Counter[Asker | str | None] = Counter()

    def change(self, asker: Asker, by: int) -> None:
        self.total += by
        for name in (asker, asker.namespace):
            self._of[name] += by
            if not self._of[name]:
                del self._of[name]

    def has_room(self, asker: Asker, per_key: int | None, per_namespace: int | None, more: int = 1) -> bool:
        """Whether neither its key nor its namespace has more than it may with so many more."""
        return (per_key is None or self._of[asker] + more <= per_key) and (
            per_namespace is None or self._of[asker.namespace] + more <= per_namespace
        )


# Who waits, each with the bytes of its body.
_Queue = deque[tuple["asyncio.Future[None]", int]]


class Admission:
    """The permits of one class of routes; for one event loop."""

    def __init__(self, limits: ClassLimits) -> None:
        self._limits = limits
        self._working = _Tally()
        self._bytes = _Tally()
        self._waiting = _Tally()
        # Of each namespace, and there of each key, in the order in which they have their turn.
        self._queues: OrderedDict[str | None, OrderedDict[Asker, _Queue]] = OrderedDict()

    @property
    def at_work(self) -> int:
        """Requests that have a permit."""
        return self._working.total

    @property
    def queue_length(self) -> int:
        """Requests that wait for one."""
        return self._waiting.total

    def permit(self, asker: Asker, size: int = 0) -> Permit:
        """Hold a permit within ``async with``; ``size``: the bytes of a large body, which have shares too.

        Raises:
            ProblemError: too many wait, of this key, of its namespace or in all, or none became free in time.
        """
        return Permit(self, asker, min(size, self._limits.bytes_per_key))

    async def take(self, asker: Asker, size: int = 0) -> None:
        """Take a permit, which ``give_back`` ends."""
        is_first = asker not in self._queues.get(asker.namespace, ())
        if is_first and self._has_share(asker, size):
            self._count(asker, 1, size)
        else:
            await self._wait(asker, size)

    def give_back(self, asker: Asker, size: int = 0) -> None:
        """Free a permit."""
        self._count(asker, -1, -size)
        self._hand_on()

    @asynccontextmanager
    async def turn(self, asker: Asker) -> AsyncIterator[None]:
        """Hold a permit that is not a request's within ``async with``."""
        await self.take(asker)
        try:
            yield
        finally:
            self.give_back(asker)

    def _count(self, asker: Asker, by: int, size: int) -> None:
        self._working.change(asker, by)
        if size:
            self._bytes.change(asker, size)

    def _hand_on(self) -> None:
        """Hand free permits to the next namespaces, and there to the next keys, that have a share left."""
        while self._queues and any(
            self._hand_to(waiting) for queues in list(self._queues.values()) for waiting in list(queues)
        ):
            pass

    def _has_share(self, asker: Asker, size: int) -> bool:
        """Whether one more of an asker may be worked on."""
        limits = self._limits
        if self.at_work >= limits.at_once or self._is_over_share(asker):
            return False
        return not size or (
            self._bytes.total + size <= limits.max_bytes
            and self._bytes.has_room(asker, limits.bytes_per_key, limits.bytes_per_namespace, size)
        )

    def _is_over_share(self, asker: Asker) -> bool:
        limits = self._limits
        return not self._working.has_room(asker, limits.at_once_per_key, limits.at_once_per_namespace)

    async def _wait(self, asker: Asker, size: int) -> None:
        limits = self._limits
        if not self._waiting.has_room(asker, limits.waiting_per_key, limits.waiting_per_namespace):
            await asyncio.sleep(REFUSAL_SECONDS)
            raise ProblemError(TOO_MANY)
        if self.queue_length >= limits.waiting:
            raise ProblemError(TOO_MANY if self._is_over_share(asker) else BUSY)
        turn = self._enter(asker, size)
        try:
            async with asyncio.timeout(limits.wait_seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(asker, size)  # it was handed over in this very moment
            else:
                self._leave(asker, turn)
            if isinstance(error, TimeoutError):
                raise ProblemError(BUSY) from None
            raise

    def _enter(self, asker: Asker, size: int) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(asker.namespace, OrderedDict()).setdefault(asker, deque()).append(
            (turn, size)
        )
        self._waiting.change(asker, 1)
        return turn

    def _leave(self, asker: Asker, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(asker.namespace, OrderedDict()).get(asker, deque())
        for waiting in [one for one in queue if one[0] is turn]:
            queue.remove(waiting)
            self._waiting.change(asker, -1)
            self._drop_if_empty(asker)
            self._hand_on()  # what stood behind it may be smaller

    def _hand_to(self, asker: Asker) -> bool:
        """Hand a permit to the oldest request of a key, if it has a share left that suffices."""
        queues = self._queues[asker.namespace]
        queue = queues[asker]
        while queue and queue[0][0].done():  # it has been cancelled, and its task has not learnt it yet
            queue.popleft()
            self._waiting.change(asker, -1)
        is_handed = bool(queue) and self._has_share(asker, queue[0][1])
        if is_handed:
            turn, size = queue.popleft()
            self._waiting.change(asker, -1)
            self._count(asker, 1, size)
            turn.set_result(None)
            queues.move_to_end(asker)  # the others come first
            self._queues.move_to_end(asker.namespace)
        self._drop_if_empty(asker)
        return is_handed

    def _drop_if_empty(self, asker: Asker) -> None:
        queues = self._queues[asker.namespace]
        if not queues[asker]:
            del queues[asker]
        if not queues:
            del self._queues[asker.namespace]


_HELD: ContextVar[Permit] = ContextVar("held")


class Permit:
    """One permit, held within ``async with``."""

    __slots__ = ("_admission", "_asker", "_size", "_work")

    def __init__(self, admission: Admission, asker: Asker, size: int) -> None:
        self._admission = admission
        self._asker = asker
        self._size = size
        self._work: asyncio.Future[Any] | None = None

    async def __aenter__(self) -> None:
        await self._admission.take(self._asker, self._size)
        _HELD.set(self)

    async def __aexit__(self, *_: object) -> None:
        if self._work is None or self._work.done():
            self._give_back()
        else:
            self._work.add_done_callback(self._give_back)

    def _give_back(self, _done: object = None) -> None:
        self._admission.give_back(self._asker, self._size)

    def lasts_until(self, work: asyncio.Future[Any]) -> None:
        """Keep the permit, also when the block has ended, until this has."""
        self._work = work


def held_permit() -> Permit | None:
    """The permit of the request that this task works on."""
    return _HELD.get(None)
