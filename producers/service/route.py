"""The way of a request: key, scope, permit, body, deadline; then the endpoint.

In this order, since each step costs more than the one before: a request without a key reads nothing from the
database, one that is not admitted leaves its body unread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl
from uuid import uuid4

from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from strandline.producers.service.direct import direct_of
from strandline.producers.service.gate.authentication import (
    Caller,
    Holder,
    caller_of,
    check_scope,
)
from strandline.producers.service.gate.bodies import ClientGone, given_again, is_long, read_body
from strandline.producers.service.gate.heads import (
    bearer_in,
    check_media_type,
    fingerprint_of,
    headers_of,
    preferred_seconds,
    route_of,
    text_in,
)
from strandline.producers.service.gate.limits import Asker
from strandline.producers.service.gate.problems import (
    INTERNAL,
    INVALID,
    MALFORMED,
    STOPPING,
    TIMED_OUT,
    ProblemError,
    invalid,
    refusal_of,
)
from strandline.producers.service.gate.sending import Sending
from strandline.producers.service.service import Queue, Service
from strandline.schemas.errors import StrandlineError
from strandline.schemas.queries.application.service import FindServiceKeysRow
from strandline.schemas.values.acts.acting import acting
from strandline.schemas.values.identity import MAX_NAME_BYTES
from strandline.schemas.wire.base import IDEMPOTENCY_HEADER, NO_USER, USER_HEADER, ProblemPlace
from strandline.schemas.wire.keys import Scope as KeyScope

logger = logging.getLogger("strandline.service")

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_ACCESS = "__strandline_access__"
_CALL = "strandline.call"
MAX_KEY_BYTES = 512
MAX_QUERY_FIELDS = 100
_USER, _KEY = USER_HEADER.lower().encode(), IDEMPOTENCY_HEADER.lower().encode()
USER_MISSING = (
    "It is missing: this key is not one user's, so the request says whose session it is;"
    f" `{NO_USER}` says that it has no user."
)


# What a request does that comes again.  With an Idempotency-Key: its response is `kept` for a day; or the key
# is the `own` name of what was done; or it is done `once`, and a repetition is refused, as its answer is not
# stored.  Without one: what is done is the `same`, or it `reads`.  Or the second time would differ, so that a
# key, which promises that it does not, is `refused`.
Idempotent = Literal["kept", "own", "once", "same", "reads", "refused"]
KEY_REFUSED = (
    "This route does not know repeated requests by a key; leave it out, and look what was done before you"
    " repeat."
)


@dataclass(frozen=True, slots=True)
class Access:
    """What a route asks of a request.

    Attributes:
        scope: of the key; None: any key will do.
        queue: whose permits it takes.
        takes_user: whether the header ``Strandline-User`` says whose session it is.
        idempotent: what a request does that comes again.
        matches: whether it takes If-Match.
        is_direct: whether its endpoint is called without the framework's steps.
        holder: whose key it takes.
        any_user: whether it tells of a session whoever's it is, to a request that names no user.
    """

    scope: KeyScope | None
    queue: Queue
    takes_user: bool = False
    idempotent: Idempotent = "reads"
    matches: bool = False
    is_direct: bool = False
    holder: Holder = "any"
    any_user: bool = False

    @property
    def keeps_response(self) -> bool:
        """Whether a response is kept for a repeated Idempotency-Key."""
        return self.idempotent == "kept"

    @property
    def takes_key(self) -> bool:
        """Whether an Idempotency-Key means something to it."""
        return self.idempotent in ("kept", "own", "once")


def access(
    scope: KeyScope | None,
    queue: Queue,
    *,
    user: bool = False,
    idempotent: Idempotent = "reads",
    matches: bool = False,
    direct: bool = False,
    holder: Holder = "any",
    any_user: bool = False,
) -> Callable[[Endpoint], Endpoint]:
    """Say what an endpoint asks of a request; without this it is open to all."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(
            endpoint,
            _ACCESS,
            Access(
                scope=scope,
                queue=queue,
                takes_user=user,
                idempotent=idempotent,
                matches=matches,
                is_direct=direct,
                holder=holder,
                any_user=any_user,
            ),
        )
        return endpoint

    return mark


def access_of(route: APIRoute) -> Access | None:
    """What a route asks of a request; None: nothing, it is open to all."""
    access_rule: Access | None = getattr(route.endpoint, _ACCESS, None)
    return access_rule


def body_of(route: APIRoute) -> type[BaseModel] | None:
    """The model of a route's body; None: it has none."""
    annotation = None if route.body_field is None else route.body_field.field_info.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def needs_user(route: APIRoute) -> bool:
    """Whether a request must say whose session it is about, unless its key does."""
    access_rule = access_of(route)
    if access_rule is None or not access_rule.takes_user or access_rule.any_user:
        return False
    return "{session_id}" in route.path_format


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as an endpoint sees it.

    Attributes:
        service: what the process shares.
        caller: whose request it is.
        row: its key.
        wait_seconds: how long the client waits at most (``Prefer: wait=5``); None: it does not say.
        idempotency_key: the header of that name.
        route: method and path, the same however the path was encoded.
        fingerprint: a digest of route and body.
    """

    service: Service
    caller: Caller
    row: FindServiceKeysRow
    route: str
    wait_seconds: float | None
    idempotency_key: str | None
    fingerprint: bytes

    @property
    def asker(self) -> Asker:
        """Whose permits it takes."""
        return Asker(self.row.namespace, self.row.key_id)

    async def goes_on(self) -> bool:
        """Whether its key still opens: what streams ask again and again."""
        try:
            return await self.service.keys.goes_on(self.row.key_id)
        except (StrandlineError, ProblemError):
            return False  # nobody can say; the client comes back, and is told why


def call_of(request: Request) -> Call:
    """The request that an endpoint answers."""
    call: Call = request.scope[_CALL]
    return call


class ServiceRoute(APIRoute):
    """A route of the service."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        fields = self.dependant.query_params
        self._queries = {field.alias for field in fields}
        access_rule = access_of(self)
        self._body = body_of(self)
        self._needs_user = needs_user(self)
        self._direct = direct_of(self) if access_rule is not None and access_rule.is_direct else None
        self._lists = {field.alias for field in fields if _is_list(field.field_info.annotation)}

    @property
    def is_direct(self) -> bool:
        """Whether its endpoint is called without the framework's steps: a POST of names and a body."""
        return self._direct is not None

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; every way out of it is a response, or a client that is gone."""
        access_rule = access_of(self)
        if self.methods and scope["method"] not in self.methods:
            raise HTTPException(405, headers={"Allow": ", ".join(_methods_at(scope))})
        service: Service = scope["app"].state.service
        sending = Sending(
            send,
            seconds=service.settings.service_body_seconds,
            closes=service.state.is_stopping or is_long(scope),
            private=access_rule is not None,
        )
        try:
            if access_rule is None:
                self._check_query(scope)
                await super().handle(scope, receive, sending)
            else:
                await self._answer(service, access_rule, scope, receive, sending)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001  # the outermost edge of a request
            await self._fail(error, scope, receive, sending)

    async def _answer(
        self, service: Service, access_rule: Access, scope: Scope, receive: Receive, send: Sending
    ) -> None:
        headers = headers_of(scope)
        row = await service.keys.find(bearer_in(headers.get(b"authorization")))
        user = None
        if access_rule.takes_user:
            user = text_in(USER_HEADER, headers.get(_USER), MAX_NAME_BYTES)
        client = scope.get("client")
        caller = caller_of(row, user, client[0] if client else None)
        check_scope(caller, access_rule.scope, access_rule.holder)
        if user is None and self._needs_user and caller.user_id is None and caller.namespace is not None:
            raise invalid(f"/header/{USER_HEADER}", USER_MISSING)
        if access_rule.idempotent == "refused" and _KEY in headers:
            raise invalid(f"/header/{IDEMPOTENCY_HEADER}", KEY_REFUSED)
        if service.state.is_stopping and access_rule.queue == "streams":
            raise ProblemError(STOPPING)
        self._check_query(scope)
        async with service.admission(access_rule.queue).permit(Asker(row.namespace, row.key_id)):
            settings = service.settings
            body = await read_body(
                scope,
                receive,
                max_bytes=settings.service_max_body_bytes,
                seconds=settings.service_body_seconds,
            )
            send.closes = service.state.is_stopping
            call = scope[_CALL] = Call(
                service=service,
                caller=caller,
                row=row,
                route=route_of(scope),
                wait_seconds=preferred_seconds(headers.get(b"prefer")),
                idempotency_key=text_in(IDEMPOTENCY_HEADER, headers.get(_KEY), MAX_KEY_BYTES),
                fingerprint=fingerprint_of(scope, body) if access_rule.keeps_response else b"",
            )
            with acting(actor=caller.actor, origin=caller.origin, is_proven=True):
                async with self._deadline(access_rule, settings.service_request_seconds):
                    work = self._work(scope, body, receive, send)
                    if access_rule.queue == "reads":
                        work = service.turns.take(work, waits=call.wait_seconds is not None)
                    await work

    async def _work(self, scope: Scope, body: bytes, receive: Receive, send: Sending) -> None:
        if self._direct is None:
            if body and self.body_field is not None:
                _check_json(scope, body)
            await super().handle(scope, given_again(body, receive), send)
        else:
            response = await self._direct(Request(scope), body)
            await response(scope, receive, send)

    async def _fail(self, error: Exception, scope: Scope, receive: Receive, send: Sending) -> None:
        problem = refusal_of(error, self._body)
        if problem is None:
            problem = ProblemError(INTERNAL, instance=f"urn:uuid:{uuid4()}")
            log_defect(error, self.path_format, problem.instance)
        if not send.has_begun:
            await problem.response()(scope, receive, send)

    def _deadline(self, access_rule: Access, seconds: float) -> AbstractAsyncContextManager[Any]:
        return nullcontext() if access_rule.queue == "streams" else _Deadline(seconds)

    def _check_query(self, scope: Scope) -> None:
        """Raise a problem for a parameter that the route does not have, or has once, or that is no text."""
        if not scope["query_string"]:
            return
        query = scope["query_string"].decode("latin-1")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
        except ValueError:
            raise invalid("/query", f"It has more than {MAX_QUERY_FIELDS} parameters.") from None
        counts = Counter(name for name, _ in pairs)
        if not counts.keys() <= self._queries:
            known = ", ".join(sorted(self._queries)) or "none"
            raise invalid("/query", f"There is a parameter that this route does not have; it has: {known}.")
        twice = {name for name, count in counts.items() if count > 1} - self._lists
        if twice:
            places = [
                ProblemPlace(pointer=f"/query/{name}", detail="It is given more than once.")
                for name in sorted(twice)
            ]
            raise ProblemError(INVALID, places=places)
        for name, value in pairs:
            if "\0" in value:  # no text of Postgres holds it
                raise invalid(f"/query/{name}", "It must not hold NUL.")


def _check_json(scope: Scope, body: bytes) -> None:
    """Refuse what is no JSON as direct endpoints do; the framework's reader takes more than theirs."""
    check_media_type(scope)
    try:
        from_json(body)
    except ValueError:
        raise ProblemError(MALFORMED) from None


class _Deadline:
    """Ends what is done within it after so many seconds, its statement included, with a problem."""

    __slots__ = ("_timeout",)

    def __init__(self, seconds: float) -> None:
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as raised:
            if raised is not error and self._timeout.expired():
                raise ProblemError(TIMED_OUT) from None
            raise


def log_defect(error: Exception, route: str, instance: str | None = None) -> None:
    """Say in the log that a request failed, and where; ``route``: its path with the names of parameters."""
    logger.error(
        "a request failed",
        extra={
            "action": "request_failed",
            "route": route,
            "reason": type(error).__name__,
            "instance": instance,
        },
        exc_info=None if isinstance(error, StrandlineError) else _frames(error),
    )


class _WithoutMessage(Exception):
    """Stands for an error in the log: where it came from, and not what it said, which may quote a request."""


def _frames(error: Exception) -> tuple[type[BaseException], BaseException, Any]:
    shown = _WithoutMessage(type(error).__name__)
    return type(shown), shown, error.__traceback__


def _methods_at(scope: Scope) -> list[str]:
    """The methods of all routes with the path of a request."""
    at_path = (
        route.methods or ()
        for route in scope["app"].router.routes
        if isinstance(route, APIRoute) and route.path_regex.match(scope["path"])
    )
    return sorted(set().union(*at_path))


def _is_list(annotation: Any) -> bool:
    return "list" in str(annotation)
