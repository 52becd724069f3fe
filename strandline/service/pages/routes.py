"""All routes of the page."""

from __future__ import annotations

from strandline.service.pages import letters, login, now, statics

PAGE_ROUTES = [
    *now.pages.routes,
    *letters.pages.routes,
    *login.pages.routes,
    *statics.pages.routes,
]
