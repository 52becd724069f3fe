"""The description of the service (OpenAPI 3.1): the framework's, with keys, headers and problems."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel

from strandline.schemas.values.identity import MAX_NAME_BYTES, NO_USER
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
from strandline.schemas.wire.contexts import ContextOut, Hits
from strandline.schemas.wire.facts import FactOut
from strandline.schemas.wire.operations import EventOut
from strandline.service.access import Access, access_of, needs_user
from strandline.service.gate.problems import KINDS, NO_METHOD, Kind
from strandline.service.route import MAX_KEY_BYTES

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
    "erasures": "Erasing users and sessions for good, and exporting their data.",
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
    for model in _WITH_NULLS:  # which the framework leaves out of examples
        schemas[model.__name__]["examples"] = model.model_json_schema()["examples"]
    schemas["EventOut"] = EventOut.model_json_schema(mode="serialization")
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema]
    names = _problem_names(
        [(NO_METHOD,), *(group for route in routes for group in _groups(_kinds(route, access_of(route))))]
    )
    components["responses"] = {name: problem_of_kinds(kinds) for kinds, name in names.items()}
    for route in routes:
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            _complete(operation, route, access_of(route), names)
    document = cast(dict[str, Any], _with_plain_names(document))
    _open_answers(document)
    for schema in _parts(document):
        if schema.get("type") == "integer" and not schema.get("maximum", _LARGE) < _LARGE:
            schema["format"] = "int64"
    return document


_LARGE = 2**31


def _open_answers(document: dict[str, Any]) -> None:
    """Say of each body but those of requests that it may have further fields, or generators refuse them."""
    schemas = document["components"]["schemas"]
    bodies = [
        operation["requestBody"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    ]
    asked: set[str] = set()
    while bodies:
        for part in _parts(bodies.pop()):
            name = str(part.get("$ref", "")).removeprefix(_SCHEMAS)
            if name and name not in asked:
                asked.add(name)
                bodies.append(schemas[name])
    for name, schema in schemas.items():
        if name not in asked and "properties" in schema:
            schema["additionalProperties"] = True


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    """All objects of the document, at every depth."""
    if isinstance(part, dict):
        yield part
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _parts(each)


_PAGE = re.compile(r"Page_([A-Za-z]+?)(?:Out|Report|Info)?_(?=$)")
_SCHEMAS = "#/components/schemas/"


def _with_plain_names(part: Any) -> Any:
    """The document with names that a generator of clients makes types of: `MessagePage`."""
    if isinstance(part, dict):
        return {_plain(name): _with_plain_names(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_with_plain_names(each) for each in part]
    return _plain(part) if isinstance(part, str) else part


def _plain(text: str) -> str:
    begins, _, name = text.rpartition("/")
    if not name.startswith(("Page_", "Page[")):
        return text
    name = _PAGE.sub(r"\1Page", name.replace("[", "_").replace("]", "_"))
    return f"{begins}/{name}" if begins else name


_WITH_NULLS: tuple[type[BaseModel], ...] = (ContextOut, FactOut, Hits)


def _problem_names(groups: Iterable[tuple[Kind, ...]]) -> dict[tuple[Kind, ...], str]:
    """Names for the responses that are problems, of the kinds of one status that a route has."""
    distinct = sorted(set(groups), key=lambda kinds: [KINDS.index(kind) for kind in kinds])
    statuses = Counter(kinds[0].status for kinds in distinct)
    return {kinds: _camel(kinds[:1] if statuses[kinds[0].status] == 1 else kinds) for kinds in distinct}


def _camel(kinds: tuple[Kind, ...]) -> str:
    return "".join(kind.name.title().replace("-", "") for kind in kinds)


def _groups(kinds: Iterable[Kind]) -> Iterator[tuple[Kind, ...]]:
    by_status: dict[int, list[Kind]] = {}
    for kind in kinds:
        by_status.setdefault(kind.status, []).append(kind)
    yield from (tuple(by_status[status]) for status in sorted(by_status))


def _complete(
    operation: dict[str, Any], route: APIRoute, rule: Access | None, names: Mapping[tuple[Kind, ...], str]
) -> None:
    operation["operationId"] = route.name
    responses: dict[str, Any] = operation["responses"]
    responses.pop("422", None)
    for kinds in _groups(_kinds(route, rule)):
        responses.setdefault(str(kinds[0].status), {"$ref": f"#/components/responses/{names[kinds]}"})
    if rule is None:
        return
    operation["security"] = [{"key": []}]
    operation["x-strandline-scope"] = rule.scope
    operation["x-strandline-repeating"] = rule.idempotent
    operation["x-strandline-tells"] = list(rule.tells)
    if rule.holder != "any":
        operation["x-strandline-key"] = rule.holder
    parameters = operation.setdefault("parameters", [])
    parameters += _headers(rule, route, responses)
    if not parameters:
        del operation["parameters"]
    for status, good in responses.items():
        if status < "300" and (headers := _headers_of_success(route, rule)):
            good["headers"] = headers


def _headers_of_success(route: APIRoute, rule: Access) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if route.path_format.endswith("/context"):
        headers |= _FRESHNESS
    if rule.is_kept:
        headers |= _text_header(REPLAYED_HEADER, "`true`: the response that was given before.")
    if (
        "{fact_id}" in route.path_format
        and "/facts" in route.path_format
        and "DELETE" not in (route.methods or ())
    ):
        headers |= _text_header("ETag", "Names the fact as it is.")
    if route.name in _LONG_WORK:
        headers |= _text_header("Location", "Where it is told how far it is.")
    return headers


def _text_header(name: str, description: str) -> dict[str, Any]:
    return {name: {"description": description, "schema": {"type": "string"}}}


# Routes that answer before all is done.
_LONG_WORK = ("erase_user", "erase_session", "post_replay")

_FRESHNESS = {
    **_text_header(
        COVERED_HEADER, "By pipeline, the last number up to which memory covers all: `facts=12, summary=8`."
    ),
    CAUGHT_UP_HEADER: {
        "description": "`true`: no flushed message is still on its way.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
}


def _headers(rule: Access, route: APIRoute, responses: Mapping[str, Any]) -> list[dict[str, Any]]:
    headers = []
    if rule.takes_user:
        text = "The user, for a key that is not one user's"
        if needs_user(route):
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
    if route.name in _WAITING:
        headers.append(
            _header("Prefer", "`wait=5`: how many seconds to wait at most.", 200, example="wait=5")
        )
    return headers


# Routes that wait as long as a client says.
_WAITING = (
    "read_context", "summarize", "facts_from_messages", "instruct_facts", "erase_user", "erase_session",
)  # fmt: skip


_OF_A_KEY = {
    "kept": "Names the request: repeated with it, nothing is done twice, and its response is given again.",
    "own": "Names the request: repeated with it, nothing is done twice.",
    "once": "Names the request: repeated with it, it is refused, since what it answered is not stored.",
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
# What each change may meet, and what those of someone's memory may.
_CHANGING = frozenset({"conflict", "redaction-failed"})
_CHANGING_MEMORY = frozenset({"erased", "unknown-pipeline"})
_ASKING_MODELS = frozenset({"summarize_last", "choose_facts", "optimize_facts"})
# Read-only, but in conflict with stored data at times: a generation is not compared with itself.
_COMPARING = frozenset({"diff_generation"})


def _kinds(route: APIRoute, rule: Access | None) -> list[Kind]:
    """The problems that a route may answer with."""
    if rule is None:
        return [kind for kind in KINDS if kind.name in ("invalid", "internal")]
    names = _EVERYWHERE | _WITH_KEY
    path = route.path_format
    if "GET" not in (route.methods or ()) and rule.scope != "read":
        names |= _CHANGING
        if "{session_id}" in path or "{user}" in path or rule.scope is None:
            names |= _CHANGING_MEMORY
        if "{session_id}" in path:
            names |= {"delivered"}
    if rule.is_kept or route.name == "put_messages":
        names |= {"idempotency-key-reused"}
    if rule.matches:
        names |= {"other-revision"}
    if route.name in _COMPARING:
        names |= {"conflict"}
    if route.name in _ASKING_MODELS:
        names |= {"model-failed"}
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
