"""A question: the context that a read would give, the source of each piece, and the omissions."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from strandline.schemas.wire import acts
from strandline.service.pages.operations import REVEAL
from strandline.service.pages.routing import Pages
from strandline.service.pages.visits import Visit, number_in

pages = Pages()


@pages("GET /question")
async def show_form(visit: Visit) -> Response:
    """The form for a question."""
    return await visit.page("question.html", asked=visit.query, context=None, parts_of_it=None)


@pages("POST /question")
async def ask(visit: Visit) -> Response:
    """Read as a prompt would; the trail records that its content is shown."""
    asked = {name: visit.field(name) or "" for name in ("session_id", "input", "token_limit")}
    session_id = asked["session_id"] or "-"
    picture = await visit.ask(acts.GET_SESSION, session_id=session_id)
    user = picture["session"]["user_id"] or ""
    await visit.ask(REVEAL, body={"session_id": session_id}, of_user=user)
    body: dict[str, Any] = {"input": asked["input"] or None}
    if asked["token_limit"]:
        body["token_limit"] = number_in(asked["token_limit"])
    context = await visit.ask(acts.READ_CONTEXT, session_id=session_id, of_user=user, body=body)
    visit.is_revealed = True
    return await visit.page("question.html", asked=asked, context=context, parts_of_it=_parts_of(context))


def _parts_of(context: dict[str, Any]) -> list[tuple[str, int]]:
    """The tokens of each part of a context."""
    facts = sum(fact["tokens"] for fact in context["facts"])
    hits = sum(hit["tokens"] for hit in context["hits"])
    summary = context["summary"]["tokens"] if context["summary"] else 0
    others = max(0, context["tokens"] - facts - hits - summary)
    return [("messages", others), ("facts", facts), ("summary", summary), ("found messages", hits)]
