"""Endpoints with a body, called without the framework's steps between.

What FastAPI does with a request of a path and a body costs twice as much as a put, and reads any body on the
event loop.  The description is made of the same signature, and refusals are the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any, get_type_hints
from urllib.parse import unquote

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.foreign_json import read_json
from strandline.schemas.values.identity import check_name
from strandline.schemas.values.stored_text import check_texts_within
from strandline.service.gate.bodies import check_keys
from strandline.service.gate.heads import check_media_type
from strandline.service.gate.places import NAME_EXPECTED, declared_steps, place_of_invalid
from strandline.service.gate.problems import MALFORMED, ProblemError, invalid, of_validation
from strandline.service.gate.turns import RequestAside

Direct = Callable[[Request, bytes, RequestAside], Awaitable[Response]]


def takes_body_alone(route: APIRoute) -> bool:
    """Whether its endpoint can be called so: it has a body, parts of its path, and nothing else."""
    names = {parameter.name for parameter in route.dependant.path_params}
    return route.body_field is not None and signature(route.endpoint).parameters.keys() == names | {
        "request",
        "body",
    }


def direct_of(route: APIRoute, *, names_alone: bool) -> Direct:
    """A function that answers a request with its body; ``names_alone``: all of its path are plain names."""
    endpoint: Callable[..., Awaitable[BaseModel | Response]] = route.endpoint
    kind = get_type_hints(endpoint)["body"]
    default = signature(endpoint).parameters["body"].default
    fields = route.dependant.path_params
    read_part = _name if names_alone else _path_part
    status = route.status_code or 200

    async def direct(request: Request, body: bytes, aside: RequestAside) -> Response:
        params = request.scope["path_params"]
        values = {field.name: read_part(field, params[field.name]) for field in fields}
        if not body and default is not Parameter.empty:
            value = default
        else:
            value = await aside.run(partial(_read, kind, request, body))
        answer = await endpoint(request, body=value, **values)
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
        raise _refusal(kind, body, error) from None
    check_keys(body)
    return value


def _unstorable_text(kind: type[BaseModel], body: bytes) -> ProblemError | None:
    """Where a body has half of a surrogate pair, which JSON can write and no text holds; None: nowhere."""
    try:
        for name, value in read_json(body).items():
            check_texts_within(name, value)
            name.encode()
    except InvalidMessageError as error:
        place = place_of_invalid(error, kind)
        steps = [] if place is None else declared_steps(kind, place.pointer.split("/")[2:])
        detail = "A text in it holds a lone surrogate; leave it out." if place is None else place.detail
        return invalid("/".join(["/body", *steps]), detail)
    except UnicodeEncodeError:
        return invalid("/body", "The name of a field holds a lone surrogate; leave it out.")
    except (AttributeError, ValueError, RecursionError):
        pass  # it is not JSON
    return None


def _refusal(kind: type[BaseModel], body: bytes, error: ValidationError) -> ProblemError:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    if errors[0]["type"] == "json_invalid":
        return _unstorable_text(kind, body) or ProblemError(MALFORMED)
    return of_validation(({**one, "loc": ("body", *one["loc"])} for one in errors), kind)


def _name(field: Any, value: Any) -> str:
    try:
        return check_name(field.name, unquote(value, errors="strict"))
    except (InvalidMessageError, UnicodeDecodeError):
        raise invalid(f"/path/{field.name}", NAME_EXPECTED) from None


def _path_part(field: Any, value: Any) -> Any:
    """As the framework reads it."""
    part, errors = field.validate(value, {}, loc=("path", field.alias))
    if errors:
        raise of_validation(errors)
    return part
