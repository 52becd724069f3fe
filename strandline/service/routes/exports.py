"""Everything that is kept about a user or a session, as a stream of lines of JSON."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from strandline.pipelines.upkeep.erasure.target import own_session_target
from strandline.producers.exports.export import aexport_lines
from strandline.producers.exports.pages import ExportTarget
from strandline.schemas.errors import StrandlineError
from strandline.schemas.wire import acts
from strandline.service.answering import Routes
from strandline.service.gate.bodies import ClientGone
from strandline.service.params import SessionId, UserId
from strandline.service.route import Call

logger = logging.getLogger("strandline.service")

routes = Routes("erasures")

# So many bytes are read before they are sent: messages to the server are dear, lines are short.
CHUNK_BYTES = 65_536

_LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One JSON object a line; without the `trailer`, the last line, it is not whole.",
        "content": {"application/jsonl": {"schema": {"type": "string"}}},
    }
}


class ExportStream(StreamingResponse):
    """Lines of JSON, whose end says that they are whole."""

    media_type = "application/jsonl"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts; however this ends, the parts hold nothing afterwards."""
        async with aclosing(cast(AsyncGenerator[bytes, None], self.body_iterator)):
            await super().__call__(scope, receive, send)


@routes.answer(
    acts.EXPORT_USER,
    "erase",
    "streams",
    ("messages", "facts", "summaries", "items", "names", "operators"),
    responses=_LINES,
)
async def export_user(call: Call, user: UserId) -> ExportStream:
    """Everything that is kept about a user: messages, facts with histories, states, answers, calls.

    The last line counts the others; without it the export is not whole.  Four at most run in a
    process, two of them for one key.
    """
    owner = call.caller.owner(user)
    return await _stream(call, ExportTarget(owner.namespace, owner.shard_key, user, None), None)


@routes.answer(
    acts.EXPORT_SESSION,
    "erase",
    "streams",
    ("messages", "facts", "summaries", "names", "operators"),
    responses=_LINES,
)
async def export_session(call: Call, session_id: SessionId) -> ExportStream:
    """Everything that is kept about one session, in the same form."""
    whole = await call.run(own_session_target(call.caller.session(session_id)))
    target = ExportTarget(whole.namespace, whole.owner_key, whole.user_id, whole.session_key)
    return await _stream(call, target, session_id)


async def _stream(call: Call, target: ExportTarget, session_id: str | None) -> ExportStream:
    """The response, once its first part is read: until then a refusal can still be told."""
    parts = _parts(call, aexport_lines(call.service.runner, target, session_id))
    first = await anext(parts)
    return ExportStream(_all_parts(call, first, parts), headers={"Cache-Control": "no-store"})


async def _all_parts(
    call: Call, first: bytes, parts: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """All parts; at an error, or when the key has ended, the connection ends without the last line."""
    async with aclosing(parts):  # its place is free at once, however this ends
        yield first
        try:
            async for part in parts:
                if not await call.goes_on():
                    raise _broken_off("its key has ended")
                yield part
        except StrandlineError as error:
            raise _broken_off(type(error).__name__) from None


def _broken_off(reason: str) -> ClientGone:
    logger.warning("an export broke off", extra={"action": "export_broke_off", "reason": reason})
    return ClientGone()


async def _parts(call: Call, lines: AsyncGenerator[str, None]) -> AsyncGenerator[bytes, None]:
    # Each reads a page after the other, and takes its turn for that among the reads.
    async with call.service.exports.permit(call.asker), aclosing(lines):
        while part := await call.service.turns.take(call.asker, _read(lines)):
            yield part


async def _read(lines: AsyncIterator[str]) -> bytes:
    """The next lines, up to a size; empty at the end."""
    part = bytearray()
    async for line in lines:
        part += line.encode() + b"\n"
        if len(part) >= CHUNK_BYTES:
            break
    return bytes(part)
