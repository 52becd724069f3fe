"""Users of a namespace: their figures, topics and capture."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request

from strandline.producers.namespace_facts import NamespaceFacts
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.wire.base import Page
from strandline.schemas.wire.facts import (
    CaptureIn,
    CaptureOut,
    CaptureSet,
    FiguresOut,
    TopicOut,
    TopicsOut,
    UserOut,
)
from strandline.service.access import Access
from strandline.service.gate.cursors import cursor_of, read_text_cursor
from strandline.service.params import Cursor, UserId, make_router
from strandline.service.route import call_of
from strandline.service.routes.facts import owner_facts

router = make_router()

_LIST = "users"


@router.get("/v1/users", tags=["users"])
@Access("read", "others", ("names",), holder="namespace")
async def list_users(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 50,
    cursor: Cursor = None,
) -> Page[UserOut]:
    """The users of the namespace with a session or facts, and their figures; not for a user's own key."""
    call = call_of(request)
    facts = NamespaceFacts(call.service.resources, call.caller.tenant)
    page = await facts.ausers(limit=limit, after=read_text_cursor(_LIST, cursor) or None)
    items = [UserOut(user_id=one.user_id, figures=FiguresOut.model_validate(one.figures)) for one in page]
    following = None if page.after is None else cursor_of(_LIST, page.after)
    return Page[UserOut](items=items, next_cursor=following)


@router.get("/v1/users/{user}/figures", tags=["users"])
@Access("read", "reads", ())
async def user_figures(request: Request, user: UserId) -> FiguresOut:
    """How many facts, sessions, messages and tokens there are of a user."""
    return FiguresOut.model_validate(await owner_facts(request, user).afigures())


@router.get("/v1/users/{user}/topics", tags=["users"])
@Access("read", "reads", ("facts",))
async def user_topics(
    request: Request,
    user: UserId,
    limit: Annotated[int, Query(ge=1, le=1_000, description="How many at most.")] = 100,
) -> TopicsOut:
    """The topics of the user's live facts, the most frequent first."""
    topics = await owner_facts(request, user).atopics(limit=limit)
    return TopicsOut(items=[TopicOut.model_validate(topic) for topic in topics])


@router.get("/v1/users/{user}/capture", tags=["users"])
@Access("read", "reads", ("operators",))
async def get_capture(request: Request, user: UserId) -> CaptureOut:
    """The rules for capturing facts of this user now."""
    return CaptureOut.model_validate(await owner_facts(request, user).aget_capture())


@router.put("/v1/users/{user}/capture", tags=["users"])
@Access("operate", "others", (), idempotent="same")
async def set_capture(request: Request, user: UserId, body: CaptureIn) -> CaptureSet:
    """Set the rules for capturing facts of this user, from the next flush on."""
    capture = Capture(**body.model_dump(exclude={"actor"}))
    actor = body.actor
    return CaptureSet(number=await owner_facts(request, user).aset_capture(capture, actor=actor))
