"""The routes, by what they are about; those that are asked most often come first."""

from __future__ import annotations

from strandline.producers.service.routes import (
    contexts,
    corrections,
    facts,
    health,
    keys,
    messages,
    sessions,
    users,
)

ROUTERS = (
    messages.router,
    contexts.router,
    sessions.router,
    corrections.router,
    facts.router,
    users.router,
    keys.router,
    health.router,
)
