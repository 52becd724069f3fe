"""Erasures: begun, followed, verified, and what comes after one."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID, uuid4

from pydantic import Field
from starlette.responses import Response

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.upkeep.erasure.records import (
    ErasureRecord,
    find_erasure,
    list_erasures,
    readmit,
    show_erasure,
)
from strandline.pipelines.upkeep.erasure.steps import ErasureOrder
from strandline.pipelines.upkeep.erasure.target import ErasureTarget, own_session_target, user_target
from strandline.producers.erasing.erase import plan_erasure
from strandline.producers.namespace_erasures import NamespaceErasures, item_ranges
from strandline.schemas.postgres.operations import fetch
from strandline.schemas.queries.conversation.sessions import UserIsKnown
from strandline.schemas.values.identity import SessionIdentity, kept_request_key
from strandline.schemas.wire import acts
from strandline.schemas.wire.base import Page
from strandline.schemas.wire.erasures import (
    ErasureIn,
    ErasureOut,
    ErasureReport,
    ErasureVerdictOut,
    PlannedErasureOut,
    ReadmissionIn,
    ReceiptReport,
)
from strandline.service.answering import Routes
from strandline.service.forms import json_response, page_within
from strandline.service.gate.authentication import OF_ONE_USER
from strandline.service.gate.problems import FORBIDDEN, NOT_FOUND, ProblemError, invalid
from strandline.service.params import Cursor, PageSize, SessionId, UserId, read_number_cursor
from strandline.service.route import Call

routes = Routes("erasures")

_LIST = "erasures"
# Bodies of requests that name no person.
_NO_NAME, _BY_NOBODY = ErasureIn(), ReadmissionIn()
OF_NOBODY = (
    "Nothing is stored of a user of this name, which may be misspelt; nothing was erased. To keep the name"
    " away all the same, give `even_if_unknown`."
)
ITEMS_ARE_SHARED = "`items_below` names items of the whole namespace; this is the key of one user."

Number = Annotated[int, Field(ge=1, le=2**31 - 1, description="The number of the erasure.")]
_BEGUN: dict[int | str, dict[str, Any]] = {
    200: {"model": ErasureOut, "description": "It is done: now, or since an earlier request."},
    202: {"model": ErasureOut, "description": "The fence stands; the erasure continues."},
}


@routes.answer(acts.ERASE_USER, "erase", "others", ("operators",), ErasureOut, status=202, responses=_BEGUN)
async def erase_user(call: Call, user: UserId, body: ErasureIn = _NO_NAME) -> Response:
    """Erase a user for good; from the answer on, nothing can be written for them.

    The rest is deleted afterwards: `Location` says how far it is, and `Prefer: wait=5` waits for its end.
    Asking again resumes an erasure that was interrupted, and returns a finished one.
    If nothing is stored for the user, the name may be misspelt: 404, unless `even_if_unknown` is given.
    """
    owner = call.caller.owner(user)
    if body.items_below and call.caller.is_bound:
        raise ProblemError(FORBIDDEN, detail=ITEMS_ARE_SHARED)
    return await _erase(call, user_target(owner.namespace, user), body)


@routes.answer(
    acts.ERASE_SESSION, "erase", "others", ("operators",), ErasureOut, status=202, responses=_BEGUN
)
async def erase_session(call: Call, identity: SessionIdentity, body: ErasureIn = _NO_NAME) -> Response:
    """Erase one session for good, and of its user what only this session gave; as for a user."""
    if body.items_below:
        raise invalid("/body/items_below", "Items belong to no session.")
    target = await call.run(own_session_target(identity))
    return await _erase(call, target, body)


@routes.answer(acts.USER_ERASURES, "erase", "others", ("operators",))
async def user_erasures(
    call: Call, user: UserId, limit: PageSize = 100, cursor: Cursor = None
) -> Page[ErasureReport]:
    """The erasures and readmissions of one user and of their sessions, newest first."""
    owner = call.caller.owner(user)
    return await _list(call, f"{_LIST}/{owner.shard_key}", limit, cursor, owner.shard_key)


@routes.answer(acts.PLAN_USER, "erase", "others")
async def plan_user(call: Call, user: UserId) -> PlannedErasureOut:
    """Count the rows that an erasure of the user would delete now, by table; nothing is changed."""
    return await _plan(call, user_target(call.caller.owner(user).namespace, user))


@routes.answer(acts.PLAN_SESSION, "erase", "others")
async def plan_session(call: Call, session_id: SessionId) -> PlannedErasureOut:
    """Count the rows that an erasure of the session would delete now, by table; nothing is changed."""
    target = await call.run(own_session_target(call.caller.session(session_id)))
    return await _plan(call, target)


@routes.answer(acts.READMIT_USER, "operate", "others", ("operators",), status=201)
async def readmit_user(call: Call, user: UserId, body: ReadmissionIn = _BY_NOBODY) -> ReceiptReport:
    """Accept an erased user again, who begins with nothing; 404 if no fence keeps them away."""
    owner = call.caller.owner(user)
    return await _readmit(call, user_target(owner.namespace, user), body)


@routes.answer(acts.READMIT_SESSION, "operate", "others", ("operators",), status=201)
async def readmit_session(
    call: Call, session_id: SessionId, body: ReadmissionIn = _BY_NOBODY
) -> ReceiptReport:
    """Let the id of an erased session be used again by its owner; 404 if no fence keeps it away."""
    target = await call.run(own_session_target(call.caller.session(session_id)))
    return await _readmit(call, target, body)


@routes.answer(acts.GET_ERASURES, "erase", "others", ("operators",), holder="namespace")
async def get_erasures(call: Call, limit: PageSize = 100, cursor: Cursor = None) -> Page[ErasureReport]:
    """The erasures and readmissions of the namespace, newest first; for a key that is not one user's."""
    return await _list(call, _LIST, limit, cursor, None)


@routes.answer(acts.GET_ERASURE, "erase", "others", ("operators",))
async def get_erasure(call: Call, number: Number) -> ErasureOut:
    """One erasure: how far it is, and its receipt when it is done."""
    return _form(call, await _find(call, number))


@routes.answer(acts.GET_RECEIPT, "erase", "others", ("operators",), ReceiptReport)
async def get_receipt(call: Call, number: Number) -> Response:
    """The receipt as it is stored: a line for the file that is kept outside; 404 until it is there."""
    record = await _find(call, number)
    if record.receipt is None:
        raise ProblemError(NOT_FOUND)
    return Response(record.receipt.to_json(), media_type="application/json")


@routes.answer(acts.VERIFY_ERASURE, "erase", "others")
async def verify_erasure(call: Call, number: Number) -> ErasureVerdictOut:
    """Whether the receipt is as the service signed it, whether the fence stands, and which data came back."""
    record = await _find(call, number)
    if record.receipt is None:
        raise ProblemError(NOT_FOUND)
    erasures = NamespaceErasures(call.service.resources, call.caller.tenant)
    verdict = await erasures.averify(record.receipt, call.service.verifier)
    return ErasureVerdictOut(
        number=number, signature=verdict.signature, fence=verdict.fence, rows=verdict.rows or {}
    )


async def _erase(call: Call, target: ErasureTarget, body: ErasureIn) -> Response:
    number = await _find_begun(call, target)
    carried = call.service.erasures
    if number is None:
        await _refuse_unknown(call, target, body)
        act = Act.here("erasure", actor=body.actor, detail=_place(call))
        order = ErasureOrder(
            target,
            act.named_actor,
            item_ranges(body.items_below),
            act=act,
            erasure_id=_erasure_id(call, target),
        )
        number = await carried.begin(order)
        call.service.records.forget_owner(target.owner_key)
    if call.wait_seconds:
        await carried.wait(number, call.wait_seconds)
    record = await call.run(show_erasure(number))
    form = _form(call, record).model_dump(mode="json")
    status = 202 if record.receipt is None else 200
    return json_response(form, status, {"Location": f"/v1/erasures/{number}"})


async def _refuse_unknown(call: Call, target: ErasureTarget, body: ErasureIn) -> None:
    """Raise a problem for an unknown user: a fence for a misspelt name protects no user."""
    if not target.is_whole_owner or call.caller.is_bound or body.items_below or body.even_if_unknown:
        return
    known = UserIsKnown(namespace=target.namespace, user_id=target.user_id or "", owner_key=target.owner_key)
    (row,) = await call.run(fetch(known))
    # All rows are counted only for names that the directory lacks.
    if not row.known and (await call.run(plan_erasure(target))).is_of_nobody:
        raise ProblemError(NOT_FOUND, detail=OF_NOBODY)


def _place(call: Call) -> dict[str, str] | None:
    """Where it was asked from, for the trail; not of a user's own key, whose address is the user's."""
    caller = call.caller
    return None if caller.is_bound or caller.origin is None else {"origin": caller.origin}


async def _find_begun(call: Call, target: ErasureTarget) -> int | None:
    """The finished erasure that this Idempotency-Key began: a user readmitted since stays."""
    if call.idempotency_key is None:
        return None
    record = await call.run(find_erasure(erasure_id=_erasure_id(call, target)))
    return None if record is None or record.state == "running" else record.number


def _erasure_id(call: Call, target: ErasureTarget) -> UUID:
    key = call.idempotency_key
    if key is None:
        return uuid4()
    # Two users may have had a session of the same name, one after the other.
    return kept_request_key(call.caller.tenant, f"{call.route} {target.owner_key}", key)


async def _plan(call: Call, target: ErasureTarget) -> PlannedErasureOut:
    planned = await call.run(plan_erasure(target))
    return PlannedErasureOut(rows=dict(planned.rows), erased_by=planned.erased_by)


async def _readmit(call: Call, target: ErasureTarget, body: ReadmissionIn) -> ReceiptReport:
    if call.caller.is_bound:
        raise ProblemError(FORBIDDEN, detail=OF_ONE_USER)
    receipt = await call.run(readmit(target, body.actor, call.service.signer))
    return ReceiptReport.model_validate(receipt)


async def _list(
    call: Call, name: str, limit: int, cursor: str | None, owner_key: UUID | None
) -> Page[ErasureReport]:
    before = read_number_cursor(name, cursor)
    if before >= 2**31:
        before = 0  # no erasure has such a number
    records = await call.run(list_erasures(call.caller.tenant, limit + 1, before or None, owner_key))
    return page_within(ErasureReport, records, limit, name, lambda one: one.number)


async def _find(call: Call, number: int) -> ErasureRecord:
    """An erasure of the caller's; raises a problem for an unknown one, and for another's."""
    caller = call.caller
    record = await call.run(show_erasure(number, caller.tenant))
    if caller.is_bound and record.owner_key != caller.owner(caller.user_id or "").shard_key:
        raise ProblemError(NOT_FOUND)
    return record


def _form(call: Call, record: ErasureRecord) -> ErasureOut:
    carried = call.service.erasures
    return ErasureOut.of(
        record, is_running=carried.is_running(record.number), failed=carried.reason(record.number)
    )
