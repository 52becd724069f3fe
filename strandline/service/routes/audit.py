"""The audit trail of a namespace, for its operators."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from strandline.producers.audit_trail import NamespaceAudit
from strandline.schemas.values.identity import ALL_NAMESPACES
from strandline.schemas.wire import acts
from strandline.schemas.wire.base import Moment, Page
from strandline.schemas.wire.operations import ActOut, AuditLevelBody, AuditLevelOut, TrailOut
from strandline.service.answering import Routes
from strandline.service.forms import page_of
from strandline.service.gate.problems import NOT_FOUND, ProblemError
from strandline.service.params import Cursor, PageSize, read_text_cursor
from strandline.service.route import Call

routes = Routes("audit")

_LIST = "audit"

Namespace = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=512,
        description="Whose trail, for an operator of the installation; default: of what concerns all.",
    ),
]


@routes.answer(acts.GET_ACTS, "operate", "others", ("names", "operators"), holder="namespace")
async def get_acts(
    call: Call,
    limit: PageSize = 100,
    cursor: Cursor = None,
    namespace: Namespace = None,
    kind: Annotated[
        str | None, Field(max_length=100, description="One kind, or what several begin with.")
    ] = None,
    actor: Annotated[
        str | None, Field(min_length=1, max_length=512, description="Only the acts of this actor.")
    ] = None,
    user_id: Annotated[
        str | None, Field(min_length=1, max_length=512, description="Only what concerns this user.")
    ] = None,
    since: Annotated[Moment | None, Field(description="Not before this time.")] = None,
    until: Annotated[Moment | None, Field(description="Not after this time.")] = None,
) -> Page[ActOut]:
    """Who did what, newest first; reading it is an act as well."""
    before = read_text_cursor(_LIST, cursor) or None
    page = await _trail(call, namespace).aacts(
        since=since, until=until, kind=kind, actor=actor, user_id=user_id, limit=limit, before=before
    )
    return page_of(ActOut, page.acts, _LIST, page.next_before)


@routes.answer(acts.VERIFY_TRAIL, "operate", "others", holder="namespace")
async def verify_trail(call: Call, namespace: Namespace = None) -> TrailOut:
    """Check the chain of seals: whether anything that is sealed was changed, removed or added."""
    verdict = await _trail(call, namespace).averify()
    return TrailOut.of(verdict, findings=[str(one) for one in verdict.findings])


@routes.answer(acts.GET_LEVEL, "operate", "others", holder="namespace")
async def get_level(call: Call, namespace: Namespace = None) -> AuditLevelOut:
    """The level at which the namespace is recorded."""
    return AuditLevelOut(level=await _trail(call, namespace).alevel())


@routes.answer(acts.PUT_LEVEL, "operate", "others", holder="namespace")
async def put_level(call: Call, body: AuditLevelBody, namespace: Namespace = None) -> AuditLevelOut:
    """Set which operations are recorded; the change itself is recorded."""
    await _trail(call, namespace).aset_level(body.level)
    return AuditLevelOut(level=body.level)


@routes.answer(acts.GET_ACT, "operate", "others", ("names", "operators"), holder="namespace")
async def get_act(
    call: Call,
    entry_id: Annotated[UUID, Field(description="The id of the entry.")],
    namespace: Namespace = None,
) -> ActOut:
    """One act."""
    act = await _trail(call, namespace).aact(entry_id)
    if act is None:
        raise ProblemError(NOT_FOUND)
    return ActOut.model_validate(act)


def _trail(call: Call, namespace: str | None) -> NamespaceAudit:
    """The trail that the operator reads; of another's namespace there is none."""
    managed = call.caller.managed_namespace
    if managed is not None and namespace not in (None, managed):
        raise ProblemError(NOT_FOUND)
    return NamespaceAudit(call.service.resources, managed or namespace or ALL_NAMESPACES)
