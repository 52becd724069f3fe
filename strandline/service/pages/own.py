"""One's own memory: the view of a key of one user, which pages of named origins may show in a frame.

Such a page sends the key by a form.  The session's cookie then opens this view alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope

from strandline.schemas.wire import acts
from strandline.service.gate.heads import address_in, is_loopback
from strandline.service.gate.problems import FORBIDDEN, UNAUTHENTICATED, ProblemError
from strandline.service.gate.web_pages import names_in
from strandline.service.pages.operations import REVEAL
from strandline.service.pages.routing import HEADERS, Endpoint, PageRoute, Pages, check_source
from strandline.service.pages.sessions import (
    OWN_COOKIE,
    OWN_PATH,
    SESSION_SECONDS,
    PageSession,
    cookie_header,
)
from strandline.service.pages.users import FACTS_SHOWN
from strandline.service.pages.visits import Visit, way_to
from strandline.service.service import Service

ENDED = "This view has ended; load the page around it again."
IN_CLEAR = (
    "This view takes a key over TLS, or on this machine alone. Load the page around it and the view by https://;"
    " behind a proxy, set STRANDLINE_SERVICE_TRUSTED_PROXIES, and have the proxy pass X-Forwarded-Proto on."
)
OF_ONE_USER = "This view takes a key of one user."
_POLICY = "Content-Security-Policy"


class OwnRoute(PageRoute):
    """A route of the view; its user is the key's."""

    cookie = OWN_COOKIE

    def __init__(self, method: str, path: str, endpoint: Endpoint, *, is_open: bool = False) -> None:
        async def answer(visit: Visit) -> Response:
            if visit.user is None:
                raise ProblemError(FORBIDDEN, detail=OF_ONE_USER)
            visit.places = {**visit.places, "user": visit.user}
            return await endpoint(visit)

        super().__init__(method, path, answer, is_open=is_open)

    def _headers(self, service: Service) -> Mapping[str, str]:
        origins = " ".join(sorted(names_in(service.settings.service_page_origins)))
        if not origins:
            return HEADERS
        policy = HEADERS[_POLICY].replace("frame-ancestors 'none'", f"frame-ancestors {origins}")
        framed = {name: value for name, value in HEADERS.items() if name != "X-Frame-Options"}
        return framed | {_POLICY: policy}

    def _without_session(self, headers: Mapping[bytes, bytes]) -> Response:
        raise ProblemError(UNAUTHENTICATED, detail=ENDED)


class _Entrance(OwnRoute):
    """Takes the key, from the page around the view."""

    async def _answer(self, scope: Scope, receive: Receive, visit: Visit) -> Response:
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        if origin not in names_in(visit.service.settings.service_page_origins):
            check_source(headers)
        if scope["scheme"] != "https" and not _is_this_machine(headers.get(b"host", b"").decode("latin-1")):
            raise ProblemError(FORBIDDEN, detail=IN_CLEAR)
        await self._read_form(receive, visit)
        key = await visit.service.keys.find(visit.field("key") or "-")
        if key.user_id is None:
            raise ProblemError(FORBIDDEN, detail=OF_ONE_USER)
        session = PageSession((key.key_id,), int(time.time()) + SESSION_SECONDS)
        response = way_to(OWN_PATH)
        response.headers["Set-Cookie"] = cookie_header(
            visit.sealer.seal(session), is_secure=True, is_own=True
        )
        return response


def _is_this_machine(host: str) -> bool:
    return is_loopback(address_in(host) or host.partition(":")[0].lower())


pages = Pages(OwnRoute)


@pages("GET /own")
async def show_own(visit: Visit) -> Response:
    """Facts and sessions of the key's user, and the summary of one session."""
    user = visit.places["user"]
    await visit.ask(REVEAL, body={"user": user})
    visit.is_revealed = True
    query: dict[str, Any] = {"limit": FACTS_SHOWN, "cursor": visit.query.get("cursor")}
    facts = await visit.ask(acts.LIST_FACTS, user=user, query=query)
    query["cursor"] = visit.query.get("sessions")
    sessions = await visit.ask(acts.GET_SESSIONS, query=query)
    newest = next((one["session_id"] for one in sessions["items"]), None)
    session_id, summary = visit.query.get("session") or newest, None
    if session_id is not None:
        summary = (await visit.ask(acts.READ_CONTEXT, session_id=session_id, body={}))["summary"]
    shown = {"facts": facts, "sessions": sessions, "session_id": session_id, "summary": summary}
    return await visit.page("own.html", **shown)


pages.routes.append(_Entrance("POST", "/own", show_own))
pages.act("/own/facts", acts.ADD_FACT, "added", "/own", {"text": str})
pages.act("/own/facts/{fact_id}/correct", acts.REPLACE_FACT, "corrected", "/own", {"text": str})
pages.act("/own/facts/{fact_id}/delete", acts.DELETE_FACT, "deleted", "/own")
