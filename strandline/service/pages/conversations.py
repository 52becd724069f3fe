"""A session: the line of its log, its messages, why each was or was not remembered; and questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from strandline.schemas.values.lanes import FACTS
from strandline.schemas.wire import acts
from strandline.service.gate.authentication import caller_of
from strandline.service.pages.operations import REVEAL
from strandline.service.pages.routing import Pages
from strandline.service.pages.visits import Visit, number_in

pages = Pages()
_SESSION = "/sessions/{session_id}"
_MESSAGE = _SESSION + "/messages/{message_id}"
MESSAGES_SHOWN = 100
ASKED = ("session_id", "input", "token_limit", "generation", "against")


async def _whose(visit: Visit) -> dict[str, Any]:
    return {"body": {"session_id": visit.places["session_id"]}, "of_user": await visit.user_of_session()}


@pages.hide(_SESSION, _whose)
async def show_session(visit: Visit) -> Response:
    """The log of a session, its marks, and how far each pipeline is."""
    session_id = visit.places["session_id"]
    picture = await visit.ask(acts.GET_SESSION, session_id=session_id)
    user = picture["session"]["user_id"]
    query = {"limit": MESSAGES_SHOWN, "cursor": visit.query.get("cursor")}
    messages = await visit.ask(acts.LIST_MESSAGES, session_id=session_id, of_user=user or "", query=query)
    kept = await visit.ask(acts.GET_RETENTION, session_id=session_id, of_user=user or "")
    return await visit.page("session.html", picture=picture, messages=messages, kept=kept)


@pages.hide(_MESSAGE, _whose)
async def show_message(visit: Visit) -> Response:
    """Why a message was remembered, or not."""
    explanation = await visit.ask(
        acts.EXPLAIN_MESSAGE,
        message_id=visit.places["message_id"],
        of_user=await visit.user_of_session(),
        query={"session_id": visit.places["session_id"]},
    )
    return await visit.page("message.html", explained=explanation, steps=_steps(explanation))


pages.act(_SESSION + "/flush", acts.FLUSH_SESSION, "flushed", _SESSION, {"all": bool})
pages.act(_SESSION + "/rewind", acts.REWIND_SESSION, "rewound", _SESSION, {"from_seq": number_in})
pages.act(_SESSION + "/replace", acts.REPLACE_CONTENT, "replaced", _SESSION, {"content": str})
pages.act(_SESSION + "/fork", acts.FORK_SESSION, "forked", _SESSION, {"through_seq": number_in})


def _steps(explanation: dict[str, Any]) -> list[tuple[str, str]]:
    """The way of a message to its facts, in the derivation that serves."""
    event = explanation["event"]
    steps = [("message", explanation["place"]), ("flush", event["cause"] if event else "not flushed")]
    steps += [
        (stage["stage"], stage["state"])
        for stage in explanation["stages"]
        if stage["pipeline"] == FACTS and stage["generation_state"] == "serving"
    ]
    return [*steps, ("facts", str(sum(fact["live"] for fact in explanation["facts"])))]


@pages("GET /question")
async def show_form(visit: Visit) -> Response:
    """The form for a question."""
    return await _show_question(visit, visit.query, [])


@pages("POST /question")
async def ask(visit: Visit) -> Response:
    """Read as a prompt would, or from two generations; the trail records that its content is shown."""
    asked = {name: visit.field(name) or "" for name in ASKED}
    session_id = asked["session_id"] or "-"
    picture = await visit.ask(acts.GET_SESSION, session_id=session_id)
    user = picture["session"]["user_id"] or ""
    await visit.ask(REVEAL, body={"session_id": session_id}, of_user=user)
    body: dict[str, Any] = {"input": asked["input"] or None}
    if asked["token_limit"]:
        body["token_limit"] = number_in(asked["token_limit"])
    contexts = []
    for number in [asked["generation"], asked["against"]][: 2 if asked["against"] else 1]:
        body["generation"] = number_in(number) if number else None
        contexts.append(await visit.ask(acts.READ_CONTEXT, session_id=session_id, of_user=user, body=body))
    visit.is_revealed = True
    return await _show_question(visit, asked, contexts)


async def _show_question(visit: Visit, asked: Mapping[str, str], contexts: list[Any]) -> Response:
    may_choose = all(map(visit.ask.may, (acts.GET_GENERATIONS, acts.READ_CONTEXT)))
    if may_choose:
        may_choose = caller_of(visit.ask.check(acts.READ_CONTEXT), None, None).may_choose_generations
    generations = (await visit.ask(acts.GET_GENERATIONS))["generations"] if may_choose else []
    return await visit.page("question.html", asked=asked, contexts=contexts, generations=generations)
