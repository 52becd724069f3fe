"""Events as they happen: streams of server-sent events that resume by themselves."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Generator
from typing import Any

import httpx2
from pydantic import ValidationError

from strandline.client.operations import Call
from strandline.client.problems import Refusal, unreadable
from strandline.client.service import RemoteService
from strandline.schemas.errors import ConfigurationError, ServiceUnavailableError
from strandline.schemas.wire.operations import EventOut

# The service says something every 15 seconds; after this long the connection is dead.
SILENT_SECONDS = 45.0


# Of others, which a newer service may tell, the ids count alone.
_KINDS = frozenset({"flushed", "covered", "dead", "generation"})


class ServiceEvent(EventOut):
    """An event, with the id after which a later stream resumes.

    An event may come twice, and none is missing within a day of lost connections.
    """

    id: str


class _Stream:
    def __init__(self, service: RemoteService, path: str, user_id: str | None, last_id: str | None) -> None:
        if last_id is not None and not isinstance(last_id, str):
            raise ConfigurationError("last_event_id must be the id of an event, which is a string.")
        self._service, self._path, self._user_id = service, path, user_id
        self.call = Call("GET", path, user_id=user_id)
        self._last_id = last_id
        self._retries = service.retries.of_streams()
        self._failures = 0
        self._failing_since = 0.0
        self._connected_at: float | None = None

    def request(self) -> dict[str, Any]:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        self.call = Call("GET", self._path, user_id=self._user_id, headers=headers)
        sent = self._service.request_of(self.call)
        times = self._service.timeouts
        sent["timeout"] = httpx2.Timeout(
            connect=times.connect, read=SILENT_SECONDS, write=times.write, pool=times.pool
        )
        return sent

    def note_connected(self) -> None:
        self._connected_at = time.monotonic()

    def read(self, event: httpx2.ServerSentEvent) -> ServiceEvent | None:
        """The event; None for another application's."""
        # Where the service says that the stream is, before anything happens and while nothing does.
        if event.id and event.id.isascii() and event.id.isprintable():  # as a header can say it
            self._last_id = event.id
        if event.event not in _KINDS or not event.data:
            return None
        self._failures = 0
        try:
            event_out = EventOut.model_validate_json(event.data)
        except ValidationError as error:
            raise unreadable(error) from None
        return ServiceEvent(id=self._last_id or "", **event_out.model_dump())

    def wait_after(self, refused: Refusal | None) -> float:
        """How long to wait before the next connection; raises an error if there is none."""
        if refused is not None and refused.failure is None:
            raise refused.error
        now = time.monotonic()
        # A silent connection that held ends the row of failures; a short one counts to it.
        connected_at, self._connected_at = self._connected_at, None
        if connected_at is not None and now - connected_at > self._retries.longest_seconds:
            self._failures = 0
        self._failing_since = now if self._failures == 0 else self._failing_since
        self._failures += 1
        wait = self._retries.wait_seconds(
            "always",
            "not_done",
            attempt=self._failures,
            spent_seconds=now - self._failing_since,
            retry_after=None if refused is None else refused.retry_after,
            random=random.random,
        )
        if wait is not None:
            return wait
        if refused is not None:
            raise refused.error
        raise ServiceUnavailableError(
            f"The stream of events at {self._service.url} cannot be had; check that the service runs."
        )


def follow(
    service: RemoteService, path: str, user_id: str | None, last_event_id: str | None
) -> Generator[ServiceEvent, None, None]:
    """The events at a path, until the caller stops; raises the error of a final refusal."""
    stream = _Stream(service, path, user_id, last_event_id)
    while True:
        refused: Refusal | None = None
        try:
            with service.client().stream(**stream.request()) as response:
                if response.is_success:
                    stream.note_connected()
                    for sent in httpx2.EventSource(response):
                        event = stream.read(sent)
                        if event is not None:
                            yield event
                else:
                    refused = service.refusal(stream.call, response)
        except httpx2.RequestError:
            pass
        time.sleep(stream.wait_after(refused))


async def follow_async(
    service: RemoteService, path: str, user_id: str | None, last_event_id: str | None
) -> AsyncGenerator[ServiceEvent, None]:
    """Async twin of ``follow``."""
    stream = _Stream(service, path, user_id, last_event_id)
    while True:
        refused: Refusal | None = None
        try:
            async with service.aclient().stream(**stream.request()) as response:
                if response.is_success:
                    stream.note_connected()
                    async for sent in httpx2.EventSource(response):
                        event = stream.read(sent)
                        if event is not None:
                            yield event
                else:
                    refused = await service.arefusal(stream.call, response)
        except httpx2.RequestError:
            pass
        await asyncio.sleep(stream.wait_after(refused))
