"""Now: whether memory keeps up, and why not; and tables to look at alone: the trail, keys, and models."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from strandline.schemas.wire import acts
from strandline.service.pages.operations import DUE_LONGEST, MODELS, STANDING
from strandline.service.pages.routing import PageRoute, Pages
from strandline.service.pages.sessions import PATH
from strandline.service.pages.visits import Visit, way_to

pages = Pages()
NAMESPACES_SHOWN = 50


@pages("GET /")
async def show_home(visit: Visit) -> Response:
    """The subject of the keys: the stages, the namespace, or the one user."""
    if visit.user is not None and not visit.ask.may(STANDING):
        return way_to(f"{PATH}/users/{quote(visit.user, safe='')}")
    return await visit.page("now.html", **await _look(visit))


pages.routes.append(PageRoute("GET", "/", show_home))  # as people type it


@pages("GET /live")
async def show_live(visit: Visit) -> Response:
    """The part of it that is refreshed."""
    return await visit.page("now_live.html", **await _look(visit))


@pages("POST /longest")
async def show_longest(visit: Visit) -> Response:
    """The session that waits longest for each stage; the trail records that names are shown."""
    return await visit.page("longest.html", waiting=(await visit.ask(DUE_LONGEST))["items"])


async def _look(visit: Visit) -> dict[str, Any]:
    standing = await visit.ask(STANDING) if visit.ask.may(STANDING) else None
    limits = None
    if standing is None and visit.ask.may(acts.GET_NAMESPACES):
        limits = (await visit.ask(acts.GET_NAMESPACES))["namespaces"]
    elif standing is not None:
        limits = standing["limits"]
    return {
        "standing": standing,
        "limits": (limits or [])[:NAMESPACES_SHOWN],
        "paused": "paused" in visit.query,
    }


@pages("GET /trail")
async def show_trail(visit: Visit) -> Response:
    """Who did what, newest first."""
    query = {name: visit.query.get(name) for name in ("cursor", "kind", "actor", "user_id")}
    trail = await visit.ask(acts.GET_ACTS, query={**query, "namespace": visit.namespace})
    return await visit.page("trail.html", trail=trail)


@pages("GET /keys")
async def show_keys(visit: Visit) -> Response:
    """The keys, without their secrets."""
    keys = await visit.ask(acts.GET_KEYS, query={"cursor": visit.query.get("cursor")})
    return await visit.page("keys.html", keys=keys)


@pages("GET /models")
async def show_models(visit: Visit) -> Response:
    """The calls of each model, its last answer, and the stages that a model keeps waiting."""
    calls = (await visit.ask(MODELS))["items"]
    return await visit.page("models.html", calls=calls, standing=await visit.ask(STANDING))
