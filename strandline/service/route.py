"""Request lifecycle: key, scope, permit, body, deadline; then the endpoint.

In this order, since each step costs more than the one before: a request without a key reads nothing from the
database, a rejected request leaves its body unread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, TypeVar, get_type_hints
from uuid import uuid4

from pydantic import BaseModel, ValidationError, create_model
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from strandline.pipelines.audit.appending import Act, append_act
from strandline.producers.audit.carrying_out import Recorder
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.operations import ASIDE, Operation
from strandline.schemas.queries.application.service import FindServiceKeysRow
from strandline.schemas.tracing import caller_context
from strandline.schemas.values.acts.acting import acting
from strandline.schemas.values.identity import NO_USER, Owner, SessionIdentity
from strandline.schemas.wire.base import IDEMPOTENCY_HEADER, USER_HEADER
from strandline.service.access import Access, access_of
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
    read_model,
)
from strandline.service.gate.deadlines import Deadline, longest_wait
from strandline.service.gate.heads import (
    address_in,
    bearer_in,
    fingerprint_of,
    headers_of,
    preferred_seconds,
    read_query,
    refuse_key,
    route_of,
    text_in,
    user_in,
)
from strandline.service.gate.limits import Asker
from strandline.service.gate.problems import (
    INTERNAL,
    READ_ENDED,
    STOPPING,
    UNAUTHENTICATED,
    ProblemError,
    invalid,
    of_validation,
    refusal_of,
)
from strandline.service.gate.sending import Sending
from strandline.service.gate.turns import RequestAside
from strandline.service.service import Service

logger = logging.getLogger("strandline.service")

T = TypeVar("T")
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
# By name, the kind of a parameter, and its default, or `...` where there is none.
Taken = Mapping[str, tuple[Any, Any]]

# In the scope of a request that the page makes within the process: the key that its session has proved.
PAGE_KEY = "strandline.page_key"
MAX_KEY_BYTES = 512
# Of a body that no endpoint declares: the SDK of MCP reads it on the event loop.
MAX_OTHER_BYTES = 65_536
_USER, _KEY = USER_HEADER.lower().encode(), IDEMPOTENCY_HEADER.lower().encode()
PLAIN_NUMBER = "It must be a number in digits alone, without a sign, spaces or leading zeros."
USER_MISSING = (
    "It is missing: this key is not one user's, so the request says whose session it is;"
    f" `{NO_USER}` says that it has no user."
)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as an endpoint sees it.

    Attributes:
        request: its headers, and for the SDK of MCP its body.
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

    request: Request
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
        """Check its key again, after long work; raises ProblemError if it was revoked, or has ended."""
        if not await self.service.keys.goes_on(self.row.key_id):
            raise ProblemError(UNAUTHENTICATED)

    async def reveal(self, namespaces: Iterable[str | None], source: str) -> None:
        """Record in the trail of each namespace that names of it are told to the key of the installation."""
        for namespace in sorted({*namespaces} - {None}, key=str) if self.caller.namespace is None else ():
            act = Act.here("reveal", detail={"from": source})
            await self.run(append_act(str(namespace), act))

    def seconds_to_wait(self, otherwise: float) -> float:
        """How long to wait for an unfinished result: the client's time, or ``otherwise``."""
        seconds = otherwise if self.wait_seconds is None else self.wait_seconds
        return min(seconds, longest_wait(self.service.settings.service_request_seconds))

    async def run(self, operation: Operation[T]) -> T:
        """Carry an operation out, on the pool of the event loop."""
        return await self.service.runner.arun(operation)

    def recorder(self, whom: SessionIdentity | Owner) -> Recorder:
        """Records acts on someone's memory, and asks the compliance hook."""
        resources = self.service.resources
        return Recorder(whom, resources.compliance, resources.audit_levels)

    async def block(self, work: Callable[[Database], T]) -> T:
        """Run what blocks in a thread, on the pool for threads; it ends with the request.

        Let it do all that a request changes: after a result that came at the very end no time is left.

        Raises:
            ProblemError: the time is over, and it has not come to an end yet.
        """
        return await self.service.threads.run(self.service.resources.database(), work)


class ServiceRoute(Route):
    """A route of the service: what its endpoint takes is read from the path, the query and the body.

    Args:
        status_code: of its usual answer.
        tag: its subject, in the description.
        takes: the parameters of the endpoint; default: as its signature says.
        response_model: of its usual answer, in the description; None: the model that the endpoint returns.
        responses: further answers by status, in the description: ``model``, ``description``, ``content``.
        include_in_schema: whether the description has it.
    """

    def __init__(
        self,
        method: str,
        path: str,
        endpoint: Callable[..., Any],
        *,
        status_code: int = 200,
        tag: str,
        takes: Taken | None = None,
        response_model: type[BaseModel] | None = None,
        responses: Mapping[int, Mapping[str, Any]] | None = None,
        include_in_schema: bool = True,
    ) -> None:
        super().__init__(path, endpoint, include_in_schema=include_in_schema)
        self.method, self.methods = method, {method}
        self.status, self.tag, self.responses = status_code, tag, responses or {}
        self.access = access_of(endpoint)
        self.answer = response_model or model_of(get_type_hints(endpoint)["return"])
        # The first is the call, or the request of an open route.
        _, *others = (taken_by(endpoint) if takes is None else takes).items()
        fields = dict(others)
        body, self.default_body = fields.pop("body", (None, None))
        self.body = model_of(body)
        self.needs_body = self.default_body is ...
        self.parameters: type[BaseModel] = create_model(self.name, **fields)  # type: ignore[call-overload]
        self._queries = fields.keys() - self.param_convertors.keys()
        self._lists = {name for name in self._queries if "list" in str(fields[name][0])}

    @property
    def has_head(self) -> bool:
        """Whether HEAD may ask for it; a stream's answer has no end."""
        return self.method == "GET" and (self.access is None or self.access.queue != "streams")

    @property
    def needs_user(self) -> bool:
        """Whether a request must say whose session it is about, unless its key does."""
        rule = self.access
        return (
            rule is not None
            and rule.takes_user
            and not rule.any_user
            and "session_id" in self.param_convertors
        )

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; every way out of it is a response, or a client that is gone."""
        service: Service = scope["app"].state.service
        sending = Sending(
            send,
            seconds=service.settings.service_body_seconds,
            closes=service.is_stopping or is_long(scope),
            private=self.access is not None,
        )
        try:
            if self.access is None:
                respond = await self.endpoint(Request(scope), **self._values(scope))
                await self._response(respond)(scope, receive, sending)
            else:
                with caller_context(scope["headers"]):
                    await self._answer(service, self.access, scope, receive, sending)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001  # the outermost edge of a request
            problem = refusal_of(error, self.body)
            if problem is None:
                problem = ProblemError(INTERNAL, instance=f"urn:uuid:{uuid4()}")
                log_defect(error, self.path_format, problem.instance)
            if not sending.has_begun:
                await problem.response()(scope, receive, sending)

    async def _answer(
        self, service: Service, rule: Access, scope: Scope, receive: Receive, send: Sending
    ) -> None:
        headers = headers_of(scope)
        row = await _key_of(service, scope, headers)
        user = user_in(headers.get(_USER)) if rule.takes_user else None
        client = scope.get("client")
        caller = caller_of(row, user, address_in(client[0]) if client else None)
        check_scope(caller, rule.scope, rule.holder)
        if user is None and self.needs_user and caller.user_id is None and caller.namespace is not None:
            raise invalid(f"/header/{USER_HEADER}", USER_MISSING)
        if rule.idempotent == "refused":
            refuse_key(headers)
        if service.is_stopping and rule.queue == "streams":
            raise ProblemError(STOPPING)
        values = self._values(scope)
        settings, asker = service.settings, Asker(row.namespace, row.key_id)
        max_bytes = settings.service_max_body_bytes
        if self.body is None:
            max_bytes = min(MAX_OTHER_BYTES, max_bytes)
        size = announced_bytes(headers, max_bytes)
        async with service.admissions[rule.queue].permit(asker, size if size > LARGE_BYTES else 0):
            body = await read_body(receive, max_bytes=max_bytes, seconds=settings.service_body_seconds)
            aside = RequestAside(service.aside, asker, is_large(body))
            ASIDE.set(aside if aside.is_large or rule.queue == "reads" else None)
            if aside.is_large:
                await aside.run(partial(check_values, body))
            send.closes = service.is_stopping
            preferred = preferred_seconds(headers.get(b"prefer"))
            if preferred is not None:
                preferred = min(preferred, longest_wait(settings.service_request_seconds))
            receive = given_again(body, receive)
            call = Call(
                request=Request(scope, receive),
                service=service,
                caller=caller,
                row=row,
                route=route_of(scope),
                wait_seconds=preferred,
                idempotency_key=text_in(IDEMPOTENCY_HEADER, headers.get(_KEY), MAX_KEY_BYTES),
                fingerprint=fingerprint_of(scope, body) if rule.is_kept else b"",
                aside=aside,
            )
            await call.check_key()  # its body may have taken long
            work = self._work(call, values, body)
            is_user = caller.is_bound and not caller.may_operate
            with acting(actor=caller.actor, origin=caller.origin, is_proven=True, is_user=is_user):
                if rule.queue == "streams":
                    await (await work)(scope, receive, send)
                    return
                detail = READ_ENDED if rule.scope == "read" else None
                async with Deadline(settings.service_request_seconds, detail):
                    if rule.queue == "reads" and not rule.own_turns:
                        work = service.turns.take(asker, work)
                    respond = await work
                    if rule.scope == "read":
                        await call.check_key()  # the wait may have been long
                    await respond(scope, receive, send)

    def _values(self, scope: Scope) -> dict[str, Any]:
        """The values of the path and the query, by the names of the endpoint's parameters."""
        texts = read_query(scope, self._queries, self._lists) | scope["path_params"]
        try:
            values = self.parameters.model_validate(texts).__dict__
        except ValidationError as error:
            raise of_validation(
                {**one, "loc": ("query" if one["loc"][0] in self._queries else "path", *one["loc"])}
                for one in error.errors(include_url=False, include_context=False, include_input=False)
            ) from None
        for name, value in values.items():
            if type(value) is int and texts.get(name, str(value)) != str(value):  # such as 1_0, +1, 01 or 1.0
                raise invalid(f"/{'query' if name in self._queries else 'path'}/{name}", PLAIN_NUMBER)
        return values

    async def _work(self, call: Call, values: dict[str, Any], body: bytes) -> ASGIApp:
        """Answers a request: the place of a read does not wait for a client to take its answer."""
        if self.body is None:
            check_keys(body)
        elif body or self.needs_body:
            values["body"] = await call.aside.run(partial(read_model, self.body, call.request.scope, body))
        return self._response(await self.endpoint(call, **values))

    def _response(self, answer: BaseModel | ASGIApp) -> ASGIApp:
        if isinstance(answer, BaseModel):
            return Response(answer.model_dump_json(), self.status, media_type="application/json")
        return answer


async def _key_of(service: Service, scope: Scope, headers: Mapping[bytes, bytes]) -> FindServiceKeysRow:
    if (key_id := scope.get(PAGE_KEY)) is not None:
        return await service.keys.find_by_id(key_id)
    return await service.keys.find(bearer_in(headers.get(b"authorization")))


class Router:
    """The routes of a subject, in the order in which their endpoints declare them."""

    def __init__(self, tag: str) -> None:
        self.routes: list[ServiceRoute] = []
        self._tag = tag

    def __call__(self, route: str, **declared: Any) -> Callable[[Endpoint], Endpoint]:
        """Make a function the endpoint of ``METHOD /path``; ``declared``: for ``ServiceRoute``."""
        method, path = route.split()

        def declare(endpoint: Endpoint) -> Endpoint:
            self.routes.append(ServiceRoute(method, path, endpoint, **{"tag": self._tag, **declared}))
            return endpoint

        return declare


def taken_by(endpoint: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """An endpoint's parameters, by its signature."""
    hints = get_type_hints(endpoint, include_extras=True)
    return {
        name: (hints[name], ... if one.default is one.empty else one.default)
        for name, one in signature(endpoint).parameters.items()
    }


def model_of(kind: object) -> type[BaseModel] | None:
    """A model, as it is; None for all else."""
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


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
