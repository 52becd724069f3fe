"""Replays and generations: begun, followed, compared, promoted and rolled back."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from strandline.schemas.values.lanes import PIPELINES
from strandline.schemas.wire import acts
from strandline.service.pages.asking import AnswerError
from strandline.service.pages.routing import Pages
from strandline.service.pages.sessions import PATH
from strandline.service.pages.visits import Visit, way_to

pages = Pages()
OPERATIONS_SHOWN = 20


@pages("GET /replays")
async def show_replays(visit: Visit) -> Response:
    """Generations of each pipeline, and replays, newest first."""
    return await visit.page(
        "replays.html",
        generations=(await visit.ask(acts.GET_GENERATIONS))["generations"],
        operations=(await visit.ask(acts.GET_OPERATIONS, query={"limit": OPERATIONS_SHOWN}))["items"],
        pipelines=[*PIPELINES],
    )


@pages("GET /replays/{operation_id}")
async def show_replay(visit: Visit) -> Response:
    """How far a replay is."""
    operation = await visit.ask(acts.GET_OPERATION, operation_id=visit.places["operation_id"])
    return await visit.page("replay.html", operation=operation)


@pages("GET /generations/{generation}")
async def show_generation(visit: Visit) -> Response:
    """A generation, and how much it differs from the one in use."""
    number = visit.places["generation"]
    try:
        diff = await visit.ask(acts.DIFF_GENERATION, generation=number)
        refused = None
    except AnswerError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        diff, refused = None, error.problem["detail"]
    return await visit.page("generation.html", number=number, diff=diff, refused=refused)


@pages("POST /replays")
async def begin(visit: Visit) -> Response:
    """Begin a replay, or estimate its work."""
    body = {"pipeline": visit.field("pipeline")}
    flags = {name: True for name in ("new", "force", "hold", "dead_letters") if visit.field(name)}
    if visit.field("estimate"):
        estimates = await visit.ask(acts.ESTIMATE_REPLAY, body={**body, **flags})
        return await visit.page("estimate.html", estimates=estimates["pipelines"])
    begun = await visit.ask(acts.POST_REPLAY, body={**body, **flags})
    return way_to(f"{PATH}/replays/{begun['operation_id']}", done="begun")


pages.act("/replays/{operation_id}/stop", acts.STOP_OPERATION, "stopping", "/replays/{operation_id}")
pages.act("/generations/{generation}/promote", acts.PROMOTE_GENERATION, "promoted", "/replays", {})
pages.act("/pipelines/{pipeline}/rollback", acts.ROLL_PIPELINE_BACK, "rolled", "/replays")
