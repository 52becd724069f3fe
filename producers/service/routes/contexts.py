"""Reads for a prompt, searches and summaries."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from strandline.producers.blocks.base import InsertMethod
from strandline.producers.memory import SessionMemory, new_session_id
from strandline.producers.service.forms import context_form, freshness, hit_form, json_response
from strandline.producers.service.gate.problems import NOT_FOUND, ProblemError
from strandline.producers.service.params import SessionId, make_router
from strandline.producers.service.records import default_policy
from strandline.producers.service.route import Call, access, call_of
from strandline.schemas.wire.contexts import (
    ABOUT_FORM,
    ContextOut,
    ContextRequest,
    Hits,
    LatestSummaryOut,
    LatestSummaryRequest,
    LatestSummaryText,
    MessagesForm,
    SearchRequest,
    SummaryOut,
    SummaryText,
)
from strandline.schemas.wire.messages import MessageIn

router = make_router()

_FOR_LATEST = ContextRequest()


@router.post("/v1/sessions/{session_id}/context", tags=["contexts"], response_model=ContextOut)
@access("read", "reads", user=True, direct=True)
async def read_context(
    request: Request, session_id: SessionId, body: ContextRequest = _FOR_LATEST
) -> Response:
    """The memory for the next prompt: pinned head, memory, what is not derived from yet, and the window.

    It never waits for a model, unless `wait_for` asks for it; `caught_up` says whether all was covered.
    """
    return await _read(call_of(request), session_id, body)


@router.get("/v1/sessions/{session_id}/context", tags=["contexts"], response_model=ContextOut)
@access("read", "reads", user=True)
async def get_context(
    request: Request,
    session_id: SessionId,
    input: Annotated[
        str | None, Query(max_length=8_000, description="What to search memory for; default: the latest.")
    ] = None,
    token_limit: Annotated[
        int | None, Query(ge=4, le=2**31 - 1, description="Default: that of the session.")
    ] = None,
    form: Annotated[MessagesForm, Query(description=ABOUT_FORM)] = "stored",
) -> Response:
    """The same, for what fits a query."""
    return await _read(
        call_of(request), session_id, ContextRequest(input=input, token_limit=token_limit, form=form)
    )


@router.post("/v1/sessions/{session_id}/search", tags=["contexts"], response_model=Hits)
@access("read", "reads", user=True, direct=True)
async def search(request: Request, session_id: SessionId, body: SearchRequest) -> Response:
    """Search messages, and facts if asked for, best first."""
    call = call_of(request)
    memory = await _open(call, session_id, begun_only=body.begun_only)
    hits = await memory.asearch(
        body.query,
        limit=body.limit,
        scope=body.scope,
        exclude_current=body.exclude_current,
        include_window=body.include_window,
        kinds=body.kinds,
    )
    return json_response({"items": [hit_form(hit) for hit in hits]})


@router.post("/v1/sessions/{session_id}/summary", tags=["contexts"])
@access("write", "others", user=True, idempotent="same")
async def summarize(request: Request, session_id: SessionId) -> SummaryOut:
    """Deliver what was not delivered yet, and give the session's summary, as far as workers are with it.

    `Prefer: wait=5` waits for them so long.
    """
    call = call_of(request)
    memory = await call.service.records.open(call.caller.session(session_id))
    summary = await memory.asummarize(wait=call.wait_seconds)
    return SummaryOut(summary=None if summary is None else SummaryText.model_validate(summary))


@router.post("/v1/sessions/{session_id}/summary/latest", tags=["contexts"])
@access("read", "others", user=True)
async def summarize_last(
    request: Request, session_id: SessionId, body: LatestSummaryRequest
) -> LatestSummaryOut:
    """Have a model summarize the last messages or runs; this process calls it, and the ledger counts it."""
    call = call_of(request)
    memory = await call.service.records.open(call.caller.session(session_id))
    summary = await memory.asummarize_last(body.messages, runs=body.runs, instructions=body.instructions)
    return LatestSummaryOut(summary=None if summary is None else LatestSummaryText.model_validate(summary))


async def _read(call: Call, session_id: str, body: ContextRequest) -> Response:
    memory = await _open(
        call,
        session_id,
        token_limit=body.token_limit,
        insert_method=InsertMethod(body.insert_method),
        begun_only=body.begun_only,
    )
    messages = None if body.messages is None else [message.openai_form() for message in body.messages]
    context = await memory.aget(
        _input(body),
        messages=messages,
        initial_token_count=body.initial_token_count + _withheld(memory, body.token_limit),
        wait_for=body.wait_for,
        timeout=None if body.wait_for is None else call.wait_seconds,
        block_arguments=body.block_arguments,
    )
    form = {**context_form(context, body.form), "session_id": session_id}
    return json_response(form, headers=freshness(context))


async def _open(
    call: Call,
    session_id: str,
    *,
    begun_only: bool,
    token_limit: int | None = None,
    insert_method: InsertMethod = InsertMethod.SYSTEM,
) -> SessionMemory:
    """The memory of a session; of one that the caller does not have, if asked for, an empty one.

    The empty one has a random name: another user's session gives the same as one that does not exist.
    """
    records = call.service.records
    try:
        return await records.open(
            call.caller.session(session_id), token_limit=token_limit, insert_method=insert_method
        )
    except ProblemError as problem:
        if begun_only or problem.kind is not NOT_FOUND:
            raise
    policy = default_policy()
    if token_limit is not None and token_limit > policy.token_limit:
        policy = replace(policy, token_limit=token_limit)
    return records.begin(call.caller.session(new_session_id()), policy)


def _withheld(memory: SessionMemory, token_limit: int | None) -> int:
    """What a read within fewer tokens than the session's own leaves of these: the window is cut to fit."""
    return 0 if token_limit is None else max(0, memory.token_limit - token_limit)


def _input(body: ContextRequest) -> Any:
    return body.input.openai_form() if isinstance(body.input, MessageIn) else body.input
