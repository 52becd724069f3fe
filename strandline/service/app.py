"""The application: its routes, and the form of every error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cached_property
from urllib.parse import quote as percent_encoded

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strandline.producers.execution import Resources
from strandline.schemas.errors import StrandlineError
from strandline.schemas.settings import Settings
from strandline.schemas.version import VERSION
from strandline.service.access import body_of
from strandline.service.gate.mcp import MakeTools
from strandline.service.gate.places import places_of_validation
from strandline.service.gate.problems import (
    INTERNAL,
    INVALID,
    MALFORMED,
    NO_METHOD,
    NOT_FOUND,
    TOO_LARGE,
    Kind,
    ProblemError,
    problem_response,
    refusal_of,
)
from strandline.service.openapi import describe
from strandline.service.route import ServiceRoute, log_defect
from strandline.service.routes import ROUTERS
from strandline.service.service import Service

_KINDS: dict[int, Kind] = {400: MALFORMED, 404: NOT_FOUND, 405: NO_METHOD, 413: TOO_LARGE, 422: INVALID}


def make_app(resources: Resources, make_tools: MakeTools | None = None) -> FastAPI:
    """The service as an ASGI application, for one process and its event loop.

    Args:
        resources: pools, caches and the doorbell; closed when the application ends.
        make_tools: makes what answers MCP requests; None: the SDK is not installed.
    """
    service = Service(resources, make_tools)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(_threads_for_steps(resources.settings))
        await resources.async_database()
        # Before the first request: making it would hold up all that come at the same time.
        app.state.description = to_json(app.openapi())
        try:
            async with service.mcp.run():
                yield
        finally:
            await service.events.close()
            await service.replays.close()
            await service.erasures.close()
            await service.threads.close()
            service.aside.close()
            await resources.aclose()

    app = ServiceApp(
        # By default it records messages of exceptions, which may quote what users said.
        telemetry={"logs": False, "operation_spans": False},
        title="Strandline",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        separate_input_output_schemas=False,
    )
    app.state.service = service
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    _handle_errors(app)
    describe(app)
    return app


def _threads_for_steps(settings: Settings) -> ThreadPoolExecutor:
    """The threads for steps of operations, such as embedding a query, asking a model, calling a hook.

    A slow model must not hold up the reads of others, so there are as many as such requests at once. A call
    of a model may outlast its request, so those count twice.
    """
    at_once = settings.service_reads_at_once + 2 * settings.service_others_at_once
    return ThreadPoolExecutor(at_once, thread_name_prefix="strandline-steps")


class ServiceApp(FastAPI):
    """FastAPI, and before its steps: paths as they were sent, and the endpoints that are asked most often.

    A session's name may hold a slash, sent as ``%2F``.  To find one of all routes, and to pass all that the
    framework puts around an endpoint, costs as much as refusing a request.
    """

    @cached_property
    def _direct(self) -> list[ServiceRoute]:
        return [route for route in self.router.routes if isinstance(route, ServiceRoute) and route.is_direct]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        scope = {**scope, "path": _sent_path(scope)}
        for route in self._direct:
            if scope["method"] == "POST" and (names := route.path_regex.match(scope["path"])):
                scope |= {"app": self, "path_params": names.groupdict()}
                await route.handle(scope, receive, send)
                return
        try:
            await super().__call__(scope, receive, send)
        except Exception as error:  # noqa: BLE001  # a defect of the way to a route, answered below
            log_defect(error, "")


def _sent_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    path = percent_encoded(scope["path"]) if raw is None else raw.decode("ascii", "replace")
    return path.partition("?")[0]


def _handle_errors(app: FastAPI) -> None:
    async def refuse(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            kind = _KINDS.get(error.status_code, INTERNAL)
            return problem_response(kind, headers=error.headers)
        if isinstance(error, RequestValidationError):
            body = body_of(request.scope["route"])
            return problem_response(INVALID, places_of_validation(error.errors(), body))
        problem = refusal_of(error)
        if problem is None:
            raise error
        return problem.response()

    async def fail(request: Request, error: Exception) -> Response:
        return problem_response(INTERNAL)

    app.add_exception_handler(Exception, fail)
    for kind in (HTTPException, RequestValidationError, ProblemError, StrandlineError):
        app.add_exception_handler(kind, refuse)
