"""Events as they happen: streams of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.wire import acts
from strandline.service.answering import Routes
from strandline.service.events import Listener, is_event_id
from strandline.service.gate.problems import invalid
from strandline.service.route import Call

routes = Routes("events")

RETRY_MILLISECONDS = 1_000
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": (
            "Events: `flushed`, `covered`, `dead`, `generation`, and `position`, which tells how far the"
            " stream is: at its beginning, and when nothing else was told for 15 s."
            "  The data of each is `EventOut`."
        ),
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "x-strandline-data": {"$ref": "#/components/schemas/EventOut"},
            }
        },
    }
}


class EventStream(StreamingResponse):
    """A stream of events, which nothing between may keep back."""

    media_type = "text/event-stream"


@routes.answer(acts.NAMESPACE_EVENTS, "read", "streams", ("names",), responses=_STREAM)
async def namespace_events(request: Request, call: Call) -> EventStream:
    """The events of the namespace, of a user, or, with `Strandline-User: -`, of sessions without a user.

    The first event is a `position`, so that a stream has an id before anything happens.
    `Last-Event-ID` resumes: what came after that event is told, perhaps some of it again, for a day.
    """
    listener = Listener(call.caller.tenant, call.caller.key_id, **call.caller.whose)
    return await _stream(call, request, listener)


@routes.answer(acts.SESSION_EVENTS, "read", "streams", ("names",), responses=_STREAM)
async def session_events(request: Request, call: Call, identity: SessionIdentity) -> EventStream:
    """The events of one session; `Last-Event-ID` resumes."""
    await call.service.records.find(identity)
    listener = Listener(
        identity.namespace, call.caller.key_id, **call.caller.whose, session_key=identity.session_key
    )
    return await _stream(call, request, listener)


async def _stream(call: Call, request: Request, listener: Listener) -> EventStream:
    last = request.headers.get("last-event-id")
    if last is not None and not is_event_id(last):
        raise invalid("/header/Last-Event-ID", "It must be the id of an event that this service sent.")
    await call.service.events.place(listener, last)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventStream(_events_of(call, listener), headers=headers)


async def _events_of(call: Call, listener: Listener) -> AsyncIterator[bytes]:
    """The events as text."""
    yield f": listening\nretry: {RETRY_MILLISECONDS}\n\n".encode()
    async with aclosing(call.service.events.listen(listener)) as events:
        async for item in events:
            if call.service.is_stopping or not await call.goes_on():
                return
            if item is not None:
                event_id, event = item
                data = event.model_dump_json(exclude_none=True)
                yield f"event: {event.kind}\ndata: {data}\nid: {event_id}\n\n".encode()
