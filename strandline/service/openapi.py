"""The description of the service (OpenAPI 3.1), written from its routes, with schemas by pydantic."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from inspect import getdoc
from typing import Any

from pydantic import BaseModel, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import IntSchema, ModelSchema, WithDefaultSchema

from strandline.schemas.values.identity import MAX_NAME_BYTES, NO_USER
from strandline.schemas.version import VERSION
from strandline.schemas.wire.base import (
    CAUGHT_UP_HEADER,
    COVERED_HEADER,
    IDEMPOTENCY_HEADER,
    PROBLEM_MEDIA_TYPE,
    PROBLEM_TYPES,
    REPLAYED_HEADER,
    USER_HEADER,
    Problem,
    ProblemPlace,
)
from strandline.schemas.wire.operations import EventOut
from strandline.service.access import Access
from strandline.service.gate.problems import KINDS, NO_METHOD, Kind
from strandline.service.route import MAX_KEY_BYTES, ServiceRoute
from strandline.service.routes import ROUTES

DESCRIPTION = """\
The memory layer for chat backends, over HTTP.

Send a key with each request: `Authorization: Bearer sl_…`.  It says whose memory it is; a key that is not one
user's names the user in the path, or in the header `Strandline-User`.  Errors are `application/problem+json`.
"""

_TAGS = {
    "messages": "Putting messages, and the log as it is.",
    "runs": "Runs of agents, and the messages that they brought to a session.",
    "contexts": "Reads for a prompt, searches, summaries.",
    "sessions": "Sessions: state, policy, flushes, resets, forks.",
    "corrections": "Messages taken back, or given other content.",
    "facts": "A user's facts.",
    "users": "The users of a namespace.",
    "explain": "Why something was remembered, or not.",
    "events": "Events as they happen.",
    "imports": "Messages and facts from elsewhere.",
    "erasures": "Erasing users and sessions for good, and exporting their data.",
    "keys": "Keys, and the identity of a request.",
    "audit": "Acts, with their actors and times.",
    "operations": "For operators.",
    "health": "For load balancers.",
}

_SCHEMAS = "#/components/schemas/"
_PAGE = re.compile(r"Page\[(\w+?)(?:Out|Report|Info)?\]")
_REFERENCE = f"{_SCHEMAS}{{model}}"


class _Schemas(GenerateJsonSchema):
    """Schemas as generators of clients need them: large integers have a format, pages plain names."""

    def normalize_name(self, name: str) -> str:
        return super().normalize_name(_PAGE.sub(r"\1Page", name))

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        written = super().model_schema(schema)
        return written | {"title": self.normalize_name(written["title"])}

    def int_schema(self, schema: IntSchema) -> JsonSchemaValue:
        written = super().int_schema(schema)
        if written.get("maximum", 2**31) >= 2**31:
            written["format"] = "int64"
        return written


class _WithoutNulls(_Schemas):
    """Schemas without defaults of null: leaving a field out says as much."""

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        written = super().default_schema(schema)
        if written.get("default", ...) is None:
            del written["default"]
        return written

    def encode_default(self, dft: Any) -> Any:
        return (
            dft.model_dump(mode="json", exclude_none=True)
            if isinstance(dft, BaseModel)
            else super().encode_default(dft)
        )


# Of a process: making it takes a good part of a second.
@cache
def describe() -> dict[str, Any]:
    """The description of the service."""
    routes = [route for route in ROUTES if route.include_in_schema]
    _, written = models_json_schema(
        [(_route_model(route), "validation") for route in routes],
        ref_template=_REFERENCE,
        schema_generator=_WithoutNulls,
    )
    schemas: dict[str, Any] = written["$defs"]
    names = _problem_names([(NO_METHOD,), *(group for route in routes for group in _groups(_kinds(route)))])
    paths: dict[str, Any] = {}
    for route in routes:
        fields = schemas.pop(route.name).get("properties", {})
        paths.setdefault(route.path_format, {})[route.method.lower()] = _operation(route, fields, names)
    for model in (ProblemPlace, Problem):
        schemas[model.__name__] = _alone(model, "validation")
    schemas["EventOut"] = _alone(EventOut, "serialization")
    _open_answers(schemas, [route.body for route in routes if route.body is not None])
    return {
        "openapi": "3.1.0",
        "info": {"title": "Strandline", "version": VERSION, "description": DESCRIPTION},
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key of the service: `sl_<id>_<secret>`.",
                }
            },
            "responses": {name: problem_of_kinds(kinds) for kinds, name in names.items()},
        },
    }


def _answers(route: ServiceRoute) -> dict[int, Mapping[str, Any]]:
    """The declared answers of a route, by status."""
    usual = {"description": "Successful Response", "model": route.answer}
    return {route.status: usual, **route.responses}


def _route_model(route: ServiceRoute) -> type[BaseModel]:
    """A model of a route's parameters, its body and its answers, of which pydantic writes the schemas."""
    fields: dict[str, Any] = {
        f"answer_{status}": (answer["model"], ...)
        for status, answer in _answers(route).items()
        if answer.get("model")
    }
    if route.body is not None:
        fields["body"] = (route.body, route.default_body)
    return create_model(route.name, __base__=route.parameters, **fields)


def _alone(model: type[BaseModel], mode: JsonSchemaMode) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_REFERENCE, schema_generator=_Schemas, mode=mode)
    schema.pop("$defs", None)
    return schema


def _open_answers(schemas: dict[str, Any], bodies: Iterable[type[BaseModel]]) -> None:
    """Say of each model but those of requests that it may have further fields, or generators refuse them."""
    _, asked = models_json_schema([(model, "validation") for model in bodies])
    for name in schemas.keys() - asked["$defs"].keys():
        if "properties" in schemas[name]:
            schemas[name]["additionalProperties"] = True


def _operation(
    route: ServiceRoute, fields: dict[str, Any], names: Mapping[tuple[Kind, ...], str]
) -> dict[str, Any]:
    """A route in the document; ``fields``: the schemas of ``_route_model``."""
    responses = _responses(route, fields)
    for kinds in _groups(_kinds(route)):
        responses.setdefault(str(kinds[0].status), {"$ref": f"#/components/responses/{names[kinds]}"})
    operation: dict[str, Any] = {
        "tags": [route.tag],
        "summary": route.name.replace("_", " ").title(),
        "description": getdoc(route.endpoint),
        "operationId": route.name,
        "responses": responses,
    }
    if "body" in fields:
        operation["requestBody"] = {"content": {"application/json": {"schema": fields["body"]}}}
        if route.needs_body:
            operation["requestBody"]["required"] = True
    parameters = [_parameter(route, name, fields[name]) for name in route.parameters.model_fields]
    if rule := route.access:
        operation["security"] = [{"key": []}]
        operation["x-strandline-scope"] = rule.scope
        operation["x-strandline-repeating"] = rule.idempotent
        operation["x-strandline-tells"] = [*rule.tells]
        if rule.holder != "any":
            operation["x-strandline-key"] = rule.holder
        parameters += _headers(rule, route, responses)
    if parameters:
        operation["parameters"] = parameters
    return operation


def _parameter(route: ServiceRoute, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    is_path = name in route.param_convertors
    parameter: dict[str, Any] = {
        "name": name,
        "in": "path" if is_path else "query",
        "required": is_path,
        "schema": schema,
    }
    if "description" in schema:
        parameter["description"] = schema["description"]
    return parameter


def _responses(route: ServiceRoute, fields: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, declared in _answers(route).items():
        response = {"description": HTTPStatus(status).phrase, **declared}
        if response.pop("model", None):
            response["content"] = {"application/json": {"schema": fields[f"answer_{status}"]}}
        if status < 300 and route.access and (headers := _headers_of_success(route, route.access)):
            response["headers"] = headers
        responses[str(status)] = response
    return responses


def _problem_names(groups: Iterable[tuple[Kind, ...]]) -> dict[tuple[Kind, ...], str]:
    """Names for the responses that are problems, of the kinds of one status that a route has."""
    distinct = sorted(set(groups), key=lambda kinds: [KINDS.index(kind) for kind in kinds])
    statuses = Counter(kinds[0].status for kinds in distinct)
    named = {kinds: kinds[:1] if statuses[kinds[0].status] == 1 else kinds for kinds in distinct}
    return {kinds: "".join(kind.name.title().replace("-", "") for kind in of) for kinds, of in named.items()}


def _groups(kinds: Iterable[Kind]) -> Iterator[tuple[Kind, ...]]:
    by_status: dict[int, list[Kind]] = {}
    for kind in kinds:
        by_status.setdefault(kind.status, []).append(kind)
    yield from (tuple(by_status[status]) for status in sorted(by_status))


def _headers_of_success(route: ServiceRoute, rule: Access) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if route.path_format.endswith("/context"):
        headers |= _FRESHNESS
    if rule.is_kept:
        headers |= _text_header(REPLAYED_HEADER, "`true`: the response that was given before.")
    if "{fact_id}" in route.path_format and "/facts" in route.path_format and route.method != "DELETE":
        headers |= _text_header("ETag", "Names the fact as it is.")
    if rule.goes_on:
        headers |= _text_header("Location", "Where it is told how far it is.")
    return headers


def _text_header(name: str, description: str) -> dict[str, Any]:
    return {name: {"description": description, "schema": {"type": "string"}}}


_FRESHNESS = {
    **_text_header(
        COVERED_HEADER, "By pipeline, the last number up to which memory covers all: `facts=12, summary=8`."
    ),
    CAUGHT_UP_HEADER: {
        "description": "`true`: no flushed message is still on its way.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
}


def _headers(rule: Access, route: ServiceRoute, responses: Mapping[str, Any]) -> list[dict[str, Any]]:
    headers = []
    if rule.takes_user:
        text = "The user, for a key that is not one user's"
        if route.needs_user:
            text += f", which must say it; `{NO_USER}`: the session has no user"
        elif route.path_format != "/v1/whoami":
            text += f"; `{NO_USER}`: only what has no user"
        headers.append(_header(USER_HEADER, f"{text}.", MAX_NAME_BYTES, example="ana"))
    if rule.is_known_by_key:
        headers.append(_header(IDEMPOTENCY_HEADER, _OF_A_KEY[rule.idempotent], MAX_KEY_BYTES))
    if rule.matches:
        headers.append(
            _header("If-Match", "The ETag that the fact must still have.", 200, example='"1-62d1f3"')
        )
    if "304" in responses:
        headers.append(_header("If-None-Match", "The ETag that is known.", 200, example='"1-62d1f3"'))
    if rule.queue == "streams":
        headers.append(_header("Last-Event-ID", "The id of the last event that came; resumes.", 17))
    if rule.waits:
        headers.append(
            _header("Prefer", "`wait=5`: how many seconds to wait at most.", 200, example="wait=5")
        )
    return headers


_OF_A_KEY = {
    "kept": "Names the request: repeated with it, nothing is done twice, and its response is given again.",
    "own": "Names the request: repeated with it, nothing is done twice.",
    "once": "Names the request: repeated with it, it is refused, since its answer is not stored.",
}


def _header(name: str, description: str, most: int, *, example: str | None = None) -> dict[str, Any]:
    header: dict[str, Any] = {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", "minLength": 1, "maxLength": most},
    }
    if example is not None:
        header["example"] = example
    return header


_EVERYWHERE = frozenset({"malformed", "not-found", "invalid", "internal"})
_WITH_KEY = frozenset(
    {
        "unauthenticated", "forbidden", "slow-body", "too-large", "too-many-requests", "busy", "stopping",
        "unavailable", "timed-out", "outcome-unknown", "refused", "sealed",
        "unsupported-encoding",
    }
)  # fmt: skip
# Errors that each change may meet, and errors of changes to someone's memory.
_CHANGING = frozenset({"conflict", "redaction-failed"})
_CHANGING_MEMORY = frozenset({"erased", "unknown-pipeline"})


def _kinds(route: ServiceRoute) -> list[Kind]:
    """The problems that a route may answer with."""
    rule = route.access
    if rule is None:
        return [kind for kind in KINDS if kind.name in ("invalid", "internal")]
    names = _EVERYWHERE | _WITH_KEY | {*rule.meets}
    path = route.path_format
    if route.method != "GET" and rule.scope != "read":
        names |= _CHANGING
        if "{session_id}" in path or "{user}" in path or rule.scope is None:
            names |= _CHANGING_MEMORY
        if "{session_id}" in path:
            names |= {"delivered"}
    if rule.is_kept:
        names |= {"idempotency-key-reused"}
    if rule.matches:
        names |= {"other-revision"}
    return [kind for kind in KINDS if kind.name in names]


def problem_of_kinds(kinds: tuple[Kind, ...]) -> dict[str, Any]:
    """The response of kinds that have one status, with an example of each."""
    content = {
        "schema": {"$ref": f"{_SCHEMAS}Problem"},
        "examples": {
            kind.name: {
                "value": {
                    "type": PROBLEM_TYPES + kind.name,
                    "title": kind.title,
                    "status": kind.status,
                    "detail": kind.detail,
                }
            }
            for kind in kinds
        },
    }
    response: dict[str, Any] = {
        "description": "; ".join(kind.title for kind in kinds),
        "content": {PROBLEM_MEDIA_TYPE: content},
    }
    if any(kind.retry_after_seconds is not None for kind in kinds):
        response["headers"] = _text_header("Retry-After", "Seconds to wait.")
    if kinds[0].status == 401:
        response["headers"] = _text_header("WWW-Authenticate", "`Bearer`.")
    return response
