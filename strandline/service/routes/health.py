"""Whether the process lives, whether it may be sent requests, and the description of the service."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from strandline.schemas.errors import StrandlineError
from strandline.schemas.queries.application.service import HasServiceKey
from strandline.schemas.wire.base import HealthOut, ReadinessOut
from strandline.service.forms import json_response
from strandline.service.route import Router
from strandline.service.service import Service

router = Router("health")

READY_SECONDS = 2.0


@router("GET /healthz/live")
async def live(request: Request) -> HealthOut:
    """The process answers; nothing else is asked."""
    return HealthOut(status="ok")


@router("GET /healthz/ready", response_model=ReadinessOut, responses={503: {"model": ReadinessOut}})
async def ready(request: Request) -> Response:
    """The process may be sent requests: Postgres answers it, its tables are there, and it is not stopping."""
    service: Service = request.app.state.service
    reason = "stopping" if service.is_stopping else await service.readiness.tell(lambda: _look(service))
    trouble = service.resources.broker_trouble
    health = ReadinessOut(status="ok" if reason is None else "unavailable", reason=reason, broker=trouble)
    return json_response(health.model_dump(exclude_none=True), 200 if reason is None else 503)


async def _look(service: Service) -> str | None:
    try:
        async with asyncio.timeout(READY_SECONDS):
            database = await service.resources.async_database()
            await database.fetch(HasServiceKey())
    except TimeoutError:
        return "the database does not answer in time"
    except StrandlineError:
        return "the database is not available, or its tables are missing"
    return None


@router("GET /openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """The description of the service, as it was made when the process began."""
    return Response(request.app.state.description, media_type="application/json")
