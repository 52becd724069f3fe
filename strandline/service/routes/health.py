"""Whether the process lives, whether it may be sent requests, its parts, its metrics and its description."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.util import find_spec
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from strandline.administration.status import read_standing
from strandline.pipelines.models.provided.breaker import breaker_states
from strandline.schemas.errors import StrandlineError
from strandline.schemas.queries.application.service import HasServiceKey
from strandline.schemas.wire.base import CapabilitiesOut, CapabilityOut, HealthOut, ReadinessOut
from strandline.service.access import Access
from strandline.service.forms import json_response
from strandline.service.gate.problems import NOT_FOUND, ProblemError
from strandline.service.route import Call, Router
from strandline.service.service import Service

router = Router("health")

READY_SECONDS = 2.0
_HAS_METRICS = find_spec("prometheus_client") is not None


@router("GET /healthz/live")
async def live(request: Request) -> HealthOut:
    """The process answers; nothing else is asked."""
    return HealthOut(status="ok")


@router("GET /healthz/ready", response_model=ReadinessOut, responses={503: {"model": ReadinessOut}})
async def ready(request: Request) -> Response:
    """The process may be sent requests: Postgres answers it, its tables are there, and it is not stopping."""
    service: Service = request.app.state.service
    reason = await _reason(service)
    trouble = service.resources.broker_trouble
    health = ReadinessOut(status="ok" if reason is None else "unavailable", reason=reason, broker=trouble)
    return json_response(health.model_dump(exclude_none=True), 200 if reason is None else 503)


@router("GET /healthz")
async def capabilities(request: Request) -> CapabilitiesOut:
    """The parts of the service: served, missing, or degraded; Postgres alone is asked."""
    service: Service = request.app.state.service
    reason = await _reason(service)
    parts = [_part("database", failing=reason), *_parts(service)]
    status = "degraded" if any(part.state == "degraded" for part in parts) else "ok"
    return CapabilitiesOut(
        status=status if reason is None else "unavailable", reason=reason, capabilities=parts
    )


def _parts(service: Service) -> list[CapabilityOut]:
    settings, refused = service.settings, breaker_states().get("query_embedding")
    keyring = settings.keyring_file or settings.keyring_keys or settings.keyring
    return [
        _part("broker", settings.broker_url is not None, service.resources.broker_trouble),
        _part("search by meaning", settings.backend("query_embedding") != "none", refused or None),
        _part("encrypted content", keyring is not None),
        _part("signed receipts", service.signer is not None),
        _part("page", settings.service_page_secret is not None),
        _part("tools by MCP", service.tools is not None),
        _part("metrics", _HAS_METRICS),
        _part("traces", settings.traces),
    ]


def _part(name: str, is_there: bool = True, failing: str | None = None) -> CapabilityOut:
    if not is_there:
        return CapabilityOut(name=name, state="missing", reason="not set up")
    return CapabilityOut(name=name, state="served" if failing is None else "degraded", reason=failing)


@router("GET /metrics", include_in_schema=False)
@Access("operate", "others", (), holder="installation")
async def metrics(call: Call) -> Response:
    """The numbers of the database and of this process, for Prometheus."""
    if not _HAS_METRICS:
        raise ProblemError(NOT_FOUND)
    from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

    from strandline.administration.metrics import DatabaseCollector

    def write(database: Any) -> bytes:
        registry = CollectorRegistry()
        registry.register(DatabaseCollector(partial(read_standing, database, call.service.settings)))
        return generate_latest(registry) + generate_latest(REGISTRY)

    return Response(await call.block(write), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _reason(service: Service) -> str | None:
    """Why it should get no requests; None if it may."""
    return "stopping" if service.is_stopping else await service.readiness.tell(lambda: _look(service))


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
