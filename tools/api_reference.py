"""``python -m tools.api_reference``: write ``docs/api.md``, the service's reference, from the OpenAPI.

The document is the snapshot that the tests hold against the service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.service.gate.problems import KINDS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "tests" / "strandline" / "service" / "openapi.json"
REFERENCE = ROOT / "docs" / "api.md"
WIDTH = 116

Json = Mapping[str, Any]

_JSON = "application/json"
_PROBLEM = "application/problem+json"
_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "minLength": "≥ {} characters",
    "maxLength": "≤ {} characters",
    "minItems": "≥ {}",
    "maxItems": "≤ {}",
}
# What numbers and lists can hold at all is no bound that a caller need know of.
_UNBOUNDED = 2**31 - 1

_HEADER = """\
# The routes of the service

This page is written by `python -m tools.api_reference` from the OpenAPI document; do not edit it.
The service serves the document: `GET /openapi.json`.
[service.md](service.md) has a quick start, and the [rules](service.md#rules) of all routes.

Within `/v1` answers may get fields, and values where *now* stands;
a change that breaks a client gets a new prefix.

- **scope**: the scope that the key needs; *any*: each key does.
  *namespace*: the key must not be one user's; *installation*: it must be an operator's of all namespaces.
- **user**: how a request names the user, with a key that is not one user's: *path*, or *header*
  (`Strandline-User`; `-`: a session without a user); *header?*: optional (`-`: only sessions without a user).
- **repeating**: *key*: with an `Idempotency-Key` it is done once;
  *once*: likewise, but a repetition is a `409`, since its answer is not stored;
  *same*: done again, it changes nothing more;
  *If-Match*: done once if the ETag is sent; *reads*: it changes no memory;
  *look*: nothing names the request (an `Idempotency-Key` is a `422`), so check whether it was done.
- **tells**: content of its answer, besides the request's own:
  people's *messages*, *facts*, *summaries* and *items*,
  *names* (ids of users and sessions), *operators*' words (labels, actors, reasons, instructions).
  A key of one user reads that user alone, a key of a namespace that namespace;
  the key of the installation reads no words of people, and the trail of a namespace has a `reveal`
  where it read *names*.
- **errors**: the last parts of `type`, in addition to those of every route.
"""


@dataclass(frozen=True, slots=True)
class Route:
    """An operation of the document."""

    method: str
    path: str
    operation: Json

    @property
    def name(self) -> str:
        """Method and path, as code."""
        return f"`{self.method.upper()} {self.path}`"

    @property
    def scope(self) -> str:
        """What the key must allow, and whose it must be."""
        scope: str | None = self.operation.get("x-strandline-scope", "none")
        holder = self.operation.get("x-strandline-key")
        return ("*any*" if scope is None else scope) + (f", *{holder}*" if holder else "")

    @property
    def user(self) -> str:
        """Where a request names the user."""
        header = self.parameters("header").get("Strandline-User")
        if header is not None:
            return "header" if "must say" in header["description"] else "header?"
        return "path" if "user" in self.parameters("path") else ""

    @property
    def repeating(self) -> str:
        """What becomes of a request that is sent twice."""
        if "If-Match" in self.parameters("header"):
            return "If-Match"
        kind = str(self.operation.get("x-strandline-repeating", "reads"))
        return {"kept": "key", "own": "key", "refused": "look"}.get(kind, kind)

    @property
    def tells(self) -> str:
        """What of content its answer can hold."""
        return ", ".join(self.operation.get("x-strandline-tells", ()))

    @property
    def statuses(self) -> list[str]:
        """Those of success."""
        return [status for status in self.operation["responses"] if status < "400"]

    @property
    def problems(self) -> set[str]:
        """The kinds of its errors."""
        contents = (each.get("content", {}) for each in self.operation["responses"].values())
        return {name for content in contents for name in content.get(_PROBLEM, {}).get("examples", {})}

    @property
    def answer(self) -> str:
        """What it answers with."""
        contents = self.operation["responses"][self.statuses[0]].get("content", {})
        if "text/event-stream" in contents:
            event = contents["text/event-stream"]["x-strandline-data"]
            return f"a [stream](service.md#streams) of {_type(event)}"
        return _type(contents[_JSON]["schema"]) if _JSON in contents else ""

    @property
    def body(self) -> str:
        """What it takes."""
        body = self.operation.get("requestBody")
        return "" if body is None else _type(body["content"][_JSON]["schema"])

    def parameters(self, place: str) -> dict[str, Json]:
        """Its parameters in the path, the query or the header."""
        found = self.operation.get("parameters", ())
        return {each["name"]: each for each in found if each["in"] == place}


def reference(document: Json) -> str:
    """The page."""
    routes = list(_routes(document))
    common = set.intersection(*(route.problems for route in routes if route.scope != "none"))
    parts = [_HEADER, *_wrapped(f"Every route with a key has {_codes(sorted(common))}.")]
    titles = [tag["name"].capitalize() for tag in document["tags"]]
    links = " · ".join(f"[{title}](#{title.lower()})" for title in [*titles, "Errors", "Values"])
    parts += ["", *_wrapped(links), ""]
    for tag, title in zip(document["tags"], titles, strict=True):
        of_tag = [route for route in routes if route.operation["tags"] == [tag["name"]]]
        parts += [f"## {title}", "", tag["description"], "", *_overview(of_tag, common), ""]
        for route in of_tag:
            parts += _details(route)
    parts += ["## Errors", "", *_errors(), "", "## Values", ""]
    parts += ["`?` after a name: it may be left out, or is not always there; *free*: any JSON.", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += _value(name, schema)
    return "\n".join(parts).rstrip() + "\n"


def _routes(document: Json) -> Iterator[Route]:
    shared = document["components"]["responses"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            responses = {
                status: shared[one["$ref"].rpartition("/")[2]] if "$ref" in one else one
                for status, one in operation["responses"].items()
            }
            yield Route(method, path, {**operation, "responses": responses})


def _overview(routes: Iterable[Route], common: set[str]) -> Iterator[str]:
    yield "| route | scope | user | repeating | tells | errors | |"
    yield "|---|---|---|---|---|---|---|"
    for route in routes:
        what = _sentences(route.operation["description"]).partition("\n\n")[0].replace("\n", " ")
        problems = _codes(sorted(route.problems - common))
        cells = (route.scope, route.user, route.repeating, route.tells, problems, what)
        yield f"| {route.name} | {' | '.join(cells)} |"


def _details(route: Route) -> Iterator[str]:
    takes = list(_parameters(route))
    more = _sentences(route.operation["description"]).partition("\n\n")[2]
    success = ", ".join(route.statuses) + (f" with {route.answer}" if route.answer else "")
    yield f"### {route.name}"
    yield ""
    if more:
        yield from (line for part in more.split("\n\n") for line in (*_wrapped(part.replace("\n", " ")), ""))
    yield from takes
    if route.body:
        may = "" if route.operation["requestBody"].get("required") else ", or none"
        yield f"- Body: {route.body}{may}"
    yield f"- Answers {success}"
    yield ""


def _parameters(route: Route) -> Iterator[str]:
    for name, parameter in route.parameters("query").items():
        schema = parameter["schema"]
        said = parameter.get("description") or schema.get("description", "")
        facts = ", ".join([_type(schema), *_limits(schema)])
        first, *others = _wrapped(f"- `{name}=`: {'; '.join(filter(None, (facts, _line(said))))}")
        yield from (first, *(f"  {line}" for line in others))
    headers = [f"`{name}`" for name in route.parameters("header")]
    if headers:
        yield f"- Headers: {', '.join(headers)}"


def _errors() -> Iterator[str]:
    yield "`type` is `urn:strandline:problem:` and the name."
    yield ""
    yield "| status | name | title | what to do |"
    yield "|---|---|---|---|"
    for kind in sorted(KINDS, key=lambda kind: (kind.status, kind.name)):
        yield f"| {kind.status} | `{kind.name}` | {kind.title} | {kind.detail} |"


def _value(name: str, schema: Json) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    for part in _sentences(schema.get("description", "")).split("\n\n"):
        if part:
            yield from (*_wrapped(part.replace("\n", " ")), "")
    if "properties" not in schema:
        yield from (f"It is {_type(schema)}.", "")
        return
    required = schema.get("required", ())
    yield "| field | | |"
    yield "|---|---|---|"
    for field, of in schema["properties"].items():
        facts = [*_limits(of)]
        if "default" in of and of["default"] is not None:
            facts.append(f"default `{json.dumps(of['default'], ensure_ascii=False)}`")
        said = _line(of.get("description", ""))
        notes = "; ".join(filter(None, (", ".join(facts), said)))
        yield f"| `{field}`{'' if field in required else '?'} | {_type(of)} | {notes} |"
    yield ""
    for example in schema.get("examples", ()):
        yield from ("```json", json.dumps(example, ensure_ascii=False), "```", "")


def _type(schema: Json) -> str:
    """A schema in a word or a link."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if known := schema.get("x-extensible-enum"):
        return "string, now " + " or ".join(f"`{json.dumps(each)}`" for each in known)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[union]))
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"object of {_type(values)}" if isinstance(values, Mapping) and values else "object"
    kind = str(schema.get("type", "*free*"))
    return f"{kind} ({schema['format']})" if "format" in schema and kind == "string" else kind


def _limits(schema: Json) -> Iterator[str]:
    """The bounds of a value, of each of its kinds."""
    for name, form in _BOUNDS.items():
        value = schema.get(name)
        if value is not None and abs(value) < _UNBOUNDED:
            yield form.format(f"{value:g}" if isinstance(value, float) and value < 1 else f"{int(value):,}")
    for each in schema.get("anyOf", ()):
        yield from _limits(each)


def _sentences(text: str) -> str:
    """A docstring as Markdown."""
    return re.sub(r"(?<=\S)  +", " ", text.replace("``", "`")).strip()


def _line(text: str) -> str:
    return " ".join(_sentences(text).split()).replace("|", "\\|")


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _wrapped(text: str) -> Iterator[str]:
    """One sentence a line, and none too wide."""
    for sentence in re.split(r"(?<=[.;:]) (?=[A-Z`*])", text):
        line = ""
        for word in re.findall(r"(?:\[[^\]]*\]\([^)]*\)|`[^`]*`|\S)+", sentence):
            if line and len(line) + 1 + len(word) > WIDTH:
                yield line
                line = word
            else:
                line = f"{line} {word}".strip()
        yield line


def main() -> None:
    """Write the page."""
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    REFERENCE.write_text(reference(document), encoding="utf-8")


if __name__ == "__main__":
    main()
