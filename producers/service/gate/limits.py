"""Admission: how many requests of a class are worked on at once, and how many may wait, for how long.

A request that is not admitted costs nothing but its headers: it is refused before its body is read.  Those
that wait take turns by key, so one client's thousand requests delay another's by one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass

from strandline.producers.service.gate.problems import BUSY, TOO_MANY, ProblemError


@dataclass(frozen=True, slots=True)
class ClassLimits:
    """The bounds of one class of routes.

    Attributes:
        at_once: requests that are worked on.
        waiting: requests that may wait for one of these.
        waiting_per_key: those of one key among them.
        wait_seconds: how long one waits at most.
        at_once_per_key: of those that are worked on, how many may be of one key; None: all.
    """

    at_once: int
    waiting: int
    waiting_per_key: int
    wait_seconds: float
    at_once_per_key: int | None = None


class Admission:
    """The permits of one class of routes; for one event loop."""

    def __init__(self, limits: ClassLimits) -> None:
        self._limits = limits
        self._at_work = 0
        self._at_work_of: Counter[str] = Counter()
        # Of each key, in the order in which the keys have their turn.
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._waiting = 0

    @property
    def at_work(self) -> int:
        """Requests that have a permit."""
        return self._at_work

    @property
    def queue_length(self) -> int:
        """Requests that wait for one."""
        return self._waiting

    def permit(self, key_id: str) -> Permit:
        """Hold a permit within ``async with``.

        Raises:
            ProblemError: too many wait, of this key or in all, or none became free in time.
        """
        return Permit(self, key_id)

    async def take(self, key_id: str) -> None:
        """Take a permit, which ``give_back`` ends."""
        if self._at_work < self._limits.at_once and key_id not in self._queues and self._has_share(key_id):
            self._begin(key_id)
        else:
            await self._wait(key_id)

    def _has_share(self, key_id: str) -> bool:
        """Whether one more of a key may be worked on."""
        most = self._limits.at_once_per_key
        return most is None or self._at_work_of[key_id] < most

    def _begin(self, key_id: str) -> None:
        self._at_work += 1
        self._at_work_of[key_id] += 1

    async def _wait(self, key_id: str) -> None:
        queue = self._queues.get(key_id)
        if queue is not None and len(queue) >= self._limits.waiting_per_key:
            raise ProblemError(TOO_MANY)
        if self._waiting >= self._limits.waiting:
            raise ProblemError(BUSY if self._has_share(key_id) else TOO_MANY)
        if queue is None:
            queue = self._queues[key_id] = deque()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limits.wait_seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(key_id)  # it was handed over in this very moment
            else:
                self._leave(key_id, turn)
            if isinstance(error, TimeoutError):
                raise ProblemError(BUSY) from None
            raise

    def _leave(self, key_id: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(key_id)
        if queue is not None and turn in queue:
            queue.remove(turn)
            self._waiting -= 1
            if not queue:
                del self._queues[key_id]

    def give_back(self, key_id: str) -> None:
        """Free a permit, and hand it to the oldest request of the next key that has not its share yet."""
        self._at_work -= 1
        self._at_work_of[key_id] -= 1
        if not self._at_work_of[key_id]:
            del self._at_work_of[key_id]
        for waiting in list(self._queues):
            if self._has_share(waiting) and self._hand_to(waiting):
                return

    def _hand_to(self, key_id: str) -> bool:
        """Hand a permit to the oldest request of a key; False: all of them have been cancelled."""
        queue = self._queues.pop(key_id)
        while queue:
            turn = queue.popleft()
            self._waiting -= 1
            if not turn.done():  # else it has been cancelled, and its task has not learnt it yet
                if queue:
                    self._queues[key_id] = queue  # at the end: the other keys come first
                self._begin(key_id)
                turn.set_result(None)
                return True
        return False


class Permit:
    """One permit, held within ``async with``."""

    __slots__ = ("_admission", "_key_id")

    def __init__(self, admission: Admission, key_id: str) -> None:
        self._admission = admission
        self._key_id = key_id

    async def __aenter__(self) -> None:
        await self._admission.take(self._key_id)

    async def __aexit__(self, *_: object) -> None:
        self._admission.give_back(self._key_id)
