"""Putting messages, the log as it is, and its corrections."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from strandline.pipelines.audit.appending import Act
from strandline.producers.blocks.base import BaseMemoryBlock
from strandline.producers.blocks.resolve import max_facts_of, pipelines_of
from strandline.producers.memory import SessionMemory
from strandline.producers.reading.history import HistoryRequest as NewestRequest
from strandline.producers.reading.history import newest_history, newest_that_fit
from strandline.producers.runs.run import RunHistoryRequest as RunHistory
from strandline.producers.runs.run import SessionRun
from strandline.producers.runs.run import run_history as messages_of_runs
from strandline.producers.search.message_filter import MessageFilter
from strandline.producers.sessions import HISTORY_PAGE_BYTES, history_part
from strandline.producers.tokens import DEFAULT_ENCODING
from strandline.schemas.errors import ConflictError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message
from strandline.schemas.values.policy import Policy, make_policy
from strandline.schemas.wire import acts
from strandline.schemas.wire.base import MAX_SEQ, Page, ProblemPlace
from strandline.schemas.wire.messages import (
    CorrectionOut,
    HistoryRequest,
    MessageOut,
    MessagePlace,
    MessagesPut,
    PutMessages,
    ReplaceMessage,
    RewindRequest,
    RunHistoryQuery,
    RunOut,
    RunRequest,
)
from strandline.schemas.wire.policies import PolicyIn
from strandline.schemas.wire.sessions import PopOut
from strandline.service.answering import Routes
from strandline.service.forms import json_response, message_form, message_forms
from strandline.service.gate.problems import CONFLICT, KEY_REUSED, ProblemError
from strandline.service.idempotency import message_id
from strandline.service.params import Cursor, PageSize, RunId, SessionId, cursor_of, read_number_cursor
from strandline.service.records import SessionRecords
from strandline.service.route import Call

routes = Routes("messages")
runs = Routes("runs")
corrections = Routes("corrections")

_LOG = "messages"


@routes.answer(acts.PUT_MESSAGES, "write", "writes", status=201)
async def put_messages(call: Call, session_id: SessionId, body: PutMessages) -> MessagesPut:
    """Append messages to a session; it begins with its first put.

    The response comes when they are committed.  Repeated with the same `Idempotency-Key`, or with ids of the
    messages' own, it adds nothing and gives the same numbers; an id used with other content is a conflict.
    A key fixes each message by its place, not their number: further messages are appended.
    A message that was taken back or deleted since is put again.
    The key of one user begins sessions in the shared scopes alone that it names.
    """
    records = call.service.records
    identity = call.caller.session(session_id)
    call.caller.check_shared_scope(None if body.policy is None else body.policy.shared_scope)
    memory = records.begin(identity, *_policy(records, body.policy))
    messages = [message.openai_form() for message in body.messages]
    for index, message in enumerate(messages):
        if message.get("id") is None:
            message["id"] = message_id(call, index)
    try:
        seqs = await memory.aput_messages(messages, replace_prompt=body.replace_prompt)
    except ConflictError as error:
        raise _of_put(error, body, [message["id"] for message in messages]) from None
    places = zip(messages, seqs, strict=True)
    return MessagesPut(messages=[MessagePlace(id=message["id"], seq=seq) for message, seq in places])


@routes.answer(acts.LIST_MESSAGES, "read", "reads", ("messages",), Page[MessageOut])
async def list_messages(
    call: Call,
    identity: SessionIdentity,
    limit: PageSize = 100,
    cursor: Cursor = None,
    after_seq: Annotated[int, Field(ge=0, le=MAX_SEQ, description="Only messages with a higher number.")] = 0,
) -> Response:
    """The whole log in order, flushed messages included, page by page."""
    await call.service.records.find(identity)
    after = max(after_seq, read_number_cursor(_LOG, cursor))
    listing = call.recorder(identity).read(
        Act.here("history"),
        history_part(identity, after, limit + 1),
        lambda act, part: replace(act, count=min(len(part[0]), limit)),
    )
    messages, more = await call.run(listing)
    page = messages[:limit]
    following = cursor_of(_LOG, page[-1].seq or 0) if more else None
    return await _respond(call, page, following)


@routes.answer(acts.HISTORY, "read", "reads", ("messages",), Page[MessageOut])
async def history(call: Call, identity: SessionIdentity, body: HistoryRequest) -> Response:
    """The newest messages that pass all filters, in order; `offset` leaves out so many of the newest."""
    await call.service.records.find(identity)
    filters = MessageFilter.check(body.roles, body.metadata, body.since, body.until)
    newest = newest_history(
        NewestRequest(identity, filters, body.limit, body.offset, max_bytes=HISTORY_PAGE_BYTES)
    )
    return await _read(call, identity, newest)


@routes.answer(acts.CONTEXT_WINDOW, "read", "reads", ("messages",), Page[MessageOut])
async def context_window(
    call: Call,
    identity: SessionIdentity,
    max_tokens: Annotated[int, Field(ge=0, le=2**31 - 1, description="Their tokens together.")] = 4_000,
) -> Response:
    """The newest messages that fit, in order, without derived memory; calls and results are together.

    They end with the message that fills 4 MB.
    """
    await call.service.records.find(identity)
    newest = newest_that_fit(identity, max_tokens, HISTORY_PAGE_BYTES)
    return await _read(call, identity, newest)


@runs.answer(acts.PUT_RUN, "write", "writes", (), RunOut)
async def put_run(call: Call, session_id: SessionId, run_id: RunId, body: RunRequest) -> SessionRun:
    """Put the messages of an agent's run; the same id again replaces the run."""
    memory = call.service.records.begin(call.caller.session(session_id))
    messages = [message.openai_form() for message in body.messages]
    return await memory.aadd_run(run_id, messages, **body.model_dump(exclude={"messages"}))


@runs.answer(acts.RUN_HISTORY, "read", "reads", ("messages",), Page[MessageOut])
async def run_history(call: Call, identity: SessionIdentity, body: RunHistoryQuery) -> Response:
    """The messages of the last runs, in the order of the runs."""
    await call.service.records.find(identity)
    messages = messages_of_runs(RunHistory(identity, **body.model_dump(), max_bytes=HISTORY_PAGE_BYTES))
    return await _read(call, identity, messages)


@corrections.answer(acts.POP_MESSAGE, "write", "writes", ("messages",))
async def pop_message(memory: SessionMemory, connection: object | None) -> PopOut:
    """Remove the newest message and give it back; null if none is left.  Its number is not used again."""
    message = await memory.apop(connection=connection)
    return PopOut(message=None if message is None else MessageOut.model_validate(message_form(message)))


corrections.pass_on(
    acts.REWIND_SESSION, "write", "writes", (), CorrectionOut, to=SessionMemory.rewind, body=RewindRequest,
    about="Take back every message from a number on, with all derivations; no copy is kept.",
)  # fmt: skip
corrections.pass_on(
    acts.REPLACE_CONTENT, "write", "writes", (), CorrectionOut, to=SessionMemory.replace, body=ReplaceMessage,
    about="Give a message other content at the same place; memory of the old content is derived again.",
)  # fmt: skip


async def _read(call: Call, identity: SessionIdentity, reading: Operation[list[Message]]) -> Response:
    listing = call.recorder(identity).record_read("history", reading)
    return await _respond(call, await call.run(listing))


async def _respond(call: Call, messages: list[Message], next_cursor: str | None = None) -> Response:
    """A page of messages; a large one is written off the event loop."""
    call.aside.takes(messages)
    return await call.aside.run(
        lambda: json_response({"items": message_forms(messages), "next_cursor": next_cursor})
    )


def _of_put(error: ConflictError, body: PutMessages, ids: list[str]) -> ProblemError:
    """The problem of a put whose ids were used: which message it is, and whether its id is the request's own.

    An id that follows from the Idempotency-Key was used because the key was.
    """
    if error.message_id not in ids:
        return ProblemError(CONFLICT, detail=error.for_clients)
    index = ids.index(error.message_id)
    if body.messages[index].id is None:
        place = ProblemPlace(pointer=f"/body/messages/{index}", detail="That request had another here.")
        return ProblemError(KEY_REUSED, places=[place])
    place = ProblemPlace(pointer=f"/body/messages/{index}/id", detail="It is another message's.")
    return ProblemError(CONFLICT, detail=error.for_clients, places=[place])


def _policy(
    records: SessionRecords, policy_in: PolicyIn | None
) -> tuple[Policy | None, tuple[BaseMemoryBlock, ...] | None]:
    """The policy and blocks of a put that may begin a session; None: the default ones."""
    if policy_in is None:
        return None, None
    blocks = records.declare(policy_in.blocks, policy_in.max_facts)
    policy = make_policy(
        **policy_in.model_dump(exclude={"blocks", "max_facts"}),
        tokenizer=DEFAULT_ENCODING,
        pipelines=pipelines_of(blocks),
        max_facts=max_facts_of(blocks),
    )
    return policy, blocks
