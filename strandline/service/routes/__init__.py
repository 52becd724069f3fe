"""The routes by subject; the most used ones come first."""

from __future__ import annotations

from strandline.service.routes import (
    admin,
    audit,
    contexts,
    erasures,
    events,
    explain,
    exports,
    facts,
    health,
    imports,
    keys,
    mcp,
    messages,
    sessions,
    users,
)

_ROUTERS = (
    messages.routes.router,
    messages.runs.router,
    contexts.routes.router,
    sessions.routes.router,
    messages.corrections.router,
    facts.routes.router,
    users.routes.router,
    explain.routes.router,
    events.routes.router,
    imports.routes.router,
    erasures.routes.router,
    exports.routes.router,
    keys.routes.router,
    admin.routes.router,
    audit.routes.router,
    mcp.router,
    health.router,
)
ROUTES = [route for router in _ROUTERS for route in router.routes]
