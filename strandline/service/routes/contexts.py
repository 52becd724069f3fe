"""Reads for a prompt, searches and summaries."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from strandline.producers.blocks.base import InsertMethod
from strandline.producers.blocks.resolve import pipelines_of
from strandline.producers.memory import SessionMemory, new_session_id
from strandline.producers.reading.read import DEFAULT_WAIT_SECONDS, is_covered, pauses_within
from strandline.producers.reading.summary import Summary
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.wire import acts
from strandline.schemas.wire.contexts import (
    ABOUT_FORM,
    ContextOut,
    ContextRequest,
    Hits,
    LatestSummaryOut,
    LatestSummaryRequest,
    MessagesForm,
    SearchRequest,
    SummaryOut,
)
from strandline.schemas.wire.messages import MessageIn
from strandline.service.answering import Routes
from strandline.service.forms import context_form, freshness, hit_form, json_response
from strandline.service.gate.problems import FORBIDDEN, NOT_FOUND, ProblemError
from strandline.service.params import SessionId
from strandline.service.route import Call

routes = Routes("contexts")

OPERATORS_CHOOSE = "To choose a generation takes a key of the whole namespace with the scope `operate`."

_FOR_LATEST = ContextRequest()


@routes.answer(
    acts.READ_CONTEXT,
    "read",
    "reads",
    ("messages", "facts", "summaries", "names"),
    ContextOut,
    own_turns=True,
)
async def read_context(call: Call, session_id: SessionId, body: ContextRequest = _FOR_LATEST) -> Response:
    """The memory for the next prompt: pinned head, memory, tail and window.

    It never waits for a model, unless `wait_for` asks for it; `caught_up` says whether all was covered.
    """
    if body.generation is not None:
        if not call.caller.may_choose_generations:
            raise ProblemError(FORBIDDEN, detail=OPERATORS_CHOOSE)
    elif body.wait_for is not None:
        await _wait(call, session_id, body.wait_for, begun_only=body.begun_only)
    return await call.service.turns.take(call.asker, _read(call, session_id, body))


@routes.answer(acts.GET_CONTEXT, "read", "reads", ("messages", "facts", "summaries", "names"), ContextOut)
async def get_context(
    call: Call,
    session_id: SessionId,
    input: Annotated[
        str | None, Field(max_length=8_000, description="What to search memory for; default: the latest.")
    ] = None,
    token_limit: Annotated[
        int | None, Field(ge=4, le=2**31 - 1, description="Default: that of the session.")
    ] = None,
    form: Annotated[MessagesForm, Field(description=ABOUT_FORM)] = "stored",
) -> Response:
    """The same, for what fits a query."""
    return await _read(call, session_id, ContextRequest(input=input, token_limit=token_limit, form=form))


@routes.answer(acts.SEARCH, "read", "reads", ("messages", "facts", "names"), Hits)
async def search(call: Call, session_id: SessionId, body: SearchRequest) -> Response:
    """Search messages, and facts if asked for, best first."""
    memory = await _open(call, session_id, begun_only=body.begun_only)
    hits = await memory.asearch(**body.model_dump(exclude={"begun_only"}))
    return await call.aside.run(lambda: json_response({"items": [hit_form(hit) for hit in hits]}))


@routes.answer(acts.SUMMARIZE, "write", "others", ("summaries",), SummaryOut)
async def summarize(call: Call, memory: SessionMemory) -> Summary | None:
    """Deliver the undelivered messages, and give the session's summary as workers have made it so far.

    `Prefer: wait=5` waits for them so long.
    """
    summary = await memory.asummarize(wait=call.wait_seconds)
    await call.check_key()
    return summary


routes.pass_on(
    acts.SUMMARIZE_LAST, "read", "others", ("summaries",), LatestSummaryOut, to=SessionMemory.summarize_last,
    body=LatestSummaryRequest, about=(
        "Have a model summarize the last messages or runs; this process calls it, and the ledger counts it."
    ),
)  # fmt: skip


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
        body.input.openai_form() if isinstance(body.input, MessageIn) else body.input,
        messages=messages,
        initial_token_count=body.initial_token_count,
        wait_for=body.wait_for,
        timeout=0,  # it has waited already, without a place among the reads
        block_arguments=body.block_arguments,
        generation=body.generation,
    )
    call.aside.takes(list(context.messages))

    def write() -> Response:
        form = {**context_form(context, body.form), "session_id": session_id}
        return json_response(form, headers=freshness(context))

    return await call.aside.run(write)


async def _wait(call: Call, session_id: str, seq: int, *, begun_only: bool) -> None:
    """Wait until a session's memory covers ``seq``, or the client waits no longer; a place is for each look.

    A session may begin during the wait.
    """
    turns, identity = call.service.turns, call.caller.session(session_id)
    pauses = pauses_within(call.seconds_to_wait(DEFAULT_WAIT_SECONDS))
    while not await turns.take(call.asker, _covers(call, identity, seq, begun_only=begun_only)):
        seconds = next(pauses, None)
        if seconds is None:
            return
        await asyncio.sleep(seconds)
        await call.check_key()


async def _covers(call: Call, identity: SessionIdentity, seq: int, *, begun_only: bool) -> bool:
    try:
        record = await call.service.records.find(identity)
    except ProblemError as problem:
        if begun_only or problem.kind is not NOT_FOUND:
            raise
        return False
    pipelines = pipelines_of(record.blocks)
    return not pipelines or await call.run(is_covered(identity, pipelines, seq, call.service.resources.ring))


async def _open(
    call: Call,
    session_id: str,
    *,
    begun_only: bool,
    token_limit: int | None = None,
    insert_method: InsertMethod = InsertMethod.SYSTEM,
) -> SessionMemory:
    """The memory of a session; with ``begun_only`` unset, an empty one for a missing session.

    The empty one has a random name: another user's session looks the same as a missing one.
    """
    records = call.service.records
    try:
        return await records.open(
            call.caller.session(session_id), token_limit=token_limit, insert_method=insert_method
        )
    except ProblemError as problem:
        if begun_only or problem.kind is not NOT_FOUND:
            raise
    identity = call.caller.session(new_session_id())
    return records.begin(identity, token_limit=token_limit, insert_method=insert_method)
