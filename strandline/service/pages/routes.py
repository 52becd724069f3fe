"""All routes of the page."""

from __future__ import annotations

from strandline.service.pages import conversations, letters, login, now, own, replays, statics, users

PAGE_ROUTES = [
    *now.pages.routes,
    *users.pages.routes,
    *conversations.pages.routes,
    *replays.pages.routes,
    *letters.pages.routes,
    *login.pages.routes,
    *own.pages.routes,
    *statics.pages.routes,
]
