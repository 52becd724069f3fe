"""``python -m tools.typescript``: write ``docs/strandline.ts``, typed calls made from the OpenAPI document.

The document is the snapshot that the tests hold against the service.  The same text without its types is
JavaScript, which the tests run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "tests" / "producers" / "service" / "openapi.json"
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
    "patch /v1/sessions/{session_id}/policy",
    "get /v1/sessions",
    "get /v1/users/{user}/facts",
    "post /v1/users/{user}/facts",
    "patch /v1/users/{user}/facts/{fact_id}",
    "delete /v1/users/{user}/facts/{fact_id}",
    "post /v1/users/{user}/facts/search",
    "post /v1/users/{user}/erasures",
    "get /v1/erasures/{number}",
    "get /v1/whoami",
)

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
    return _HEADER + interfaces + _untyped(_CLASS, typed).replace("  // CALLS\n", "\n\n".join(calls) + "\n")


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
        arguments.append(Argument("body", _type(body["content"]["application/json"]["schema"])))
    queries = [one for one in operation["parameters"] if one["in"] == "query"]
    if queries:
        fields = "; ".join(f"{one['name']}?: {_type(one['schema'])}" for one in queries)
        arguments.append(Argument("query", f"{{ {fields} }}", "{}"))
    arguments += _header_arguments(operation)
    names = {argument.name for argument in arguments}
    shown = ", ".join(_shown(argument, typed) for argument in arguments)
    result = _result(operation)
    returns = f": Promise<{result}>" if typed else ""
    given = ", ".join(
        [
            f'"{method.upper()}"',
            "`" + re.sub(r"\{(\w+)\}", lambda m: f"${{encode({_camel(m[1])})}}", path) + "`",
            "query" if "query" in names else "{}",
            "body" if "body" in names else "undefined",
            _headers(names),
            json.dumps(_is_safe(method, path, operation)),
        ]
    )
    summary = operation["description"].split("\n\n")[0].replace("\n", " ")
    name = _camel(operation["summary"].lower().replace(" ", "_"))
    return f"  /** {summary} */\n  {name}({shown}){returns} {{\n    return this.#send({given});\n  }}"


def _header_arguments(operation: Json) -> Iterator[Argument]:
    headers = {one["name"] for one in operation["parameters"] if one["in"] == "header"}
    if "Idempotency-Key" in headers:
        yield Argument("idempotencyKey", "string", "crypto.randomUUID()")
    if "If-Match" in headers:
        yield Argument("version", "string | null", "null")
    if "Prefer" in headers:
        yield Argument("waitSeconds", "number | null", "null")


def _headers(names: set[str]) -> str:
    parts = []
    if "idempotencyKey" in names:
        parts.append('"Idempotency-Key": idempotencyKey')
    if "version" in names:
        parts.append('...(version === null ? {} : { "If-Match": `"${version}"` })')
    if "waitSeconds" in names:
        parts.append("...(waitSeconds === null ? {} : { Prefer: `wait=${waitSeconds}` })")
    return f"{{ {', '.join(parts)} }}" if parts else "{}"


def _is_safe(method: str, path: str, operation: Json) -> bool:
    """Whether a request that may have been done can be sent again, as the reference says of *repeating*."""
    headers = {one["name"] for one in operation["parameters"] if one["in"] == "header"}
    reads = method == "get" or str(operation.get("x-strandline-scope", "")).startswith("read")
    replaces = method in ("put", "delete") and not path.endswith("/last") and "If-Match" not in headers
    return reads or replaces or "Idempotency-Key" in headers


def _shown(argument: Argument, typed: bool) -> str:
    type_ = f": {argument.type}" if typed else ""
    return f"{argument.name}{type_}{' = ' + argument.default if argument.default else ''}"


def _result(operation: Json) -> str:
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            content = response.get("content")
            return "void" if content is None else _type(content["application/json"]["schema"])
    raise ValueError("the route has no response")


def _interfaces(document: Json) -> Iterator[str]:
    """The bodies of the main routes, and what they hold, by name."""
    schemas = document["components"]["schemas"]
    operations = [document["paths"][path][method] for method, path in (one.split(" ") for one in ROUTES)]
    bodies = [(one.get("requestBody"), _successes(one)) for one in operations]
    waiting = [*_references(bodies), "Problem"]
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

_CLASS = """\
/** A refusal of the service; `problem.type` names its kind and never changes. */
export class StrandlineError extends Error {
«  readonly problem: Problem;
  readonly retryAfterSeconds: number | null;

»  constructor(problem«: Problem», retryAfterSeconds«: number | null») {
    super(`${problem.title}: ${problem.detail}`);
    this.name = "StrandlineError";
    this.problem = problem;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

«/** How long one attempt and all attempts of a request may take, and what ends them. */
export interface Patience {
  /** Of one attempt, until its answer is whole; what the service is asked to wait comes on top. */
  requestSeconds?: number;
  /** No attempt begins later than this after the first; 0: nothing is sent again. */
  totalSeconds?: number;
  signal?: AbortSignal;
}

/** An event of a stream; `data` is an `EventOut` of the reference. */
export interface StreamEvent {
  id: string | null;
  event: string;
  data: Record<string, unknown>;
}

»/** A service with a key; `user` is for a key that is not one user's. */
export class Strandline {
  #url«: string»;
  #key«: string»;
  #user«: string | undefined»;
  #patience«: Patience»;

  constructor(url«: string», key«: string», user«?: string», patience«: Patience» = {}) {
    this.#url = url.replace(/\\/+$/, "");
    this.#key = key;
    this.#user = user;
    this.#patience = patience;
  }

  // CALLS

  /**
   * A session's events from now on, or behind an id.  A stream that is cut is resumed: an event may come
   * twice, and none is missing.  Leave the loop, or abort the signal, to end it.
   */
  async *events(sessionId«: string», lastEventId«: string | null» = null)«: AsyncGenerator<StreamEvent>» {
    const path = `/v1/sessions/${encode(sessionId)}/events`;
    let last = lastEventId;
    for (let failures = 0; ; ) {
      try {
        const headers = this.#headers(path, last === null ? {} : { "Last-Event-ID": last });
        const { signal } = this.#patience;
        const response = await fetch(this.#url + path, { headers, redirect: "error", signal });
        if (!response.ok || response.body === null) throw await refusal(response);
        for await (const event of eventsIn(response.body)) {
          failures = 0;
          last = event.id ?? last;
          yield event;
        }
        await sleep(Math.random());
      } catch (error) {
        failures += 1;
        const wait = waitSeconds(error, failures, true);
        if (wait === null || this.#patience.signal?.aborted) throw error;
        await sleep(wait);
      }
    }
  }

  #headers(path«: string», more«: Record<string, string>»)«: Record<string, string>» {
    const headers«: Record<string, string>» = { Authorization: `Bearer ${this.#key}`, ...more };
    if (this.#user !== undefined && path.startsWith("/v1/sessions")) {
      // A header holds bytes: text in UTF-8, byte by byte.
      headers["Strandline-User"] = String.fromCharCode(...new TextEncoder().encode(this.#user));
    }
    return headers;
  }

  /** Sends a request, again if nothing was done, or if it `isSafe` and may have been done. */
  async #send«<T>»(
    method«: string»,
    path«: string»,
    query«: Record<string, unknown>»,
    body«: unknown»,
    more«: Record<string, string>»,
    isSafe«: boolean»,
  )«: Promise<T>» {
    const headers = this.#headers(path, more);
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const { requestSeconds = 35, totalSeconds = 30, signal } = this.#patience;
    const asked = Number.parseFloat(more["Prefer"]?.slice("wait=".length) ?? "0");
    const began = Date.now();
    for (let attempt = 1; ; attempt += 1) {
      try {
        const late = AbortSignal.timeout(1000 * (requestSeconds + asked));
        const response = await fetch(this.#url + path + encodeQuery(query), {
          method,
          headers,
          body: body === undefined ? undefined : JSON.stringify(body),
          redirect: "error",
          signal: signal === undefined ? late : AbortSignal.any([late, signal]),
        });
        if (!response.ok) throw await refusal(response);
        return (response.status === 204 ? undefined : await response.json())« as T»;
      } catch (error) {
        const wait = waitSeconds(error, attempt, isSafe);
        const spent = (Date.now() - began) / 1000;
        if (wait === null || signal?.aborted || spent + wait > totalSeconds) throw error;
        await sleep(wait);
      }
    }
  }
}

/** A message as OpenAI's chat API takes it, without what it refuses. */
export function toOpenAI(message«: MessageOut»)«: Record<string, unknown>» {
  const { role, content, name, tool_calls, tool_call_id, extra } = message;
  const fields = Object.entries({ name, tool_calls, tool_call_id, ...extra });
  const there = fields.filter(([, value]) => value !== null && value !== undefined);
  return { role, content, ...Object.fromEntries(there) };
}

/** Before the next attempt: a random part of a time that doubles, and `Retry-After`; null: there is none. */
function waitSeconds(error«: unknown», attempt«: number», isSafe«: boolean»)«: number | null» {
  const wait = Math.random() * Math.min(5, 0.1 * 2 ** (attempt - 1));
  if (!(error instanceof StrandlineError)) return isSafe ? wait : null; // no answer, or half of one
  const { status, type } = error.problem;
  if (nothingDone.includes(type)) return wait + (error.retryAfterSeconds ?? 0);
  const isUnknown = unknown.includes(type) || (type === "about:blank" && [502, 503, 504].includes(status));
  return isUnknown && isSafe ? wait : null;
}

const problems = "urn:strandline:problem:";
const nothingDone = ["busy", "stopping", "too-many-requests", "unavailable"].map((kind) => problems + kind);
const unknown = ["outcome-unknown", "timed-out"].map((kind) => problems + kind);

function sleep(seconds«: number»)«: Promise<void>» {
  return new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
}

async function* eventsIn(body«: ReadableStream<Uint8Array>»)«: AsyncGenerator<StreamEvent>» {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = ""; ; ) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\\n\\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const lines = block.split("\\n");
        const pairs = lines.map((line) => [line.split(":")[0], line.slice(line.indexOf(":") + 2)]);
        const { id = null, event = "message", data } = Object.fromEntries(pairs);
        // A comment keeps the connection open, and has no data.
        if (data !== undefined) yield { id, event, data: JSON.parse(data) };
      }
    }
  } finally {
    await reader.cancel();
  }
}

function encode(name«: string | number»)«: string» {
  return encodeURIComponent(name);
}

function encodeQuery(query«: Record<string, unknown>»)«: string» {
  const pairs = Object.entries(query)
    .flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, one]))
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => `${encodeURIComponent(String(name))}=${encodeURIComponent(String(value))}`);
  return pairs.length === 0 ? "" : `?${pairs.join("&")}`;
}

async function refusal(response«: Response»)«: Promise<StrandlineError>» {
  const after = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  const isProblem = response.headers.get("Content-Type")?.startsWith("application/problem+json");
  const { status } = response;
  const problem«: Problem» = isProblem
    ? await response.json()
    : { type: "about:blank", title: "Not Strandline's", status, detail: "Look at what stands between." };
  return new StrandlineError(problem, Number.isNaN(after) ? null : after);
}
"""


def main() -> None:
    CLIENT.write_text(client(json.loads(DOCUMENT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
