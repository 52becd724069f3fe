"""Sessions: lists, the state of one, its policy, flushes, resets, forks."""

from __future__ import annotations

from functools import partial
from math import inf

from starlette.responses import Response

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.inspect.sessions import SessionPicture, list_sessions, show_session
from strandline.pipelines.upkeep.policies import RetentionLevel, record_retention
from strandline.producers.blocks.resolve import max_facts_of, pipelines_of
from strandline.producers.memory import SessionMemory
from strandline.producers.writing.set_policy import set_policy
from strandline.schemas.errors import NotFoundError
from strandline.schemas.values.acts.retention import Retention
from strandline.schemas.values.identity import SessionIdentity, scope_session_id
from strandline.schemas.values.policy import Policy, PolicyChange, changed_policy
from strandline.schemas.wire import acts
from strandline.schemas.wire.base import Page
from strandline.schemas.wire.messages import FlushEvents
from strandline.schemas.wire.policies import PolicyChangeIn, PolicyOut
from strandline.schemas.wire.sessions import (
    FlushRequest,
    ForkOut,
    ForkRequest,
    ResetDone,
    ResetRequest,
    RetentionIn,
    RetentionOut,
    RetentionSet,
    ScopeOut,
    SessionOut,
    SessionPictureOut,
)
from strandline.service.answering import Routes
from strandline.service.forms import page_of
from strandline.service.gate.problems import FORBIDDEN, ProblemError, invalid
from strandline.service.idempotency import once
from strandline.service.params import Cursor, PageSize, ScopeName, SessionId, read_text_cursor
from strandline.service.records import SessionRecords
from strandline.service.route import Call

routes = Routes("sessions")

_LIST = "sessions"
ONLY_LOWER = "The key of one user raises no limit of a session and adds no pipeline; that takes `operate`."

# Default bodies.
_ALL_BUT_LAST_TURN, _HISTORY_ALONE, _WHOLE_FORK = FlushRequest(), ResetRequest(), ForkRequest()


@routes.answer(acts.GET_SESSIONS, "read", "reads", ("names",), own_turns=True)
async def get_sessions(call: Call, limit: PageSize = 50, cursor: Cursor = None) -> Page[SessionOut]:
    """The sessions by name: of the user, or of the whole namespace if the request names none.

    With `Strandline-User: -` only sessions without a user.
    """
    after = read_text_cursor(_LIST, cursor) or None
    try:
        page = await call.block(
            lambda database: list_sessions(
                database, namespace=call.caller.tenant, **call.caller.whose, limit=limit, after=after
            )
        )
    except NotFoundError:  # nothing was put yet
        return Page[SessionOut](items=[])
    return page_of(SessionOut, page.sessions, _LIST, page.after)


@routes.answer(
    acts.GET_SESSION,
    "read",
    "reads",
    ("names", "operators"),
    SessionPictureOut,
    any_user=True,
    own_turns=True,
)
async def get_session(call: Call, session_id: SessionId) -> SessionPicture:
    """The state of a session: marks, policy, how far each pipeline is, its newest flushes and corrections.

    A request that names no user is told of the session of each user of the namespace, and whose it is;
    with `Strandline-User: -` only of a session without a user.
    """
    return await call.block(
        lambda database: show_session(database, session_id, namespace=call.caller.tenant, **call.caller.whose)
    )


@routes.answer(acts.DELETE_SESSION, "write", "writes")
async def delete_session(
    identity: SessionIdentity, memory: SessionMemory, connection: object | None
) -> ResetDone:
    """Delete the messages of a session and all derivations; its name stays with its owner.

    Facts that people added or worded by hand stay.
    """
    await memory.areset(derived=True, connection=connection)
    return ResetDone(session_id=identity.session_id, derived=True)


@routes.answer(acts.RESET_SESSION, "write", "writes")
async def reset_session(
    identity: SessionIdentity,
    memory: SessionMemory,
    connection: object | None,
    body: ResetRequest = _HISTORY_ALONE,
) -> ResetDone:
    """Begin the history over; with `derived`, also forget its derivations."""
    await memory.areset(derived=body.derived, connection=connection)
    return ResetDone(session_id=identity.session_id, derived=body.derived)


@routes.answer(acts.FLUSH_SESSION, "write", "writes")
async def flush_session(
    memory: SessionMemory, connection: object | None, body: FlushRequest = _ALL_BUT_LAST_TURN
) -> FlushEvents:
    """Deliver to the pipelines now: all but the last turn, or with `all` everything.

    With `keep` all is delivered and stays in the window.
    """
    if body.keep:
        return FlushEvents(events=await memory.adeliver(connection=connection))
    return FlushEvents(events=await memory.aflush(all=body.all, connection=connection))


@routes.answer(acts.FORK_SESSION, "write", "writes", status=201, answer=ForkOut)
async def fork_session(
    call: Call,
    identity: SessionIdentity,
    memory: SessionMemory,
    body: ForkRequest = _WHOLE_FORK,
) -> Response:
    """Begin another session of the same user as a copy of this one; nothing is extracted again."""

    async def work(connection: object | None) -> ForkOut:
        try:
            fork = await memory.afork(body.session_id, through_seq=body.through_seq, connection=connection)
        except NotFoundError:
            if body.through_seq is None:
                raise
            raise invalid("/body/through_seq", "The session has no message of this number.") from None
        return ForkOut.model_validate(fork)

    async with call.service.copies.permit(call.asker):
        return await once(call, identity.shard_key, work, status=201)


@routes.answer(acts.CHANGE_POLICY, "write", "writes")
async def change_policy(call: Call, identity: SessionIdentity, body: PolicyChangeIn) -> PolicyOut:
    """Change limits or pipelines of a session, from its next put and flush on; the change is recorded.

    The key of one user without the scope `operate` raises no limit, and adds no pipeline.
    """
    record = await call.service.records.find(identity)
    change = _policy_change(call.service.records, body)
    if call.caller.is_bound and not call.caller.may_operate:
        _check_tightens(record.policy, change)
    changing = partial(set_policy, identity, change, in_callers_transaction=False)
    recorder = call.recorder(identity)
    done = await call.run(recorder.carry_out(Act.here("policy", actor=body.actor), changing))
    if done.flushed is not None:
        call.service.resources.ring(done.flushed.lanes)
    call.service.records.forget(identity)
    return PolicyOut.model_validate(done.policy)


routes.pass_on(
    acts.GET_RETENTION, "read", "reads", (), RetentionOut, to=SessionMemory.get_retention,
    about="How long the session is kept; open values are the namespace's.",
)  # fmt: skip


@routes.answer(acts.PUT_RETENTION, "write", "writes")
async def put_retention(call: Call, identity: SessionIdentity, body: RetentionIn) -> RetentionSet:
    """Set how long the session is kept, from now on: no read shows expired messages.

    A key without the scope `operate` only tightens the bounds; open values stay as they are.
    """
    await call.service.records.find(identity)
    recording = partial(
        record_retention,
        RetentionLevel(identity.namespace, identity),
        Retention(**body.model_dump(exclude={"actor"})),
        only_tightens=not call.caller.may_operate,
    )
    recorder = call.recorder(identity)
    act = Act.here("retention", actor=body.actor)
    return RetentionSet(number=await call.run(recorder.carry_out(act, recording)))


@routes.answer(acts.NAME_SCOPE, "read", "reads")
async def name_scope(call: Call, session_id: SessionId, scope: ScopeName) -> ScopeOut:
    """The id of the session that is a scope of this one, with a log of its own; nothing is stored."""
    identity = call.caller.session(scope_session_id(session_id, scope))
    return ScopeOut(session_id=identity.session_id)


def _check_tightens(present: Policy, change: PolicyChange) -> None:
    """Raise a problem if a change lets a session take more than its policy does."""
    changed = changed_policy(present, change)
    limits = ("token_limit", "max_window_messages", "max_window_bytes", "max_facts")
    is_raised = any((getattr(changed, name) or inf) > (getattr(present, name) or inf) for name in limits)
    if is_raised or not {*changed.pipelines} <= {*present.pipelines}:
        raise ProblemError(FORBIDDEN, detail=ONLY_LOWER)


def _policy_change(records: SessionRecords, body: PolicyChangeIn) -> PolicyChange:
    changed = body.model_dump(exclude_unset=True, exclude={"blocks", "max_facts", "actor"})
    if body.blocks is not None:
        blocks = records.declare(body.blocks, body.max_facts)
        changed |= {"pipelines": pipelines_of(blocks), "max_facts": max_facts_of(blocks)}
    return PolicyChange(**changed)
