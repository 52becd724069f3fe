"""Tables to look at alone: the trail, keys, and spend."""

from __future__ import annotations

from starlette.responses import Response

from strandline.schemas.wire import acts
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


@pages("GET /spend")
async def show_spend(visit: Visit) -> Response:
    """The ledger of model calls, and the totals of the tables."""
    return await visit.page("spend.html", totals=await visit.ask(acts.GET_STATUS))
