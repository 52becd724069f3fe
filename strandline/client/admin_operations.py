"""Operators' requests to a service; each operation describes its request and returns the wire's values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.client.operations import Call, Face, Operation, PageOf, once, path, set_fields
from strandline.client.retrying import Repeat
from strandline.schemas.wire.base import Page
from strandline.schemas.wire.explanations import (
    AnyFactExplanation,
    FactExplanation,
    MessageExplanation,
    RemovedFactExplanation,
)
from strandline.schemas.wire.facts import UserOut
from strandline.schemas.wire.keys import Identity, KeyInfo, KeyRequest, KeyRotation, NewKey, RevokedKey
from strandline.schemas.wire.operations import (
    ActOut,
    AuditLevelOut,
    DeadLetterOut,
    LetterActions,
    LimitsIn,
    OperationOut,
    Promotion,
    ReplayIn,
    TrailOut,
)
from strandline.schemas.wire.replay import DiffTotals, EstimatesReport, GenerationsReport, SwitchReport
from strandline.schemas.wire.sessions import SessionOut, SessionPictureOut
from strandline.schemas.wire.work import LimitsReport, NamespaceLimitsReport, StatusReport, WorkerReport

PAGE = 100


def whoami(admin: Face) -> Operation[Identity]:
    """Whose the key is, and what it may do."""
    return (yield _get("whoami")).read(Identity)


def status(admin: Face) -> Operation[StatusReport]:
    """Work that is due, held, dead and done, and the workers there; for an operator of the installation."""
    return (yield _get("status")).read(StatusReport)


def workers(admin: Face) -> Operation[list[WorkerReport]]:
    """The workers with a heartbeat."""
    return (yield _get("admin", "workers")).read(Page[WorkerReport]).items


def create_key(admin: Face, request: KeyRequest) -> Operation[NewKey]:
    """Make a key; its text is shown only this once.  If the answer is lost, revoke the key."""
    return (yield _post("admin", "keys", body=_body(request), headers=once())).read(NewKey)


def keys(admin: Face, cursor: str | None) -> Operation[PageOf[KeyInfo]]:
    """The keys of the namespace, ended ones too; an operator of the installation sees those of all."""
    return (yield _get("admin", "keys", query=_page(cursor))).page(Page[KeyInfo])


def rotate_key(
    admin: Face,
    key_id: str,
    *,
    overlap_seconds: float | None = None,
    expires_in_seconds: float | None = None,
) -> Operation[NewKey]:
    """Make a key with the same scopes; the old one stays valid for a while, by default for a day.

    ``expires_in_seconds``: when the new key ends; default: after the old one's lifetime.
    """
    seconds = set_fields(overlap_seconds=overlap_seconds, expires_in_seconds=expires_in_seconds)
    body = _body(KeyRotation(**seconds))
    return (yield _post("admin", "keys", key_id, "rotate", body=body, headers=once())).read(NewKey)


def revoke_key(admin: Face, key_id: str, *, with_made: bool = False) -> Operation[RevokedKey]:
    """End a key now, perhaps with all that it made; every process refuses it within five seconds."""
    call = Call("DELETE", path("admin", "keys", key_id), query={"with_made": with_made})
    return (yield call).read(RevokedKey)


def namespaces(admin: Face) -> Operation[list[NamespaceLimitsReport]]:
    """The limits of namespaces that have some, with their use today and what waits."""
    return (yield _get("admin", "namespaces")).read(LimitsReport).namespaces


def limits(admin: Face, namespace: str) -> Operation[NamespaceLimitsReport]:
    """The limits of a namespace; raises NotFoundError if it has none."""
    return (yield _get("admin", "namespaces", namespace, "limits")).read(NamespaceLimitsReport)


def set_limits(admin: Face, namespace: str, limits: LimitsIn) -> Operation[NamespaceLimitsReport]:
    """Set all limits of a namespace; an omitted one is lifted."""
    call = Call("PUT", path("admin", "namespaces", namespace, "limits"), body=_body(limits))
    return (yield call).read(NamespaceLimitsReport)


def dead_letters(
    admin: Face, cursor: str | None, *, pipeline: str | None = None, dropped: bool = False
) -> Operation[PageOf[DeadLetterOut]]:
    """Events that a pipeline gave up on, oldest first, each with its reason."""
    query = {**_page(cursor), "pipeline": pipeline, "dropped": "true" if dropped else None}
    return (yield _get("admin", "dead-letters", query=query)).page(Page[DeadLetterOut])


def retry_dead_letter(
    admin: Face, event_id: UUID | str, *, stage: str | None = None
) -> Operation[LetterActions]:
    """Make an event due again, in the stages that gave up on it."""
    call = _post("admin", "dead-letters", str(event_id), "retry", query={"stage": stage})
    return (yield call).read(LetterActions)


def drop_dead_letter(
    admin: Face, event_id: UUID | str, *, stage: str | None = None
) -> Operation[LetterActions]:
    """Give an event up for good; its messages stay in the log, and reads no longer wait for them."""
    call = _post("admin", "dead-letters", str(event_id), "drop", query={"stage": stage})
    return (yield call).read(LetterActions)


def start_replay(admin: Face, replay: ReplayIn) -> Operation[OperationOut]:
    """Derive memory again from the log; ``operation`` says how far it is."""
    return (yield _post("admin", "replays", body=_body(replay))).read(OperationOut)


def estimate_replay(admin: Face, replay: ReplayIn) -> Operation[EstimatesReport]:
    """How much work a replay would be, and what it would cost; nothing is done."""
    call = _post("admin", "replays", "estimate", body=_body(replay), repeat="always", is_read=True)
    return (yield call).read(EstimatesReport)


def operations(admin: Face, cursor: str | None) -> Operation[PageOf[OperationOut]]:
    """Replays, newest first."""
    return (yield _get("admin", "operations", query=_page(cursor))).page(Page[OperationOut])


def operation(admin: Face, operation_id: int) -> Operation[OperationOut]:
    """How a replay stands."""
    return (yield _get("admin", "operations", operation_id)).read(OperationOut)


def stop_operation(admin: Face, operation_id: int) -> Operation[OperationOut]:
    """Have a replay stop after its present step; ``resume`` continues it."""
    call = _post("admin", "operations", operation_id, "stop", repeat="always")
    return (yield call).read(OperationOut)


def generations(admin: Face, *, pipeline: str | None = None) -> Operation[GenerationsReport]:
    """The generations of each pipeline, and replays that are not finished."""
    return (yield _get("admin", "generations", query={"pipeline": pipeline})).read(GenerationsReport)


def diff_generation(admin: Face, generation: int, *, against: int | None = None) -> Operation[DiffTotals]:
    """How much the memory of a generation differs from that of the one that serves, or of another."""
    call = _get("admin", "generations", generation, "diff", query={"against": against})
    return (yield call).read(DiffTotals)


def promote_generation(
    admin: Face, generation: int, owner: Promotion | None = None
) -> Operation[SwitchReport]:
    """Let a generation serve all owners that it covers, or one."""
    body = _body(owner or Promotion())
    return (yield _post("admin", "generations", generation, "promote", body=body)).read(SwitchReport)


def prune_generation(admin: Face, generation: int) -> Operation[SwitchReport]:
    """Delete a generation that does not serve."""
    call = Call("DELETE", path("admin", "generations", generation), repeat="if_not_done")
    return (yield call).read(SwitchReport)


def roll_pipeline_back(admin: Face, pipeline: str) -> Operation[SwitchReport]:
    """Let the generation serve again that served before, for all owners."""
    return (yield _post("admin", "pipelines", pipeline, "rollback")).read(SwitchReport)


def acts(
    admin: Face,
    cursor: str | None,
    *,
    namespace: str | None = None,
    kind: str | None = None,
    actor: str | None = None,
    user_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Operation[PageOf[ActOut]]:
    """Who did what, newest first; reading it is an act as well."""
    query = {
        **_page(cursor),
        "namespace": namespace,
        "kind": kind,
        "actor": actor,
        "user_id": user_id,
        "since": None if since is None else since.isoformat(),
        "until": None if until is None else until.isoformat(),
    }
    return (yield _get("admin", "audit", query=query)).page(Page[ActOut])


def act(admin: Face, entry_id: UUID | str, *, namespace: str | None = None) -> Operation[ActOut]:
    """One act; raises NotFoundError if there is none."""
    call = _get("admin", "audit", "acts", str(entry_id), query={"namespace": namespace})
    return (yield call).read(ActOut)


def verify_audit(admin: Face, *, namespace: str | None = None) -> Operation[TrailOut]:
    """Check the chain of seals: whether anything that is sealed was changed, removed or added."""
    return (yield _get("admin", "audit", "verification", query={"namespace": namespace})).read(TrailOut)


def audit_level(admin: Face, *, namespace: str | None = None) -> Operation[str]:
    """The recorded level: ``off``, ``changes`` or ``all``."""
    return (yield _get("admin", "audit", "level", query={"namespace": namespace})).read(AuditLevelOut).level


def set_audit_level(admin: Face, level: str, *, namespace: str | None = None) -> Operation[str]:
    """Set what is recorded; the change itself is recorded."""
    query = {"namespace": namespace}
    call = Call("PUT", path("admin", "audit", "level"), query=query, body={"level": level})
    return (yield call).read(AuditLevelOut).level


def users(admin: Face, cursor: str | None) -> Operation[PageOf[UserOut]]:
    """The users of the namespace, with their figures; for a key that is not one user's."""
    return (yield _get("users", query=_page(cursor))).page(Page[UserOut])


def sessions(admin: Face, cursor: str | None, *, user_id: str | None = None) -> Operation[PageOf[SessionOut]]:
    """The sessions by name: of a user, or of the whole namespace."""
    call = Call("GET", path("sessions"), query=_page(cursor), user_id=user_id)
    return (yield call).page(Page[SessionOut])


def session(admin: Face, session_id: str, *, user_id: str | None = None) -> Operation[SessionPictureOut]:
    """The state of a session: marks, policy, how far each pipeline is, its newest flushes and corrections."""
    return (yield Call("GET", path("sessions", session_id), user_id=user_id)).read(SessionPictureOut)


def explain_message(
    admin: Face, message_id: str, *, session_id: str | None = None, user_id: str | None = None
) -> Operation[MessageExplanation]:
    """What became of a message; name its session if several use the id."""
    query = {"session_id": session_id}
    call = Call("GET", path("explain", "messages", message_id), query=query, user_id=user_id)
    return (yield call).read(MessageExplanation)


def explain_fact(
    admin: Face, fact_id: UUID | str, *, user_id: str | None = None
) -> Operation[FactExplanation | RemovedFactExplanation]:
    """Where a fact comes from, and what people did to it."""
    call = Call("GET", path("explain", "facts", str(fact_id)), user_id=user_id)
    return (yield call).read(AnyFactExplanation).root


def _get(*route: str | int, query: Mapping[str, Any] | None = None) -> Call:
    return Call("GET", path(*route), query=query or {})


def _post(
    *route: str | int,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    repeat: Repeat = "if_not_done",
    is_read: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Call:
    return Call(
        "POST",
        path(*route),
        query=query or {},
        body=body,
        repeat=repeat,
        is_read=is_read,
        headers=headers or {},
    )


def _page(cursor: str | None) -> dict[str, Any]:
    return {"limit": PAGE, "cursor": cursor}


def _body(request: Any) -> Any:
    return request.model_dump(mode="json", exclude_unset=True)
