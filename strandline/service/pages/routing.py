"""The page's routes: session, proof of the form, headers; then the endpoint, whose answers are pages."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, quote, unquote
from uuid import uuid4

from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from strandline.schemas.queries.application.service import FindServiceKeysRow
from strandline.schemas.wire.acts import WireAct
from strandline.service.gate.bodies import ClientGone, read_body
from strandline.service.gate.places import NAME_EXPECTED
from strandline.service.gate.problems import (
    FORBIDDEN,
    INTERNAL,
    MALFORMED,
    UNAUTHENTICATED,
    ProblemError,
    invalid,
    refusal_of,
)
from strandline.service.gate.sending import Sending
from strandline.service.pages.asking import PLACES, AnswerError, Asking
from strandline.service.pages.operations import REVEAL
from strandline.service.pages.sessions import COOKIE, PATH, PageSession, cookie_in
from strandline.service.pages.visits import Visit, way_to
from strandline.service.route import log_defect
from strandline.service.service import Service

Endpoint = Callable[[Visit], Awaitable[Response]]
Reader = Callable[[str], object]
Subject = Callable[[Visit], Awaitable[Mapping[str, Any]]]

LOGIN = f"{PATH}/login"
MAX_FORM_BYTES = 65_536
MAX_FORM_FIELDS = 500
FORM_REFUSED = "This form does not come from a page of this session; open the page again, and send it there."
# Nothing is loaded from elsewhere, run from within a page, or shown in another's frame.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageRoute(Route):
    """A route of the page.

    Args:
        is_open: it needs no session.
    """

    has_head = False
    cookie = COOKIE

    def __init__(self, method: str, path: str, endpoint: Endpoint, *, is_open: bool = False) -> None:
        super().__init__(PATH + path, endpoint, include_in_schema=False)
        self.method, self.methods = method, {method}
        self._is_open = is_open
        self._respond = endpoint

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; a refusal is a page as well."""
        service: Service = scope["app"].state.service
        sending = Sending(send, seconds=service.settings.service_body_seconds, closes=service.is_stopping)
        visit = Visit(scope, Asking(scope, receive, ()))
        try:
            response = await self._answer(scope, receive, visit)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001  # the outermost edge of a request
            response = await _refusal(visit, error, self.path_format)
        for name, value in self._headers(service).items():
            response.headers.setdefault(name, value)
        await response(scope, receive, sending)

    async def _answer(self, scope: Scope, receive: Receive, visit: Visit) -> Response:
        headers = dict(scope["headers"])
        service, sealer = visit.service, visit.sealer
        cookie = cookie_in(headers.get(b"cookie"), self.cookie)
        session = sealer.open(cookie, time.time())
        if not self._is_open:  # without a session there is no act to give notice of
            visit.query = {name: values[-1] for name, values in _fields_in(scope["query_string"]).items()}
        keys = await _keys_of(service, session)
        visit.ends_at = 0 if session is None else session.ends_at
        visit.ask, visit.token = Asking(scope, receive, keys), sealer.token(cookie)
        if not keys and not self._is_open:
            return self._without_session(headers)
        visit.places = {name: _place(name, value) for name, value in scope["path_params"].items()}
        if self.method == "POST":
            check_source(headers)
            await self._read_form(receive, visit)
            if keys and not sealer.is_token(cookie, visit.field("token") or ""):
                raise ProblemError(FORBIDDEN, detail=FORM_REFUSED)
        return await self._respond(visit)

    async def _read_form(self, receive: Receive, visit: Visit) -> None:
        seconds = visit.service.settings.service_body_seconds
        visit.fields = _fields_in(await read_body(receive, max_bytes=MAX_FORM_BYTES, seconds=seconds))

    def _headers(self, service: Service) -> Mapping[str, str]:
        return HEADERS

    def _without_session(self, headers: Mapping[bytes, bytes]) -> Response:
        return _to_login(headers)


class Refusing(PageRoute):
    """Answers a request for a path, or with a method, that the page does not have."""

    def __init__(self, problem: ProblemError) -> None:
        async def refuse(_: Visit) -> Response:
            raise problem

        super().__init__("GET", "/{path:path}", refuse, is_open=True)

    async def _answer(self, scope: Scope, receive: Receive, visit: Visit) -> Response:
        return await self._respond(visit)


class Pages:
    """The routes of the page's subjects, in the order in which they are declared."""

    def __init__(self, route: type[PageRoute] = PageRoute) -> None:
        self._route = route
        self.routes: list[PageRoute] = []

    def __call__(self, route: str, *, is_open: bool = False) -> Callable[[Endpoint], Endpoint]:
        """Make a function the endpoint of ``METHOD /path`` below the page's own path."""
        method, path = route.split()

        def declare(endpoint: Endpoint) -> Endpoint:
            self.routes.append(self._route(method, path.rstrip("/"), endpoint, is_open=is_open))
            return endpoint

        return declare

    def hide(self, path: str, whose: Subject) -> Callable[[Endpoint], Endpoint]:
        """Make a function the endpoint of ``GET /path``, which hides content until a recorded reveal.

        Args:
            path: below the page's own path; the reveal is sent to ``/reveal`` below it.
            whose: the arguments of the reveal.
        """

        def declare(endpoint: Endpoint) -> Endpoint:
            async def reveal(visit: Visit) -> Response:
                await visit.ask(REVEAL, **await whose(visit))
                visit.is_revealed = True
                return await endpoint(visit)

            self.routes.append(PageRoute("GET", path, endpoint))
            self.routes.append(PageRoute("POST", f"{path}/reveal", reveal))
            return endpoint

        return declare

    def act(
        self, path: str, act: WireAct, done: str, back: str, body: Mapping[str, Reader] | None = None
    ) -> None:
        """Answer the form of ``POST /path`` by one act.

        Args:
            path: below the page's own path, as ``back``.
            act: its path's names, and ``version`` for If-Match, come from the path and the form.
            done: the notice.
            back: the page that follows, with names of the path and of the act's answer.
            body: reads each field of the act's body from the form; None: it has none.
        """
        names = [*PLACES.findall(act.path)]

        async def answer(visit: Visit) -> Response:
            asked: dict[str, Any] = {
                name: visit.places.get(name) or visit.field(name) or "" for name in names
            }
            if act.names_user:
                asked["of_user"] = await visit.user_of_session()
            if version := visit.field("version"):
                asked["headers"] = {"If-Match": f'"{version}"'}
            if body is not None:
                asked["body"] = {name: read(visit.field(name) or "") for name, read in body.items()}
            values = {**visit.places, **(await visit.ask(act, **asked) or {})}
            return way_to(
                PATH + PLACES.sub(lambda match: quote(str(values[match[1]]), safe=""), back), done=done
            )

        self.routes.append(self._route("POST", path, answer))


def check_source(headers: Mapping[bytes, bytes]) -> None:
    """Raise a problem for a form that a page of another origin has sent.

    Since the page gives no referrer, browsers call the origin of its forms ``null``, and Sec-Fetch-Site says
    that they are its own; they say it over TLS and to loopback.
    """
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin", b"").decode("latin-1").lower()
    is_own = site == b"same-origin" if site is not None else origin != "null"
    host = headers.get(b"host", b"").decode("latin-1").lower()
    is_elsewhere = origin not in ("", "null") and origin.partition("://")[2] != host
    if not is_own or is_elsewhere:
        raise ProblemError(FORBIDDEN, detail=FORM_REFUSED)


async def _keys_of(service: Service, session: PageSession | None) -> list[FindServiceKeysRow]:
    """The keys of a session that still open."""
    keys = []
    for key_id in () if session is None else session.key_ids:
        try:
            keys.append(await service.keys.find_by_id(key_id))
        except ProblemError as problem:
            if problem.kind is not UNAUTHENTICATED:
                raise
    return keys


def _fields_in(text: bytes) -> dict[str, list[str]]:
    try:
        fields = parse_qs(
            text.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS, errors="strict"
        )
    except ValueError:
        raise ProblemError(MALFORMED) from None
    return fields


def _place(name: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise invalid(f"/path/{name}", NAME_EXPECTED) from None


def _to_login(headers: Mapping[bytes, bytes]) -> Response:
    if b"hx-request" in headers:
        return Response(status_code=HTTPStatus.UNAUTHORIZED, headers={"HX-Redirect": LOGIN})
    return way_to(LOGIN)


async def _refusal(visit: Visit, error: Exception, route: str) -> Response:
    """The page about a refusal: the problem that a client would get, in the same words."""
    if isinstance(error, AnswerError):
        return await visit.page("refusal.html", error.status, problem=error.problem)
    refusal = refusal_of(error)
    if refusal is None:
        refusal = ProblemError(INTERNAL, instance=f"urn:uuid:{uuid4()}")
        log_defect(error, route, refusal.instance)
    problem = json.loads(bytes(refusal.response().body))
    page = await visit.page("refusal.html", refusal.kind.status, problem=problem)
    page.headers.update(refusal.headers)
    return page
