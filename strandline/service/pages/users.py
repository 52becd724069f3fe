"""Users of a namespace: their facts, looked at and put right; their sessions, export and erasure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from strandline.schemas.wire import acts
from strandline.service.gate.problems import invalid
from strandline.service.pages.routing import Pages
from strandline.service.pages.sessions import PATH
from strandline.service.pages.visits import Visit, way_to

pages = Pages()
_USER = "/users/{user}"
_FACT = _USER + "/facts/{fact_id}"
FACTS_SHOWN = 50
TOPICS_SHOWN = 20
WAIT_SECONDS = 10
_AS_FILE = [(b"content-disposition", b'attachment; filename="export.jsonl"')]
MISTYPED = "The name that was typed is not this user's; nothing was erased."


@pages("GET /users")
async def show_users(visit: Visit) -> Response:
    """The users of the namespace, or the way to a given one."""
    if user := visit.query.get("user"):
        return way_to(f"{PATH}/users/{quote(user, safe='')}")
    users = await visit.ask(acts.LIST_USERS, query={"cursor": visit.query.get("cursor")})
    return await visit.page("users.html", users=users)


async def _whose(visit: Visit) -> dict[str, Any]:
    return {"body": {"user": visit.places["user"]}}


@pages.hide(_USER, _whose)
async def show_user(visit: Visit) -> Response:
    """Figures, facts and sessions of a user."""
    user = visit.places["user"]
    query: dict[str, Any] = {"limit": FACTS_SHOWN, "cursor": visit.query.get("cursor")}
    query |= {name: "true" for name in ("doubtful", "with_invalidated") if visit.query.get(name)}
    facts = await visit.ask(acts.LIST_FACTS, user=user, query=query)
    return await visit.page(
        "user.html",
        user=user,
        figures=await visit.ask(acts.USER_FIGURES, user=user),
        facts=facts,
        topics=(await visit.ask(acts.USER_TOPICS, user=user, query={"limit": TOPICS_SHOWN}))["items"],
        sessions=await visit.ask(
            acts.GET_SESSIONS,
            of_user=user,
            query={"limit": FACTS_SHOWN, "cursor": visit.query.get("sessions")},
        ),
        erasures=await _erasures(visit, user),
    )


@pages.hide(_FACT, _whose)
async def show_fact(visit: Visit) -> Response:
    """One fact, its history, and the way back to its messages."""
    user, fact_id = visit.places["user"], visit.places["fact_id"]
    history = await visit.ask(acts.FACT_HISTORY, user=user, fact_id=fact_id)
    explained = await visit.ask(acts.EXPLAIN_FACT, fact_id=fact_id, of_user=user)
    return await visit.page("fact.html", user=user, explained=explained, **history)


pages.act(_USER + "/facts", acts.ADD_FACT, "added", _USER, {"text": str})
pages.act(_FACT + "/correct", acts.REPLACE_FACT, "corrected", _USER, {"text": str})
pages.act(_FACT + "/delete", acts.DELETE_FACT, "deleted", _USER)
pages.act(_FACT + "/settle", acts.SETTLE_FACT, "settled", _USER, {"keep": str})


@pages("POST /users/{user}/export")
async def export_user(visit: Visit) -> Response:
    """All of a user as a file."""
    visit.ask.check(acts.EXPORT_USER)  # here its refusal is still a page
    return _Download(visit, visit.places["user"])


@pages("POST /users/{user}/erase")
async def erase_user(visit: Visit) -> Response:
    """Erase the user whose name was typed."""
    user = visit.places["user"]
    if visit.field("name") != user:
        raise invalid("/name", MISTYPED)
    begun = await visit.ask(acts.ERASE_USER, user=user, headers={"Prefer": f"wait={WAIT_SECONDS}"})
    return way_to(f"{PATH}/erasures/{begun['number']}", done="erasing")


@pages("GET /erasures/{number}")
async def show_erasure(visit: Visit) -> Response:
    """How far an erasure is, and its receipt."""
    erasure = await visit.ask(acts.GET_ERASURE, number=visit.places["number"])
    return await visit.page("erasure.html", erasure=erasure)


class _Download(Response):
    """The answer of the export's route, handed on as it comes, to be kept as a file."""

    def __init__(self, visit: Visit, user: str) -> None:
        super().__init__()
        del self.headers["Content-Length"]
        self._visit = visit
        self._user = user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def hand_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                kind = [pair for pair in message["headers"] if pair[0].lower() == b"content-type"]
                kept = _AS_FILE if message["status"] == HTTPStatus.OK else ()
                message = {**message, "headers": [*kind, *kept, *self.raw_headers]}
            await send(message)

        await self._visit.ask.pass_on(acts.EXPORT_USER, hand_on, user=self._user)


async def _erasures(visit: Visit, user: str) -> list[Any]:
    if not visit.ask.may(acts.USER_ERASURES):
        return []
    items: list[Any] = (await visit.ask(acts.USER_ERASURES, user=user))["items"]
    return items
