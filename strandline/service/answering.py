"""Endpoints of acts: the route with its demands in one line, and the subject of a request as an argument.

An endpoint's parameters name its needs by their types: the ``Call``, a ``SessionIdentity``, the
``SessionMemory`` of a session that exists, or ``OwnerFacts``; or by the names in ``_OF_THE_CALL``.
The others come from path, query and body.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import getdoc, signature
from typing import Any, TypeVar

from pydantic import BaseModel

from strandline.producers.memory import SessionMemory
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.wire import acts
from strandline.schemas.wire.acts import WireAct
from strandline.schemas.wire.keys import Scope
from strandline.service.access import Access, Content, Queue
from strandline.service.forms import response_of, version_in
from strandline.service.idempotency import once
from strandline.service.params import FactId, SeqPath, SessionId, UserId
from strandline.service.route import Call, Router, Taken, taken_by

Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Any]])

_NAMES = {id(act): name.lower() for name, act in vars(acts).items() if isinstance(act, WireAct)}


class Routes:
    """The endpoints of one subject; ``tag`` groups them in the description."""

    def __init__(self, tag: str) -> None:
        self.router = Router(tag)

    def answer(
        self,
        act: WireAct,
        scope: Scope | None,
        queue: Queue,
        tells: tuple[Content, ...] = (),
        answer: type[BaseModel] | None = None,
        *,
        status: int = 200,
        takes: Taken | None = None,
        responses: dict[int | str, dict[str, Any]] | None = None,
        **demands: Any,
    ) -> Callable[[Endpoint], Endpoint]:
        """Answer an act by the function below.

        Args:
            act: its route, and the effect of a repeated request.
            scope, queue, tells, demands: as ``Access`` has them.
            answer: the model of the answer; default: the function returns one.
            status, takes, responses: as ``ServiceRoute`` has them.
        """
        demands |= {"waits": act.waits, "goes_on": act.goes_on, "meets": act.meets}
        rule = Access(scope, queue, tells, takes_user=act.names_user, idempotent=act.repeats, **demands)

        def register(endpoint: Endpoint) -> Endpoint:
            taken = taken_by(endpoint) if takes is None else takes
            respond, needed = _with_subject(endpoint, taken, rule, answer, status)
            declare = self.router(
                f"{act.method} {act.path}",
                takes=needed,
                status_code=status,
                response_model=answer,
                responses=responses,
            )
            declare(rule(respond))
            return endpoint

        return register

    def pass_on(
        self,
        act: WireAct,
        scope: Scope,
        queue: Queue,
        tells: tuple[Content, ...],
        answer: type[BaseModel],
        *,
        to: Callable[..., Any],
        body: type[BaseModel] | None = None,
        about: str | None = None,
        **options: Any,
    ) -> None:
        """Answer an act by a method of ``SessionMemory`` or ``OwnerFacts``, whose arguments the body names.

        ``about``: the description; by default the first paragraph of the method's.
        """
        takes: dict[str, tuple[Any, Any]] = {
            "subject": (SessionMemory if "{session_id}" in act.path else OwnerFacts, ...)
        }
        takes |= {name: (kind, ...) for name, kind in _IN_PATHS.items() if f"{{{name}" in act.path}
        takes |= {name: (Any, ...) for name in _OF_THE_CALL if name in signature(to).parameters}
        takes |= {} if body is None else {"body": (body, ...)}

        async def endpoint(subject: Any, body: BaseModel | None = None, **arguments: Any) -> Any:
            fields = {} if body is None else body.model_dump()
            return await getattr(subject, f"a{to.__name__}")(**arguments, **fields)

        endpoint.__name__ = _NAMES[id(act)]
        endpoint.__doc__ = about or (getdoc(to) or "").partition("\n\n")[0].replace("``", "`")
        self.answer(act, scope, queue, tells, answer, takes=takes, **options)(endpoint)


def _with_subject(
    endpoint: Callable[..., Awaitable[Any]],
    takes: Taken,
    rule: Access,
    answer: type[BaseModel] | None,
    status: int,
) -> tuple[Callable[..., Awaitable[Any]], Taken]:
    """The endpoint as ``ServiceRoute`` calls it, and its arguments there: the call, its subject's name."""
    subjects = {name: kind for name, (kind, _) in takes.items() if kind in (*_SUBJECTS,)}
    if not subjects:
        return endpoint, takes
    of_call = {name: _OF_THE_CALL[name] for name in takes if name in _OF_THE_CALL}
    named = {name: (kind, ...) for one in subjects.values() for name, kind in _SUBJECTS[one][0].items()}
    hidden = named.keys() - takes.keys()
    makers = [(name, _SUBJECTS[kind][1]) for name, kind in subjects.items()]

    @wraps(endpoint)
    async def respond(call: Call, **values: Any) -> Any:
        arguments = {name: value for name, value in values.items() if name not in hidden}
        for name, make in makers:
            arguments[name] = await make(call, values)
        arguments |= {name: read(call) for name, read in of_call.items()}
        if "request" in takes:
            arguments["request"] = call.request
        if "connection" not in takes:
            return response_of(await endpoint(**arguments), answer, status)
        identity = call.caller.session(values["session_id"])
        kept = identity.session_key if "messages" in rule.tells else None

        async def work(connection: object | None) -> BaseModel:
            return await endpoint(**arguments, connection=connection)  # type: ignore[no-any-return]

        return await once(call, identity.shard_key, work, status=status, content_of=kept)

    own = takes.keys() - {*subjects, *of_call, "connection", "request"}
    return respond, {"call": (Call, ...), **named, **{name: takes[name] for name in takes if name in own}}


async def _call(call: Call, _: dict[str, Any]) -> Call:
    return call


async def _identity(call: Call, values: dict[str, Any]) -> SessionIdentity:
    return call.caller.session(values["session_id"])


async def _memory(call: Call, values: dict[str, Any]) -> SessionMemory:
    return await call.service.records.open(call.caller.session(values["session_id"]))


async def _facts(call: Call, values: dict[str, Any]) -> OwnerFacts:
    return OwnerFacts(call.service.resources, call.caller.owner(values["user"]))


# The parts that make each subject, and how.
_SUBJECTS: dict[Any, tuple[dict[str, Any], Callable[[Call, dict[str, Any]], Awaitable[Any]]]] = {
    Call: ({}, _call),
    SessionIdentity: ({"session_id": SessionId}, _identity),
    SessionMemory: ({"session_id": SessionId}, _memory),
    OwnerFacts: ({"user": UserId}, _facts),
}
# Arguments that the head of a request has.
_OF_THE_CALL: dict[str, Callable[[Call], Any]] = {
    "idempotency_key": lambda call: call.idempotency_key,
    "if_version": lambda call: version_in(call.request.headers.get("if-match")),
}
_IN_PATHS = {"fact_id": FactId, "seq": SeqPath}
