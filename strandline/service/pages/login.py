"""Login by a key, which begins a session or joins the session of the browser; and logout."""

from __future__ import annotations

import time

from starlette.responses import Response

from strandline.service.gate.problems import UNAUTHENTICATED, ProblemError
from strandline.service.pages.routing import LOGIN, Pages
from strandline.service.pages.sessions import PATH, SESSION_SECONDS, PageSession, cookie_header
from strandline.service.pages.visits import Visit, way_to

pages = Pages()
# One of a namespace, and one of the installation.
MAX_KEYS = 2


@pages("GET /login", is_open=True)
async def show_login(visit: Visit) -> Response:
    """The form for a key."""
    return await visit.page("login.html", refused=None)


@pages("POST /login", is_open=True)
async def log_in(visit: Visit) -> Response:
    """Begin a session with the keys that were typed, or add them to it."""
    keys, proved = {key.namespace is None: key for key in visit.ask.keys}, set[str]()
    try:
        for text in (visit.field("key") or "-").split()[:MAX_KEYS]:
            key = await visit.service.keys.find(text)
            keys[key.namespace is None] = key
            proved.add(key.key_id)
    except ProblemError as problem:
        if problem.kind is not UNAUTHENTICATED:
            raise
        return await visit.page("login.html", problem.kind.status, refused="The key is unknown or has ended.")
    key_ids = tuple(key.key_id for key in keys.values())
    ends_at = int(time.time()) + SESSION_SECONDS
    if not proved.issuperset(key_ids):  # the time of a key is from its own proof
        ends_at = min(ends_at, visit.ends_at)
    session = PageSession(key_ids, ends_at)
    response = way_to(PATH)
    is_secure = visit.scope["scheme"] == "https"
    response.headers["Set-Cookie"] = cookie_header(visit.sealer.seal(session), is_secure=is_secure)
    return response


@pages("POST /logout")
async def log_out(visit: Visit) -> Response:
    """End the session in this browser."""
    response = way_to(LOGIN)
    is_secure = visit.scope["scheme"] == "https"
    response.headers["Set-Cookie"] = cookie_header("", is_secure=is_secure, seconds=0)
    return response
