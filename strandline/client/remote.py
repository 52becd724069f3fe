"""Methods of the client made of an act's route and a signature.

The parts of the path, the query and the body are the arguments of those names, and the result is read as the
signature says.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import copy
from dataclasses import is_dataclass
from datetime import date
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID, uuid4

from pydantic import BaseModel

from strandline.client.operations import (
    NOT_FOUND,
    Call,
    Face,
    Method,
    Operation,
    PageOf,
    Pages,
    Reply,
    once,
    path,
)
from strandline.client.retrying import Repeat
from strandline.client.values import message_bodies, namespace_of, value_of
from strandline.producers.arguments import check_flag, check_timeout
from strandline.producers.facts.listing import Fact, as_fact_id
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation as LibraryOperation
from strandline.schemas.values.message import plain
from strandline.schemas.wire.acts import WireAct
from strandline.schemas.wire.base import Page

T = TypeVar("T")
F = TypeVar("F", bound=Face)
Subject = TypeVar("Subject")
P = ParamSpec("P")

PAGE = 100
# The error of a missing thing reaches the caller.
RAISED = object()

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
# Arguments that a path has under a shorter name.
_IN_PATHS = {"user": "user_id", "source": "source_id"}


def remote(
    act: WireAct, answer: type[BaseModel] | None = None, **options: Any
) -> Callable[[Callable[Concatenate[F, P], T]], Method[F, P, T]]:
    """A method with the signature and docstring of a function that has no code; options: as ``Request``."""

    def make(declaration: Callable[Concatenate[F, P], T]) -> Method[F, P, T]:
        return Method(_operation(Request(act, declaration, answer, **options)))

    return make


def remote_list(
    act: WireAct, item: type[T], **options: Any
) -> Callable[[Callable[Concatenate[F, P], PageOf[T]]], Pages[F, P, T]]:
    """The same for a list of ``item``, read page by page."""

    def make(declaration: Callable[Concatenate[F, P], PageOf[T]]) -> Pages[F, P, T]:
        request = Request(act, declaration, Page[item], **options)  # type: ignore[valid-type]

        def operation(
            face: F, cursor: str | None, /, *arguments: P.args, **named: P.kwargs
        ) -> Operation[PageOf[T]]:
            call = request.call(face, arguments, named, {"limit": PAGE, "cursor": cursor})
            return (yield call).page(request.answer)

        return Pages(request.show(operation, cursor=True))

    return make


def as_in_library(
    act: WireAct,
    operation: Callable[Concatenate[Subject, P], LibraryOperation[T]],
    answer: type[BaseModel] | None = None,
    **options: Any,
) -> tuple[Method[Any, P, T], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]]:
    """The method of a library's operation whose signature is the same here, and its twin to be awaited."""
    method: Method[Any, P, T] = Method(_operation(Request(act, operation, answer, **options)))
    return method, method.asynchronous


def _operation(request: Request) -> Any:
    def operation(face: Face, /, *arguments: Any, **named: Any) -> Operation[Any]:
        call = request.call(face, arguments, named)
        if call is None:
            return request.absence
        reply = yield call
        return request.absence if reply.is_missing else (yield from request.result(face, reply))

    return request.show(operation)


class Request:
    """How the arguments of a method become a request, and its answer the result.

    Args:
        act: the route.
        declaration: has the signature and the docstring.
        answer: the wire's form of the result; default: the result is of the wire.
        query: arguments for the query of a request with a body.
        missing: the result if the service has no such thing; by default that raises.
        repeat: by default as the act says.
        check: checks the arguments that were given, by name, or gives others for the body.
        body: checks the body before it is sent.
    """

    def __init__(
        self,
        act: WireAct,
        declaration: Callable[..., Any],
        answer: type[BaseModel] | None,
        *,
        query: Sequence[str] = (),
        missing: Any = RAISED,
        repeat: Repeat | None = None,
        check: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        body: type[BaseModel] | None = None,
    ) -> None:
        self._act, self._declaration, self._answer = act, declaration, answer
        self._missing, self._repeat, self._check = missing, repeat, check
        self._body_model = body
        self._signature = inspect.signature(declaration)
        self._parameters = dict([*self._signature.parameters.items()][1:])
        self._query = {*self._parameters} if act.method in ("GET", "DELETE") else {*query}

    @property
    def absence(self) -> Any:
        """The result if the service has no such thing."""
        return copy(self._missing)

    def show(self, operation: Any, *, cursor: bool = False) -> Any:
        """The operation under the declaration's name, with its docstring and signature."""
        operation.__name__, operation.__qualname__ = (
            self._declaration.__name__,
            self._declaration.__qualname__,
        )
        operation.__doc__, operation.__module__ = self._declaration.__doc__, self._declaration.__module__
        first, *others = self._signature.parameters.values()
        paged = [first.replace(name="cursor")] if cursor else []
        result = str(self._signature.return_annotation)
        operation.__signature__ = self._signature.replace(
            parameters=[first, *paged, *others],
            return_annotation=result if result.startswith("Operation[") else f"Operation[{result}]",
        )
        return operation

    def call(
        self,
        face: Any,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        page: Mapping[str, Any] | None = None,
    ) -> Any:
        """The request; None: no such thing can be there."""
        sent = self._arguments(face, arguments, named)
        where = self._path(face, sent)
        if where is None:
            return None
        version, wait = sent.pop("if_version", None), sent.pop("wait", None)
        user_id = sent.pop("user_id", getattr(face, "user_id", None)) if self._act.names_user else None
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        if "key" in self._parameters:
            sent.setdefault("key", uuid4().hex)  # it makes the request repeatable, so there is always one
        elif self._act.repeats in ("kept", "own", "once"):
            headers |= once(sent.pop("idempotency_key", None))
        query = {name: _query_form(sent.pop(name)) for name in [*sent] if name in self._query}
        return Call(
            self._act.method,
            where,
            query={**query, **(page or {})},
            body=self._body(sent),
            user_id=user_id,
            headers=headers,
            repeat=self._repeats(version),
            wait_seconds=None if wait is None else max(0.0, check_timeout(wait)),
            accepts=frozenset() if self._missing is RAISED else NOT_FOUND,
            is_read=self._act.repeats == "reads",
        )

    def result(self, face: Any, reply: Reply) -> Operation[Any]:
        """The result in an answer."""
        if self._kind is type(None):
            return None
        namespace = (yield from namespace_of(face.service)) if _tells(self._kind, Fact) else ""
        out = reply.read(self.answer)
        if self.answer is not self._kind:
            names = list(self.answer.model_fields)
            if "items" in names or len(names) == 1:
                out = getattr(out, "items" if "items" in names else names[0])
        return value_of(self._kind, out, namespace)

    def _arguments(self, face: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        bound = self._signature.bind(face, *arguments, **named).arguments
        sent = {}
        for name, parameter in self._parameters.items():
            value = bound.get(name, parameter.default)
            if isinstance(parameter.default, bool):
                check_flag(name, value)
            if name in bound and not (value is None and parameter.default is None):
                sent[name] = value
        return sent if self._check is None else self._check(sent)

    def _path(self, face: Any, sent: dict[str, Any]) -> str | None:
        parts: list[str] = []
        for part in self._act.path.removeprefix("/v1/").split("/"):
            parameter = _PARAMETER.fullmatch(part)
            if parameter is None:
                parts.append(part)
                continue
            name = _IN_PATHS.get(parameter[1], parameter[1])
            value = sent.pop(name) if name in sent else getattr(face, name)
            if name == "fact_id":
                value = as_fact_id(value)
                if value is None and self._missing is not RAISED:
                    return None
            parts.append(str(value))
        return path(*parts)

    def _body(self, sent: dict[str, Any]) -> Any:
        model = next((value for value in sent.values() if isinstance(value, BaseModel)), None)
        if self._body_model is not None:
            model = self._body_model(**sent)
        if model is not None:
            return model.model_dump(mode="json", exclude_unset=True)
        if self._act.method == "GET" or (not sent and not self._has_body):
            return None
        return {name: _json_form(name, value) for name, value in sent.items()}

    @cached_property
    def _has_body(self) -> bool:
        beside = {"wait", "idempotency_key", "if_version", *self._query}
        beside |= {_IN_PATHS.get(name, name) for name in _PARAMETER.findall(self._act.path)}
        return bool(self._parameters.keys() - beside - ({"user_id"} if self._act.names_user else set()))

    def _repeats(self, version: object | None) -> Repeat:
        if version is not None:
            return "if_not_done"  # a repeated change of a version finds another version
        return self._repeat or ("if_not_done" if self._act.repeats in ("refused", "once") else "always")

    @cached_property
    def answer(self) -> Any:
        """The wire's form of an answer."""
        return self._answer or self._kind

    @cached_property
    def _kind(self) -> Any:
        kind = get_type_hints(self._declaration)["return"]
        # Of a library's operation the result is the last parameter of its generator.
        return get_args(kind)[2] if get_origin(kind) is get_origin(LibraryOperation[Any]) else kind


def _query_form(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else None
    return value.isoformat() if isinstance(value, date) else str(value) if isinstance(value, UUID) else value


def _json_form(name: str, value: Any) -> Any:
    if name == "messages" and not isinstance(value, int):  # which is how many
        return message_bodies(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Sequence) and value and isinstance(value[0], BaseModel):
        return [one.model_dump(mode="json", exclude_none=True) for one in value]
    try:
        return plain(value)
    except TypeError as error:
        raise InvalidMessageError(name, str(error), for_clients=InvalidMessageError.UNTOLD) from None


def _tells(kind: Any, what: type) -> bool:
    if kind is what:
        return True
    parts = get_type_hints(kind).values() if is_dataclass(kind) else get_args(kind)
    return any(_tells(part, what) for part in parts)
