"""The audit trail of a namespace, for its operators."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Path, Query, Request

from strandline.producers.audit_trail import NamespaceAudit
from strandline.schemas.values.identity import ALL_NAMESPACES
from strandline.schemas.wire.base import Moment, Page
from strandline.schemas.wire.operations import ActOut, AuditLevelBody, AuditLevelOut, TrailOut
from strandline.service.access import Access
from strandline.service.gate.cursors import cursor_of, read_text_cursor
from strandline.service.gate.problems import NOT_FOUND, ProblemError
from strandline.service.params import Cursor, PageSize, make_router
from strandline.service.route import call_of

router = make_router()

_LIST = "audit"

Namespace = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=512,
        description="Whose trail, for an operator of the installation; default: of what concerns all.",
    ),
]


@router.get("/v1/admin/audit", tags=["audit"])
@Access("operate", "others", ("names", "operators"), holder="namespace")
async def get_acts(
    request: Request,
    limit: PageSize = 100,
    cursor: Cursor = None,
    namespace: Namespace = None,
    kind: Annotated[
        str | None, Query(max_length=100, description="One kind, or what several begin with.")
    ] = None,
    actor: Annotated[
        str | None, Query(min_length=1, max_length=512, description="Only what they did.")
    ] = None,
    user_id: Annotated[
        str | None, Query(min_length=1, max_length=512, description="Only what concerns this user.")
    ] = None,
    since: Annotated[Moment | None, Query(description="Not before this time.")] = None,
    until: Annotated[Moment | None, Query(description="Not after this time.")] = None,
) -> Page[ActOut]:
    """Who did what, newest first; reading it is an act as well."""
    before = read_text_cursor(_LIST, cursor) or None
    page = await _trail(request, namespace).aacts(
        since=since, until=until, kind=kind, actor=actor, user_id=user_id, limit=limit, before=before
    )
    items = [ActOut.model_validate(act) for act in page.acts]
    following = None if page.next_before is None else cursor_of(_LIST, page.next_before)
    return Page[ActOut](items=items, next_cursor=following)


@router.get("/v1/admin/audit/verification", tags=["audit"])
@Access("operate", "others", (), holder="namespace")
async def verify_trail(request: Request, namespace: Namespace = None) -> TrailOut:
    """Check the chain of seals: whether anything that is sealed was changed, removed or added."""
    verdict = await _trail(request, namespace).averify()
    return TrailOut(
        seals=verdict.seals,
        entries=verdict.entries,
        pruned_seals=verdict.pruned_seals,
        unsealed=verdict.unsealed,
        unkeyed_seals=verdict.unkeyed_seals,
        first_seal_at=verdict.first_seal_at,
        last_seal_at=verdict.last_seal_at,
        findings=[str(one) for one in verdict.findings],
    )


@router.get("/v1/admin/audit/level", tags=["audit"])
@Access("operate", "others", (), holder="namespace")
async def get_level(request: Request, namespace: Namespace = None) -> AuditLevelOut:
    """What is recorded of the namespace."""
    return AuditLevelOut(level=await _trail(request, namespace).alevel())


@router.put("/v1/admin/audit/level", tags=["audit"])
@Access("operate", "others", (), holder="namespace", idempotent="same")
async def put_level(request: Request, body: AuditLevelBody, namespace: Namespace = None) -> AuditLevelOut:
    """Set which operations are recorded; the change itself is recorded."""
    await _trail(request, namespace).aset_level(body.level)
    return AuditLevelOut(level=body.level)


@router.get("/v1/admin/audit/acts/{entry_id:uuid}", tags=["audit"])
@Access("operate", "others", ("names", "operators"), holder="namespace")
async def get_act(
    request: Request,
    entry_id: Annotated[UUID, Path(description="The id of the entry.")],
    namespace: Namespace = None,
) -> ActOut:
    """One act."""
    act = await _trail(request, namespace).aact(entry_id)
    if act is None:
        raise ProblemError(NOT_FOUND)
    return ActOut.model_validate(act)


def _trail(request: Request, namespace: str | None) -> NamespaceAudit:
    """The trail that the operator reads; of another's namespace there is none."""
    call = call_of(request)
    managed = call.caller.managed_namespace
    if managed is not None and namespace not in (None, managed):
        raise ProblemError(NOT_FOUND)
    return NamespaceAudit(call.service.resources, managed or namespace or ALL_NAMESPACES)
