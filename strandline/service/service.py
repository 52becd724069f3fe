"""Shared by a process's requests: resources, keys, permits, policies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any

from strandline.erasure import signer_of, verifier_of
from strandline.producers.execution import OperationRunner, Resources
from strandline.schemas.queries.application.service import FindServiceKeys, FindServiceKeysRow
from strandline.schemas.settings import Settings
from strandline.service.access import Queue
from strandline.service.carried_work import CarriedErasures, CarriedReplays
from strandline.service.events import EventHub
from strandline.service.gate.authentication import KeyRing
from strandline.service.gate.deadlines import Threads
from strandline.service.gate.limits import Admission, ClassLimits
from strandline.service.gate.turns import Aside, Turns
from strandline.service.records import SessionRecords

if TYPE_CHECKING:
    from strandline.producers.tools.mcp_http import HttpTools

# Requests about keys, of their own: a key that floods a process can be revoked through it.
KEYS_AT_ONCE = 4
# Large bodies in hand of a class of routes, in bodies of the most bytes: a key has half of it, as of all.
LARGE_BODIES_AT_ONCE = 8
# How long an answer about readiness is good for.
READY_FOR_SECONDS = 0.5
# Forks that are copied, in addition to the permits of writes: a request of some bytes has Postgres write
# megabytes.
COPIES = ClassLimits(
    at_once=4, waiting=128, wait_seconds=10.0, at_once_per_key=1, waiting_per_key=32, at_once_per_namespace=2
)
# In addition to the permits of streams.  A client may read slowly, so no tenant has all of them.
EXPORTS = ClassLimits(at_once=4, waiting=0, wait_seconds=1.0, at_once_per_key=2, at_once_per_namespace=3)


class Service:
    """Shared by all requests of one process and its event loop; without the SDK there are no tools."""

    def __init__(self, resources: Resources, tools: HttpTools | None = None) -> None:
        self.resources = resources
        # At once: a service whose key cannot be read should not begin.
        key_file = self.settings.receipt_key_file
        self.signer = signer_of(self.settings)
        self.verifier = None if key_file is None else verifier_of(key_file)
        self.replays = CarriedReplays(self.settings)
        self.events = EventHub(resources)
        self.runner = OperationRunner(resources)
        self.erasures = CarriedErasures(self.runner, self.signer)
        self.exports = Admission(EXPORTS)
        self.copies = Admission(COPIES)
        self.keys = KeyRing(self._look_up)
        self.records = SessionRecords(resources)
        self.is_stopping = False  # from the signal on
        self.readiness = Readiness()
        # The permits of each class of routes.
        self.admissions = {queue: Admission(limits) for queue, limits in _limits(self.settings).items()}
        writes = self.admissions["writes"]
        # Reads never have so many of the pool's connections that a put waits for them.
        self.turns = Turns(max(1, self.settings.pool_max_size // 2), lambda: writes.at_work)
        self.tools = tools
        self.aside = Aside()
        # Of these classes some block; each has its permit until its thread has ended.
        self.threads = Threads(self.settings.service_reads_at_once + self.settings.service_others_at_once)

    @property
    def settings(self) -> Settings:
        return self.resources.settings

    async def _look_up(self, query: FindServiceKeys) -> list[FindServiceKeysRow]:
        database = await self.resources.async_database()
        return await database.fetch(query)


class Readiness:
    """The obstacles to answering: one look for all that ask within half a second, key or no key."""

    def __init__(self) -> None:
        self._look: asyncio.Task[str | None] | None = None
        self._ends_at = 0.0

    async def tell(self, look: Callable[[], Coroutine[Any, Any, str | None]]) -> str | None:
        """The reason that ``look`` found, now or a moment ago; None: there is none."""
        if self._look is None or (self._look.done() and monotonic() >= self._ends_at):
            self._look = asyncio.create_task(look())
            self._look.add_done_callback(self._note_end)
        return await asyncio.shield(self._look)

    def _note_end(self, _done: object) -> None:
        self._ends_at = monotonic() + READY_FOR_SECONDS


def _limits(settings: Settings) -> dict[Queue, ClassLimits]:
    at_once: dict[Queue, int] = {
        "reads": settings.service_reads_at_once,
        "writes": settings.service_writes_at_once,
        "others": settings.service_others_at_once,
        "keys": KEYS_AT_ONCE,
        "streams": settings.service_streams_at_once,
    }
    waiting = settings.service_queue_length
    max_bytes = LARGE_BODIES_AT_ONCE * settings.service_max_body_bytes
    return {
        queue: ClassLimits(
            at_once=number,
            waiting=0 if queue == "streams" else waiting,
            wait_seconds=settings.service_queue_seconds,
            at_once_per_key=_share(number, settings.service_key_share),
            waiting_per_key=_share(waiting, settings.service_key_share),
            at_once_per_namespace=_share(number, settings.service_namespace_share),
            waiting_per_namespace=_share(waiting, settings.service_namespace_share),
            max_bytes=max_bytes,
            bytes_per_key=_share(max_bytes, settings.service_key_share),
            bytes_per_namespace=_share(max_bytes, settings.service_namespace_share),
        )
        for queue, number in at_once.items()
    }


def _share(number: int, share: float) -> int:
    return max(1, int(number * share))
