"""The description of the service (OpenAPI 3.1): what the framework writes, with keys, headers, problems."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from strandline.producers.service.gate.problems import KINDS, MEDIA_TYPE, TYPES, Kind
from strandline.producers.service.route import Access, access_of
from strandline.schemas.wire.base import (
    CAUGHT_UP_HEADER,
    COVERED_HEADER,
    IDEMPOTENCY_HEADER,
    REPLAYED_HEADER,
    USER_HEADER,
    Problem,
    ProblemPlace,
)

DESCRIPTION = """\
The memory layer for chat backends, over HTTP.

Send a key with each request: `Authorization: Bearer sl_…`.  It says whose memory it is; a key that is not one
user's names the user in the path, or in the header `Strandline-User`.  Errors are `application/problem+json`.
"""

_TAGS = {
    "messages": "Putting messages, and the log as it is.",
    "runs": "What agents' runs brought to a session.",
    "contexts": "Reads for a prompt, searches, summaries.",
    "sessions": "Sessions: state, policy, flushes, resets, forks.",
    "corrections": "Messages taken back, or given other content.",
    "facts": "A user's facts.",
    "users": "The users of a namespace.",
    "explain": "Why something was remembered, or not.",
    "events": "What happens, as it happens.",
    "imports": "Messages and facts from elsewhere.",
    "erasures": "Erasing users and sessions for good, and exporting what is kept about them.",
    "keys": "Keys, and the identity of a request.",
    "audit": "Who did what.",
    "operations": "For operators.",
    "health": "For load balancers.",
}


# Of a process, whose applications all have the routes of ``ROUTERS``: to make it takes most of a second.
_documents: list[dict[str, Any]] = []


def describe(app: FastAPI) -> None:
    """Have ``app.openapi()`` give the description."""

    def openapi() -> dict[str, Any]:
        if not _documents:
            _documents.append(_document(app))
        return _documents[0]

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        description=DESCRIPTION,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["ProblemPlace"] = ProblemPlace.model_json_schema()
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    problem.pop("$defs", None)
    schemas["Problem"] = problem
    components["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "A key of the service: `sl_<id>_<secret>`.",
        }
    }
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in route.methods or ():
                operation = document["paths"][route.path_format][method.lower()]
                _complete(operation, route, access_of(route))
    return document


def _complete(operation: dict[str, Any], route: APIRoute, rule: Access | None) -> None:
    responses: dict[str, Any] = operation["responses"]
    responses.pop("422", None)
    for kind in _kinds(route, rule):
        _add_problem(responses, kind)
    if rule is None:
        return
    operation["security"] = [{"key": []}]
    operation["x-strandline-scope"] = rule.scope
    parameters = operation.setdefault("parameters", [])
    parameters += _headers(rule, route)
    if not parameters:
        del operation["parameters"]
    good = responses.get(str(route.status_code or 200), {})
    if route.path_format.endswith("/context"):
        good.setdefault("headers", {}).update(_FRESHNESS)
    if rule.keeps_response:
        good.setdefault("headers", {})[REPLAYED_HEADER] = {
            "description": "`true`: the response that was given before.",
            "schema": {"type": "string"},
        }
    if "ETag" in _headers_of_success(route):
        good.setdefault("headers", {})["ETag"] = {
            "description": "Names the fact as it is.",
            "schema": {"type": "string"},
        }


_FRESHNESS = {
    COVERED_HEADER: {
        "description": "By pipeline, the last number up to which memory covers all: `facts=12, summary=8`.",
        "schema": {"type": "string"},
    },
    CAUGHT_UP_HEADER: {
        "description": "`true`: no flushed message is still on its way.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
}


def _headers_of_success(route: APIRoute) -> tuple[str, ...]:
    return ("ETag",) if "/facts" in route.path_format and "{fact_id}" in route.path_format else ()


def _headers(rule: Access, route: APIRoute) -> list[dict[str, Any]]:
    headers = []
    if rule.takes_user:
        headers.append(_header(USER_HEADER, "The user, for a key that is not one user's.", 512))
    if rule.takes_key:
        headers.append(
            _header(IDEMPOTENCY_HEADER, "Names the request: repeated with it, nothing is done twice.", 512)
        )
    if rule.matches:
        headers.append(
            _header("If-Match", "The ETag that the fact must still have.", 200, example='"1-62d1f3"')
        )
    if rule.queue == "others" or route.path_format.endswith("/context"):
        headers.append(
            _header("Prefer", "`wait=5`: how many seconds to wait at most.", 200, example="wait=5")
        )
    return headers


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
        "redaction-failed", "unsupported-encoding",
    }
)  # fmt: skip
_WRITING = frozenset({"conflict", "delivered", "erased", "unknown-pipeline"})


def _kinds(route: APIRoute, rule: Access | None) -> list[Kind]:
    """The problems that a route may answer with."""
    if rule is None:
        return [kind for kind in KINDS if kind.name in ("invalid", "internal")]
    names = _EVERYWHERE | _WITH_KEY
    if rule.queue != "reads":
        names |= _WRITING
    if rule.keeps_response:
        names |= {"idempotency-key-reused"}
    if rule.matches:
        names |= {"other-revision"}
    if rule.queue == "others":
        names |= {"model-failed"}
    return [kind for kind in KINDS if kind.name in names]


def _add_problem(responses: dict[str, Any], kind: Kind) -> None:
    response = responses.setdefault(
        str(kind.status),
        {"description": "", "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}},
    )
    content = response["content"].setdefault(MEDIA_TYPE, {"schema": {"$ref": "#/components/schemas/Problem"}})
    text = response.get("description") or ""
    response["description"] = f"{text}; {kind.title}" if text else kind.title
    content.setdefault("examples", {})[kind.name] = {
        "value": {
            "type": TYPES + kind.name,
            "title": kind.title,
            "status": kind.status,
            "detail": kind.detail,
        }
    }
    if kind.retry_after_seconds is not None:
        response.setdefault("headers", {})["Retry-After"] = {
            "description": "Seconds to wait.",
            "schema": {"type": "string"},
        }
    if kind.status == 401:
        response.setdefault("headers", {})["WWW-Authenticate"] = {"schema": {"type": "string"}}
