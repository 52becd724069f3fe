"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent_encoded

from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from strandline.schemas.settings import Settings
from strandline.service.gate.problems import NO_METHOD, NO_ROUTE, ProblemError
from strandline.service.gate.web_pages import WebPages, is_preflight, preflight, telling
from strandline.service.openapi import describe
from strandline.service.route import ServiceRoute
from strandline.service.routes import ROUTES
from strandline.service.service import Service
from strandline.wiring.runtime import runtime_for

if TYPE_CHECKING:
    from strandline.producers.tools.mcp_http import HttpTools
    from strandline.service.pages.routing import PageRoute, Refusing


class ServiceApp(Starlette):
    """The service as an ASGI application, for one process and its event loop."""

    def __init__(self, service: Service) -> None:
        super().__init__(routes=ROUTES, lifespan=_lifespan)
        self.state.service = service
        self._web_pages = WebPages.from_settings(service.settings)
        self._routes: list[ServiceRoute | PageRoute] = [*ROUTES]
        self._refusing: type[Refusing] | None = None
        if (secret := service.settings.service_page_secret) is not None:
            # Without the page its templates are not read.
            from strandline.service.pages.routes import PAGE_ROUTES
            from strandline.service.pages.routing import Refusing
            from strandline.service.pages.sessions import Sealer

            self.state.sealer = Sealer(secret.get_secret_value())
            self._routes += PAGE_ROUTES
            self._refusing = Refusing

    def openapi(self) -> dict[str, Any]:
        """The description of the service."""
        return describe()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or serve the lifespan; each route answers its own errors, so no middleware does.

        A session's name may hold a slash, sent as ``%2F``, so routes match the path as it was sent.  They are
        tried in turn without Starlette's steps between, which cost a put some microseconds.
        """
        if scope["type"] != "http":
            scope["app"] = self
            await self.router(scope, receive, send)
            return
        path, methods, asked = _sent_path(scope), set(), scope["method"]
        origin = self._web_pages.page_of(scope, path)
        if origin is not None:
            send = telling(send, origin)
        for route in self._routes:
            if names := route.path_regex.match(path):
                if asked == route.method or (asked == "HEAD" and route.has_head):
                    named = {"method": route.method, "path": path, "path_params": names.groupdict()}
                    await route.handle({**scope, **named, "app": self}, receive, send)
                    return
                methods |= {route.method, "HEAD"} if route.has_head else {route.method}
        problem = ProblemError(NO_ROUTE)
        if methods:
            problem = ProblemError(NO_METHOD, headers={"Allow": ", ".join(sorted(methods))})
        response = problem.response()
        if methods and origin is not None and is_preflight(scope):
            response = preflight(methods)
        elif self._refusing is not None and f"{path}/".startswith("/page/"):
            await self._refusing(problem).handle({**scope, "path": path, "app": self}, receive, send)
            return
        await response(scope, receive, send)


@asynccontextmanager
async def _lifespan(app: ServiceApp) -> AsyncIterator[None]:
    service: Service = app.state.service
    asyncio.get_running_loop().set_default_executor(_threads_for_steps(service.settings))
    await service.resources.async_database()
    # Before the first request: making it would hold up all that come at the same time.
    app.state.description = to_json(app.openapi())
    try:
        async with nullcontext() if service.tools is None else service.tools.run():
            yield
    finally:
        await service.events.close()
        await service.replays.close()
        await service.erasures.close()
        await service.threads.close()
        service.aside.close()
        await service.resources.aclose()


def build_service(settings: Settings) -> ServiceApp:
    """The service on the configured servers, without a connection; raises ConfigurationError."""
    return ServiceApp(Service(runtime_for(settings), _tools_if_installed()))


def _tools_if_installed() -> HttpTools | None:
    try:
        from strandline.producers.tools.mcp_http import HttpTools
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        return None
    return HttpTools()


def _threads_for_steps(settings: Settings) -> ThreadPoolExecutor:
    """The threads for steps of operations, such as embedding a query, asking a model, calling a hook.

    A slow model must not hold up the reads of others, so there are as many as such requests at once. A call
    of a model may outlast its request, so those count twice.
    """
    at_once = settings.service_reads_at_once + 2 * settings.service_others_at_once
    return ThreadPoolExecutor(at_once, thread_name_prefix="strandline-steps")


def _sent_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    path = percent_encoded(scope["path"]) if raw is None else raw.decode("ascii", "replace")
    return path.partition("?")[0]
