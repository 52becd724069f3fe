"""The routes by subject; the most used ones come first."""

from __future__ import annotations

from strandline.service import mcp
from strandline.service.routes import (
    admin,
    audit,
    contexts,
    corrections,
    events,
    explain,
    facts,
    health,
    imports,
    keys,
    messages,
    sessions,
    users,
)
from strandline.service.upkeep import erasures, exports

ROUTERS = (
    messages.router,
    contexts.router,
    sessions.router,
    corrections.router,
    facts.router,
    users.router,
    explain.router,
    events.router,
    imports.router,
    erasures.router,
    exports.router,
    keys.router,
    admin.router,
    audit.router,
    mcp.router,
    health.router,
)
