"""All routes of the page, and its own files: its style, its picture, and htmx, which refreshes live parts."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response

from strandline.service.gate.problems import NOT_FOUND, ProblemError
from strandline.service.pages import conversations, letters, login, now, own, replays, users
from strandline.service.pages.routing import Pages
from strandline.service.pages.visits import Visit

pages = Pages()
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {
    path.name: (path.read_bytes(), _KINDS[path.suffix])
    for path in (Path(__file__).parent / "static").iterdir()
    if path.suffix in _KINDS
}


@pages("GET /static/{name}", is_open=True)
async def show_file(visit: Visit) -> Response:
    """One of them."""
    file = _FILES.get(visit.places["name"])
    if file is None:
        raise ProblemError(NOT_FOUND)
    content, kind = file
    return Response(content, media_type=kind, headers={"Cache-Control": "public, max-age=3600"})


PAGE_ROUTES = [
    *now.pages.routes,
    *users.pages.routes,
    *conversations.pages.routes,
    *replays.pages.routes,
    *letters.pages.routes,
    *login.pages.routes,
    *own.pages.routes,
    *pages.routes,
]
