"""Users of a namespace: their figures, topics and capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from strandline.producers.facts.figures import TopicCount
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.wire import acts
from strandline.schemas.wire.base import Page
from strandline.schemas.wire.facts import CaptureIn, CaptureOut, CaptureSet, FiguresOut, TopicsOut, UserOut
from strandline.service.answering import Routes
from strandline.service.forms import page_of
from strandline.service.params import Cursor, read_text_cursor
from strandline.service.route import Call

routes = Routes("users")

_LIST = "users"


@routes.answer(acts.LIST_USERS, "read", "others", ("names",), holder="namespace")
async def list_users(
    call: Call,
    limit: Annotated[int, Field(ge=1, le=200, description="How many at most.")] = 50,
    cursor: Cursor = None,
) -> Page[UserOut]:
    """The users of the namespace with a session or facts, and their figures; not for a user's own key."""
    facts = NamespaceFacts(call.service.resources, call.caller.tenant)
    page = await facts.ausers(limit=limit, after=read_text_cursor(_LIST, cursor) or None)
    return page_of(UserOut, page, _LIST, page.after)


routes.pass_on(
    acts.USER_FIGURES, "read", "reads", (), FiguresOut, to=OwnerFacts.figures,
    about="How many facts, sessions, messages and tokens there are of a user.",
)  # fmt: skip


@routes.answer(acts.USER_TOPICS, "read", "reads", ("facts",), TopicsOut)
async def user_topics(
    facts: OwnerFacts, limit: Annotated[int, Field(ge=1, le=1_000, description="How many at most.")] = 100
) -> Sequence[TopicCount]:
    """The topics of the user's live facts, the most frequent first."""
    return await facts.atopics(limit=limit)


routes.pass_on(
    acts.GET_CAPTURE, "read", "reads", ("operators",), CaptureOut, to=OwnerFacts.get_capture,
    about="The rules for capturing facts of this user now.",
)  # fmt: skip


@routes.answer(acts.SET_CAPTURE, "operate", "others")
async def set_capture(facts: OwnerFacts, body: CaptureIn) -> CaptureSet:
    """Set the rules for capturing facts of this user, from the next flush on."""
    capture = Capture(**body.model_dump(exclude={"actor"}))
    return CaptureSet(number=await facts.aset_capture(capture, actor=body.actor))
