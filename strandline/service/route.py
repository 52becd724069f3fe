"""The way of a request: key, scope, permit, body, deadline; then the endpoint.

In this order, since each step costs more than the one before: a request without a key reads nothing from the
database, a rejected request leaves its body unread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from strandline.pipelines.audit.appending import Act, append_act
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.operations import ASIDE
from strandline.schemas.queries.application.service import FindServiceKeysRow
from strandline.schemas.values.acts.acting import acting
from strandline.schemas.values.identity import NO_USER
from strandline.schemas.wire.base import IDEMPOTENCY_HEADER, USER_HEADER
from strandline.service.access import Access, access_of, body_of, needs_user
from strandline.service.direct import direct_of, takes_body_alone
from strandline.service.gate.authentication import Caller, caller_of, check_scope
from strandline.service.gate.bodies import (
    LARGE_BYTES,
    ClientGone,
    announced_bytes,
    check_keys,
    check_values,
    given_again,
    is_large,
    is_long,
    read_body,
)
from strandline.service.gate.deadlines import Deadline, longest_wait
from strandline.service.gate.heads import (
    address_in,
    bearer_in,
    check_media_type,
    check_query,
    fingerprint_of,
    headers_of,
    preferred_seconds,
    refuse_key,
    route_of,
    text_in,
    user_in,
)
from strandline.service.gate.limits import Asker
from strandline.service.gate.problems import (
    INTERNAL,
    MALFORMED,
    READ_ENDED,
    STOPPING,
    UNAUTHENTICATED,
    ProblemError,
    invalid,
    refusal_of,
)
from strandline.service.gate.sending import Kept, Sending
from strandline.service.gate.turns import RequestAside
from strandline.service.service import Service

logger = logging.getLogger("strandline.service")

T = TypeVar("T")

_CALL = "strandline.call"
MAX_KEY_BYTES = 512
# Of a body that the framework reads, or the SDK of MCP: on the event loop.
MAX_OTHER_BYTES = 65_536
_USER, _KEY = USER_HEADER.lower().encode(), IDEMPOTENCY_HEADER.lower().encode()
USER_MISSING = (
    "It is missing: this key is not one user's, so the request says whose session it is;"
    f" `{NO_USER}` says that it has no user."
)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as an endpoint sees it.

    Attributes:
        service: shared by the process.
        caller: of the request.
        row: its key.
        wait_seconds: how long the client waits at most (``Prefer: wait=5``), which is less than the time of a
            request; None: it does not say.
        idempotency_key: the header of that name.
        route: method and path, the same however the path was encoded.
        fingerprint: a digest of route and body.
        aside: runs large work off the event loop.
    """

    service: Service
    caller: Caller
    row: FindServiceKeysRow
    route: str
    wait_seconds: float | None
    idempotency_key: str | None
    fingerprint: bytes
    aside: RequestAside

    @property
    def asker(self) -> Asker:
        """Whose permits it takes."""
        return Asker(self.row.namespace, self.row.key_id)

    async def goes_on(self) -> bool:
        """Whether its key still opens: what streams ask again and again."""
        try:
            return await self.service.keys.goes_on(self.row.key_id)
        except (StrandlineError, ProblemError):
            return False  # unknown for now; the client comes back, and is told the reason

    async def check_key(self) -> None:
        """Check its key again, after long work.

        Raises:
            ProblemError: it was revoked, or has ended.
            DatabaseUnavailableError: the key cannot be checked.
        """
        if not await self.service.keys.goes_on(self.row.key_id):
            raise ProblemError(UNAUTHENTICATED)

    async def reveal(self, namespaces: Iterable[str | None], source: str) -> None:
        """Record in the trail of each namespace that names of it are told to the key of the installation."""
        for namespace in sorted({*namespaces} - {None}, key=str) if self.caller.namespace is None else ():
            act = Act.here("reveal", detail={"from": source})
            await self.service.runner.arun(append_act(str(namespace), act))

    def seconds_to_wait(self, otherwise: float) -> float:
        """How long to wait for an unfinished result: the client's time, or ``otherwise``."""
        seconds = otherwise if self.wait_seconds is None else self.wait_seconds
        return min(seconds, longest_wait(self.service.settings.service_request_seconds))

    async def block(self, work: Callable[[Database], T]) -> T:
        """Run what blocks in a thread, on the pool for threads; it ends with the request.

        Let it do all that a request changes: after a result that came at the very end no time is left.

        Raises:
            ProblemError: the time is over, and it has not come to an end yet.
        """
        return await self.service.threads.run(self.service.resources.database(), work)


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
        # Found before the framework's steps as well: a POST of names and a body.
        self.is_direct = access_rule is not None and access_rule.is_direct
        self._direct = direct_of(self, names_alone=self.is_direct) if takes_body_alone(self) else None
        self._lists = {field.alias for field in fields if "list" in str(field.field_info.annotation)}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; every way out of it is a response, or a client that is gone."""
        access_rule = access_of(self)
        if self.methods and scope["method"] not in self.methods:
            raise HTTPException(405, headers={"Allow": ", ".join(_methods_at(scope))})
        service: Service = scope["app"].state.service
        sending = Sending(
            send,
            seconds=service.settings.service_body_seconds,
            closes=service.is_stopping or is_long(scope),
            private=access_rule is not None,
        )
        try:
            if access_rule is None:
                check_query(scope, self._queries, self._lists)
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
        user = user_in(headers.get(_USER)) if access_rule.takes_user else None
        client = scope.get("client")
        caller = caller_of(row, user, address_in(client[0]) if client else None)
        check_scope(caller, access_rule.scope, access_rule.holder)
        if user is None and self._needs_user and caller.user_id is None and caller.namespace is not None:
            raise invalid(f"/header/{USER_HEADER}", USER_MISSING)
        if access_rule.idempotent == "refused":
            refuse_key(headers)
        if service.is_stopping and access_rule.queue == "streams":
            raise ProblemError(STOPPING)
        check_query(scope, self._queries, self._lists)
        settings, asker = service.settings, Asker(row.namespace, row.key_id)
        max_bytes = settings.service_max_body_bytes
        if self._direct is None:
            max_bytes = min(MAX_OTHER_BYTES, max_bytes)
        size = announced_bytes(headers, max_bytes)
        async with service.admissions[access_rule.queue].permit(asker, size if size > LARGE_BYTES else 0):
            body = await read_body(receive, max_bytes=max_bytes, seconds=settings.service_body_seconds)
            aside = RequestAside(service.aside, asker, is_large(body))
            ASIDE.set(aside if aside.is_large or access_rule.queue == "reads" else None)
            if aside.is_large:
                await aside.run(partial(check_values, body))
            send.closes = service.is_stopping
            preferred = preferred_seconds(headers.get(b"prefer"))
            if preferred is not None:
                preferred = min(preferred, longest_wait(settings.service_request_seconds))
            call = scope[_CALL] = Call(
                service=service,
                caller=caller,
                row=row,
                route=route_of(scope),
                wait_seconds=preferred,
                idempotency_key=text_in(IDEMPOTENCY_HEADER, headers.get(_KEY), MAX_KEY_BYTES),
                fingerprint=fingerprint_of(scope, body) if access_rule.is_kept else b"",
                aside=aside,
            )
            await call.check_key()  # its body may have taken long
            is_user = caller.is_bound and not caller.may_operate
            with acting(actor=caller.actor, origin=caller.origin, is_proven=True, is_user=is_user):
                if access_rule.queue == "streams":
                    await super().handle(scope, given_again(body, receive), send)
                    return
                detail = READ_ENDED if access_rule.scope == "read" else None
                async with Deadline(settings.service_request_seconds, detail):
                    work = self._work(scope, body, receive, aside)
                    if access_rule.queue == "reads" and not access_rule.own_turns:
                        work = service.turns.take(asker, work)
                    respond = await work
                    if access_rule.scope == "read":
                        await call.check_key()  # the wait may have been long
                    await respond(scope, receive, send)

    async def _work(self, scope: Scope, body: bytes, receive: Receive, aside: RequestAside) -> ASGIApp:
        """What answers a request: the place of a read does not wait for a client to take its answer."""
        if self._direct is not None:
            return await self._direct(Request(scope), body, aside)
        if body and self.body_field is not None:
            _check_json(scope, body)
        check_keys(body)
        kept = Kept()
        await super().handle(scope, given_again(body, receive), kept)
        return kept.respond

    async def _fail(self, error: Exception, scope: Scope, receive: Receive, send: Sending) -> None:
        problem = refusal_of(error, self._body)
        if problem is None:
            problem = ProblemError(INTERNAL, instance=f"urn:uuid:{uuid4()}")
            log_defect(error, self.path_format, problem.instance)
        if not send.has_begun:
            await problem.response()(scope, receive, send)


def _check_json(scope: Scope, body: bytes) -> None:
    """Refuse invalid JSON as direct endpoints do; the framework's reader takes more than theirs."""
    check_media_type(scope)
    try:
        from_json(body)
    except ValueError:
        raise ProblemError(MALFORMED) from None


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
    """Stands for an error in the log: its origin without its message, which may quote a request."""


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
