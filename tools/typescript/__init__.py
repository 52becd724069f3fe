"""``python -m tools.typescript``: write ``docs/strandline.ts``, typed calls made from the OpenAPI document.

The document is the snapshot that the tests hold against the service.  What is sent again,
streams and time-outs are written by hand, in ``core.txt``: TypeScript whose types stand between « and ».
The same text without its types is JavaScript, which the tests run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.client.retrying import NOT_DONE, UNKNOWN

ROOT = Path(__file__).resolve().parent.parent.parent
CORE = Path(__file__).parent / "core.txt"
DOCUMENT = ROOT / "tests" / "strandline" / "service" / "openapi.json"
CLIENT = ROOT / "docs" / "strandline.ts"

# The main routes: what a chat backend calls.
ROUTES = (
    "post /v1/sessions/{session_id}/messages",
    "get /v1/sessions/{session_id}/messages",
    "post /v1/sessions/{session_id}/context",
    "post /v1/sessions/{session_id}/search",
    "post /v1/sessions/{session_id}/history",
    "delete /v1/sessions/{session_id}/messages/last",
    "post /v1/sessions/{session_id}/rewind",
    "put /v1/sessions/{session_id}/messages/{seq}/content",
    "post /v1/sessions/{session_id}/flush",
    "post /v1/sessions/{session_id}/reset",
    "post /v1/sessions/{session_id}/fork",
    "get /v1/sessions",
    "get /v1/sessions/{session_id}",
    "delete /v1/sessions/{session_id}",
    "patch /v1/sessions/{session_id}/policy",
    "post /v1/sessions/{session_id}/import",
    "get /v1/sessions/{session_id}/events",
    "get /v1/events",
    "get /v1/users/{user}/facts",
    "post /v1/users/{user}/facts",
    "patch /v1/users/{user}/facts/{fact_id}",
    "delete /v1/users/{user}/facts/{fact_id}",
    "post /v1/users/{user}/facts/search",
    "get /v1/users/{user}/facts/{fact_id}",
    "get /v1/users/{user}/facts/{fact_id}/history",
    "post /v1/users/{user}/facts/from-messages",
    "post /v1/users/{user}/facts/import",
    "get /v1/users/{user}/erasures/plan",
    "post /v1/users/{user}/erasures",
    "post /v1/sessions/{session_id}/erasures",
    "get /v1/erasures/{number}",
    "get /v1/erasures/{number}/receipt",
    "get /v1/users/{user}/export",
    "get /v1/sessions/{session_id}/export",
    "get /v1/whoami",
)

# A receipt is a signed line: it is given as it was sent.
_AS_TEXT = frozenset({"get_receipt"})
# What is known by its ids changes nothing more the second time.
_REPEATABLE = frozenset({"import_messages", "import_facts"})
_STREAMS = {
    "text/event-stream": ("#events", "ServiceEvent"),
    "application/jsonl": ("#lines", "Record<string, unknown>"),
}

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of a function; ``default`` is an expression, empty if it has to be given."""

    name: str
    type: str
    default: str = ""


def client(document: Json, *, typed: bool = True) -> str:
    """The module; without types it is JavaScript."""
    calls = [_call(document, route, typed) for route in ROUTES]
    interfaces = "\n\n".join(_interfaces(document)) + "\n\n" if typed else ""
    core = _untyped(CORE.read_text(encoding="utf-8"), typed)
    for name, kinds in (("NOT_DONE", NOT_DONE), ("UNKNOWN", UNKNOWN)):
        core = core.replace(f"/* {name} */", json.dumps(sorted(kinds)))
    return _HEADER + interfaces + core.replace("  // CALLS\n", "\n\n".join(calls) + "\n")


def _call(document: Json, route: str, typed: bool) -> str:
    """The function of one route."""
    method, path = route.split(" ")
    operation = document["paths"][path][method]
    arguments = [
        Argument(_camel(one["name"]), _type(one["schema"]))
        for one in operation["parameters"]
        if one["in"] == "path"
    ]
    body = operation.get("requestBody")
    if body is not None:
        default = "" if body.get("required") else "{}"
        arguments.append(Argument("body", _type(body["content"]["application/json"]["schema"]), default))
    queries = [one for one in operation["parameters"] if one["in"] == "query"]
    if queries:
        fields = "; ".join(f"{one['name']}?: {_type(one['schema'])}" for one in queries)
        arguments.append(Argument("query", f"{{ {fields} }}", "{}"))
    arguments.append(Argument("options", _options(operation), "{}"))
    shown = ", ".join(_shown(argument, typed) for argument in arguments)
    located = "`" + re.sub(r"\{(\w+)\}", lambda m: f"${{encode({_camel(m[1])})}}", path) + "`"
    stream = _STREAMS.get(next(iter(_success(operation).get("content", ())), ""))
    if stream is not None:
        returns = f": AsyncGenerator<{stream[1]}>"
        sends = f"this.{stream[0]}({located}, options)"
    else:
        returns = f": Promise<{_result(operation)}>"
        sent = _sent(method, located, operation, {argument.name for argument in arguments})
        how = "#text" if operation["operationId"] in _AS_TEXT else "#json"
        sends = f"this.{how}({{ {', '.join(sent)} }})"
    summary = operation["description"].split("\n\n")[0].replace("\n", " ")
    name = _camel(operation["summary"].lower().replace(" ", "_"))
    return f"  /** {summary} */\n  {name}({shown}){returns if typed else ''} {{\n    return {sends};\n  }}"


def _sent(method: str, path: str, operation: Json, arguments: set[str]) -> Iterator[str]:
    """The fields of a call."""
    headers = _header_names(operation)
    yield f'method: "{method.upper()}"'
    yield f"path: {path}"
    yield from (name for name in ("query", "body") if name in arguments)
    if "Idempotency-Key" in headers:
        yield 'headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }'
    elif "If-Match" in headers:
        yield ('headers: { "If-Match": options.version === undefined ? undefined : `"${options.version}"` }')
    is_read = method == "get" or operation["x-strandline-scope"] == "read"
    is_safe = is_read or "Idempotency-Key" in headers or operation["operationId"] in _REPEATABLE
    yield f"isSafe: {json.dumps(is_safe)}"
    yield f"namesUser: {json.dumps('Strandline-User' in headers)}"
    yield "options"


def _options(operation: Json) -> str:
    """The type of what a call takes beside its parameters and body."""
    headers = _header_names(operation)
    if "text/event-stream" in _success(operation).get("content", {}):
        return "StreamOptions"
    own = {
        "Idempotency-Key": "idempotencyKey?: string",
        "If-Match": "version?: string",
        "Prefer": "waitSeconds?: number",
    }
    fields = [field for header, field in own.items() if header in headers]
    return "CallOptions" + (f" & {{ {'; '.join(fields)} }}" if fields else "")


def _header_names(operation: Json) -> set[str]:
    return {one["name"] for one in operation["parameters"] if one["in"] == "header"}


def _shown(argument: Argument, typed: bool) -> str:
    type_ = f": {argument.type}" if typed else ""
    return f"{argument.name}{type_}{' = ' + argument.default if argument.default else ''}"


def _result(operation: Json) -> str:
    """The type of what a call gives."""
    if operation["operationId"] in _AS_TEXT:
        return "string"
    content = _success(operation).get("content")
    return "void" if content is None else _type(content["application/json"]["schema"])


def _success(operation: Json) -> Json:
    """The first response that is a success."""
    found: Json = _successes(operation)[0]
    return found


def _interfaces(document: Json) -> Iterator[str]:
    """The bodies of the main routes, and what they hold, by name."""
    schemas = document["components"]["schemas"]
    operations = [document["paths"][path][method] for method, path in (one.split(" ") for one in ROUTES)]
    bodies = [(one.get("requestBody"), _successes(one)) for one in operations]
    waiting = [*_references(bodies), "Problem", "EventOut"]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _references(schemas[name])
    for name in sorted(found):
        yield _interface(name, schemas[name])


def _successes(operation: Json) -> list[Any]:
    return [response for status, response in operation["responses"].items() if status.startswith("2")]


def _interface(name: str, schema: Json) -> str:
    required = set(schema.get("required", ()))
    fields = [
        f"  {field}{'' if field in required else '?'}: {_type(kind)};"
        for field, kind in schema["properties"].items()
    ]
    summary = schema.get("description", "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
    return "\n".join([f"/** {summary} */", f"export interface {_pascal(name)} {{", *fields, "}"])


def _references(node: Any) -> list[str]:
    """The names of the schemas that a part of the document refers to."""
    return re.findall(r'"#/components/schemas/(\w+)"', json.dumps(node))


_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def _type(schema: Json) -> str:
    """A schema as a type."""
    if "$ref" in schema:
        return _pascal(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    if known := schema.get("x-extensible-enum"):  # later releases have more
        return " | ".join([*map(json.dumps, known), "(string & {})"])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(dict.fromkeys(_type(one) for one in schema[union]))
    if schema.get("type") == "array":
        item = _type(schema["items"])
        return f"({item})[]" if " | " in item else f"{item}[]"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties", True)
        return f"Record<string, {_type(values) if isinstance(values, Mapping) and values else 'unknown'}>"
    return _SCALARS.get(str(schema.get("type")), "unknown")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _pascal(name: str) -> str:
    return name.replace("_", "")


def _untyped(text: str, typed: bool) -> str:
    """The text with its types, which stand between « and »; or without them."""
    return re.sub(r"«([^»]*)»", r"\1" if typed else "", text)


_HEADER = """\
// Written by `python -m tools.typescript` from the OpenAPI document of the service; do not edit.
// Needs `fetch`, `crypto.randomUUID` and `AbortSignal.any`: Node 20.3 or newer, Deno, Bun, or a worker.

"""


def main() -> None:
    CLIENT.write_text(client(json.loads(DOCUMENT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
