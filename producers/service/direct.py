"""Endpoints that are asked most often, called without the framework's steps between.

What FastAPI does with a request of a path and a body costs twice as much as a put.  The description is made
of the same signature, and refusals are the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import Parameter, signature
from typing import Any, get_type_hints
from urllib.parse import unquote

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from strandline.producers.service.gate.bodies import check_keys
from strandline.producers.service.gate.heads import check_media_type
from strandline.producers.service.gate.places import NAME_EXPECTED
from strandline.producers.service.gate.problems import (
    MALFORMED,
    ProblemError,
    invalid,
    of_validation,
)
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.identity import check_name

Direct = Callable[[Request, bytes], Awaitable[Response]]


def direct_of(route: APIRoute) -> Direct:
    """A function that answers a request with its body, for an endpoint of names in its path and a body."""
    endpoint: Callable[..., Awaitable[BaseModel | Response]] = route.endpoint
    kind = get_type_hints(endpoint)["body"]
    default = signature(endpoint).parameters["body"].default
    names = [parameter.name for parameter in route.dependant.path_params]
    status = route.status_code or 200

    async def direct(request: Request, body: bytes) -> Response:
        params = request.scope["path_params"]
        values = {name: _name(name, params[name]) for name in names}
        is_left_out = not body and default is not Parameter.empty
        answer = await endpoint(
            request, body=default if is_left_out else _read(kind, request, body), **values
        )
        if isinstance(answer, Response):
            return answer
        return Response(answer.model_dump_json(), status, media_type="application/json")

    return direct


def _read(kind: type[BaseModel], request: Request, body: bytes) -> BaseModel:
    if not body:
        raise invalid("/body", "It is missing.")
    check_media_type(request.scope)
    try:
        value = kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(kind, error) from None
    check_keys(body)
    return value


def _refusal(kind: type[BaseModel], error: ValidationError) -> ProblemError:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    if errors[0]["type"] == "json_invalid":
        return ProblemError(MALFORMED)
    return of_validation(({**one, "loc": ("body", *one["loc"])} for one in errors), kind)


def _name(parameter: str, value: Any) -> str:
    try:
        return check_name(parameter, unquote(value, errors="strict"))
    except (InvalidMessageError, UnicodeDecodeError):
        raise invalid(f"/path/{parameter}", NAME_EXPECTED) from None
