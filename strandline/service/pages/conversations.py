"""A session: the line of its log, its messages, why each was or was not remembered, and corrections."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from strandline.schemas.values.lanes import FACTS
from strandline.schemas.wire import acts
from strandline.service.pages.routing import Pages
from strandline.service.pages.sessions import PATH
from strandline.service.pages.visits import Visit, way_to

pages = Pages()
MESSAGES_SHOWN = 100
MAX_DIGITS = 17


async def _whose(visit: Visit) -> dict[str, Any]:
    """The session with its user, whom the other routes ask for."""
    session_id = visit.places["session_id"]
    picture = await visit.ask(acts.GET_SESSION, session_id=session_id)
    return {"session_id": session_id, "of_user": picture["session"]["user_id"] or ""}


async def _whose_reveal(visit: Visit) -> dict[str, Any]:
    whose = await _whose(visit)
    return {"body": {"session_id": whose["session_id"]}, "of_user": whose["of_user"]}


@pages.hide("/sessions/{session_id}", _whose_reveal)
async def show_session(visit: Visit) -> Response:
    """The log of a session, its marks, and how far each pipeline is."""
    session_id = visit.places["session_id"]
    picture = await visit.ask(acts.GET_SESSION, session_id=session_id)
    user = picture["session"]["user_id"]
    query = {"limit": MESSAGES_SHOWN, "cursor": visit.query.get("cursor")}
    messages = await visit.ask(acts.LIST_MESSAGES, session_id=session_id, of_user=user or "", query=query)
    return visit.page("session.html", picture=picture, messages=messages)


@pages.hide("/sessions/{session_id}/messages/{message_id}", _whose_reveal)
async def show_message(visit: Visit) -> Response:
    """Why a message was remembered, or not."""
    whose = await _whose(visit)
    explanation = await visit.ask(
        acts.EXPLAIN_MESSAGE,
        message_id=visit.places["message_id"],
        of_user=whose["of_user"],
        query={"session_id": whose["session_id"]},
    )
    return visit.page("message.html", explained=explanation, steps=_steps(explanation))


@pages("POST /sessions/{session_id}/messages/{message_id}/retry")
async def retry_event(visit: Visit) -> Response:
    """Make the event of a message due again, in the stages that gave up on it."""
    await visit.ask(acts.RETRY_LETTER, event_id=visit.field("event_id") or "")
    message_id = quote(visit.places["message_id"], safe="")
    return way_to(f"{_path(visit.places['session_id'])}/messages/{message_id}", done="retried")


@pages("POST /sessions/{session_id}/flush")
async def flush(visit: Visit) -> Response:
    """Deliver all messages to the pipelines."""
    await visit.ask(acts.FLUSH_SESSION, **await _whose(visit), body={"all": True})
    return _back(visit, "flushed")


@pages("POST /sessions/{session_id}/rewind")
async def rewind(visit: Visit) -> Response:
    """Take back every message from a number on."""
    await visit.ask(acts.REWIND_SESSION, **await _whose(visit), body={"from_seq": _seq(visit)})
    return _back(visit, "rewound")


@pages("POST /sessions/{session_id}/replace")
async def replace(visit: Visit) -> Response:
    """Give a message other content."""
    body = {"content": visit.field("content") or ""}
    await visit.ask(acts.REPLACE_CONTENT, **await _whose(visit), seq=_seq(visit), body=body)
    return _back(visit, "replaced")


@pages("POST /sessions/{session_id}/fork")
async def fork(visit: Visit) -> Response:
    """Copy the session, up to a number."""
    copy = await visit.ask(acts.FORK_SESSION, **await _whose(visit), body={"through_seq": _seq(visit)})
    return way_to(_path(copy["session_id"]), done="forked")


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


def _seq(visit: Visit) -> int:
    """The number of a message that the form names; 0 for other text, which no route takes."""
    text = visit.field("seq") or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < MAX_DIGITS else 0


def _back(visit: Visit, done: str) -> Response:
    return way_to(_path(visit.places["session_id"]), done=done)


def _path(session_id: str) -> str:
    return f"{PATH}/sessions/{quote(session_id, safe='')}"
