"""One request for a page: its visitor, its fields, and the answers to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response
from starlette.types import Scope

from strandline.schemas.wire import acts
from strandline.service.pages.asking import Asking
from strandline.service.pages.operations import STANDING
from strandline.service.pages.rendering import render
from strandline.service.pages.sessions import OWN_PATH, Sealer
from strandline.service.service import Service

MAX_DIGITS = 17
_PART = re.compile(r"[0-9]{1,4} of [0-9]{1,4}")
# Texts shown after an act, by `?done=`; `?part=` goes into the braces.
NOTICES = {
    "due": "The events are due again.",
    "dropped": "The events are given up.",
    "part-due": "{} dead letters are due again; for the others nothing was left to do.",
    "part-dropped": "{} dead letters are given up; for the others nothing was left to do.",
    "gone": "Nothing was left to do: the events are retried, given up, taken back, or no longer in use.",
    "unticked": "Nothing was ticked, so nothing was changed.",
    "added": "The fact is stored.",
    "corrected": "The fact has its new words.",
    "deleted": "The fact is deleted, and does not come back from earlier messages.",
    "settled": "The doubt is settled.",
    "erasing": "Nothing more is stored for this user; erasing continues.",
    "replaced": "The message has its new content; memory of it is derived again.",
    "rewound": "The messages are taken back, with all derived from them.",
    "forked": "This session is the copy.",
    "flushed": "The messages are delivered to the pipelines.",
    "promoted": "The generation serves.",
    "rolled": "The earlier generation serves again.",
    "begun": "The replay is under way.",
    "stopping": "The replay will stop.",
}


@dataclass(slots=True)
class Visit:
    """One request.

    Attributes:
        scope: of the request.
        ask: asks the service's routes with the session's keys.
        places: the names in the path.
        query, fields: of the address, and of the form that was sent.
        token: the proof in the session's forms.
        ends_at: when the session ends, in seconds since 1970.
        is_revealed: whether stored content is shown in this answer.
    """

    scope: Scope
    ask: Asking
    places: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, list[str]] = field(default_factory=dict)
    token: str = ""
    ends_at: int = 0
    is_revealed: bool = False

    def field(self, name: str) -> str | None:
        """One field of the form; None where it is missing or blank."""
        text = self.fields.get(name, [""])[0].replace("\r\n", "\n")  # as browsers write each end of line
        return text if text.strip() else None

    async def user_of_session(self) -> str:
        """The user of the session in the path, whom routes about it ask for; empty: none."""
        picture = await self.ask(acts.GET_SESSION, session_id=self.places["session_id"])
        return picture["session"]["user_id"] or ""

    @property
    def service(self) -> Service:
        """Shared by the requests of the process."""
        service: Service = self.scope["app"].state.service
        return service

    @property
    def sealer(self) -> Sealer:
        sealer: Sealer = self.scope["app"].state.sealer
        return sealer

    @property
    def path(self) -> str:
        """Of this page, revealed or not."""
        path: str = self.scope["path"]
        return path.removesuffix("/reveal") if self.is_revealed else path

    @property
    def is_own(self) -> bool:
        """Whether it is for the view of one's own memory."""
        return f"{self.scope['path']}/".startswith(f"{OWN_PATH}/")

    def address(self, path: str, **changed: str) -> str:
        """A path with the filters of this page, some of them changed."""
        filters = {name: value for name, value in self.query.items() if name not in ("done", "part")}
        query = urlencode(filters | changed)
        return f"{path}?{query}" if query else path

    @property
    def notice(self) -> str | None:
        """The text about the act that led here."""
        notice, part = NOTICES.get(self.query.get("done", "")), self.query.get("part", "")
        return notice and notice.format(part if _PART.fullmatch(part) else "Some")

    @property
    def namespace(self) -> str | None:
        """The one that a key of the session opens."""
        return next((key.namespace for key in self.ask.keys if key.namespace is not None), None)

    @property
    def user(self) -> str | None:
        """The user of a key that is one user's."""
        return next((key.user_id for key in self.ask.keys if key.user_id is not None), None)

    async def page(self, template: str, status: int = HTTPStatus.OK, **values: Any) -> Response:
        """A page, with what its frame needs; made in a thread, since revealed content may be large."""
        frame = {
            "visit": self,
            "may": self.ask.may,
            "acts": acts,
            "standing_act": STANDING,
        }
        content = await asyncio.to_thread(render, template, **frame, **values)
        return Response(content, status, media_type="text/html")


def way_to(path: str, **query: str) -> Response:
    """Send the browser on with a GET, after an act."""
    address = f"{path}?{urlencode(query)}" if query else path
    return Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": address})


def number_in(text: str) -> int:
    """The number in a field; 0 for other text, which no route takes."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < MAX_DIGITS else 0
