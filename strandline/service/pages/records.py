"""Tables to look at alone: the trail, keys, and models."""

from __future__ import annotations

from starlette.responses import Response

from strandline.schemas.wire import acts
from strandline.service.pages.operations import MODELS, STANDING
from strandline.service.pages.routing import Pages
from strandline.service.pages.visits import Visit

pages = Pages()


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
