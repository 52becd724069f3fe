"""Corrections of a session's log: its end taken back, a message given other content."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from strandline.schemas.wire.messages import CorrectionOut, MessageOut, ReplaceMessage, RewindRequest
from strandline.schemas.wire.sessions import PopOut
from strandline.service.access import Access
from strandline.service.forms import message_form
from strandline.service.idempotency import once
from strandline.service.params import SeqPath, SessionId, make_router
from strandline.service.route import call_of

router = make_router()


@router.delete("/v1/sessions/{session_id}/messages/last", tags=["corrections"], response_model=PopOut)
@Access("write", "writes", ("messages",), takes_user=True, idempotent="kept")
async def pop_message(request: Request, session_id: SessionId) -> Response:
    """Remove the newest message and give it back; null if none is left.  Its number is not used again."""
    call = call_of(request)
    identity = call.caller.session(session_id)
    memory = await call.service.records.open(identity)

    async def work(connection: object | None) -> PopOut:
        message = await memory.apop(connection=connection)
        return PopOut(message=None if message is None else MessageOut.model_validate(message_form(message)))

    return await once(call, identity.shard_key, work, content_of=identity.session_key)


@router.post("/v1/sessions/{session_id}/rewind", tags=["corrections"])
@Access("write", "writes", (), takes_user=True, idempotent="own")
async def rewind_session(request: Request, session_id: SessionId, body: RewindRequest) -> CorrectionOut:
    """Take back every message from a number on, with all derivations; no copy is kept."""
    call = call_of(request)
    memory = await call.service.records.open(call.caller.session(session_id))
    correction = await memory.arewind(body.from_seq, actor=body.actor, idempotency_key=call.idempotency_key)
    return CorrectionOut.model_validate(correction)


@router.put("/v1/sessions/{session_id}/messages/{seq}/content", tags=["corrections"])
@Access("write", "writes", (), takes_user=True, idempotent="own")
async def replace_content(
    request: Request, session_id: SessionId, seq: SeqPath, body: ReplaceMessage
) -> CorrectionOut:
    """Give a message other content at the same place; memory of the old content is derived again."""
    call = call_of(request)
    memory = await call.service.records.open(call.caller.session(session_id))
    correction = await memory.areplace(
        seq, body.content, actor=body.actor, idempotency_key=call.idempotency_key
    )
    return CorrectionOut.model_validate(correction)
