"""The description: a contract that changes on purpose, with routes for what Python and the commands do."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import click
import jsonschema
import pytest

from strandline import Audit, Facts, Memory, replay, retention
from strandline.cli.entry import COMMANDS, load_command
from strandline.erasure import Erasures
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.schemas.wire.keys import SCOPES
from tests.support.servers.service_server import RunningService

SNAPSHOT = Path(__file__).parent / "openapi.json"

S, U, A = "/v1/sessions/{session_id}", "/v1/users/{user}", "/v1/admin"
_LOCAL = "concerns objects of one process"

# Of each public method its route, or in brackets why it has none.
MEMORY = {
    "put": f"POST {S}/messages",
    "put_messages": f"POST {S}/messages",
    "import_messages": f"POST {S}/import",
    "get": f"POST {S}/context",
    "get_all": f"GET {S}/messages",
    "iterate": f"GET {S}/messages",
    "history": f"POST {S}/history",
    "context_window": f"GET {S}/context_window",
    "search": f"POST {S}/search",
    "summarize": f"POST {S}/summary",
    "summarize_last": f"POST {S}/summary/latest",
    "add_run": f"PUT {S}/runs/{{run_id}}",
    "run_history": f"POST {S}/run-history",
    "set": "(a reset and a put; over HTTP these are two requests, so that each can be repeated)",
    "reset": f"POST {S}/reset",
    "flush": f"POST {S}/flush",
    "deliver": f"POST {S}/flush",
    "pop": f"DELETE {S}/messages/last",
    "rewind": f"POST {S}/rewind",
    "replace": f"PUT {S}/messages/{{seq}}/content",
    "fork": f"POST {S}/fork",
    "set_policy": f"PATCH {S}/policy",
    "get_scope": f"GET {S}/scopes/{{scope}}",
    "get_retention": f"GET {S}/retention",
    "set_retention": f"PUT {S}/retention",
    "retention_acts": "(an operator's record: `strandline retention`)",
    "facts": f"GET {U}/facts",
    "tools": "(a model's tools go to a process, or by MCP)",
    "call_tool": "(a model's tools go to a process, or by MCP)",
    "from_defaults": f"({_LOCAL})",
    "close": f"({_LOCAL})",
    "put_limits": "(limits of the process that puts; a refusal names the bound)",
    "session_id": f"GET {S}",
    "user_id": f"GET {S}",
    "namespace": "GET /v1/whoami",
    "token_limit": f"GET {S}",
    "memory_blocks": f"GET {S}",
}
FACTS = {
    "get": f"GET {U}/facts/{{fact_id}}",
    "list": f"GET {U}/facts",
    "search": f"POST {U}/facts/search",
    "choose": f"POST {U}/facts/choose",
    "add": f"POST {U}/facts",
    "replace": f"PATCH {U}/facts/{{fact_id}}",
    "delete": f"DELETE {U}/facts/{{fact_id}}",
    "settle": f"POST {U}/facts/{{fact_id}}/settle",
    "clear": f"DELETE {U}/facts",
    "feedback": f"PUT {U}/facts/{{fact_id}}/feedback",
    "import_facts": f"POST {U}/facts/import",
    "create_from": f"POST {U}/facts/from-messages",
    "instruct": f"POST {U}/facts/instruct",
    "forget_source": f"DELETE {U}/sources/{{source}}",
    "topics": f"GET {U}/topics",
    "figures": f"GET {U}/figures",
    "optimize": f"POST {U}/facts/optimize",
    "apply_optimization": f"POST {U}/facts/optimize",
    "get_capture": f"GET {U}/capture",
    "set_capture": f"PUT {U}/capture",
    "capture_acts": "(an operator's record: `strandline facts capture`)",
    "for_owner": f"({_LOCAL})",
    "of_namespace": f"({_LOCAL})",
    "close": f"({_LOCAL})",
    "namespace": "GET /v1/whoami",
    "user_id": "GET /v1/whoami",
}
NAMESPACE_FACTS = {
    "users": "GET /v1/users",
    "namespace": "GET /v1/whoami",
    "clear_each": "(clears a whole tenant, owner by owner: `strandline facts clear`)",
    "close": f"({_LOCAL})",
    "clear": "(clears a whole tenant, owner by owner: `strandline facts clear`)",
    "to_clear": "(clears a whole tenant, owner by owner: `strandline facts clear`)",
    "get_capture": "(of a namespace: `strandline facts capture`)",
    "set_capture": "(of a namespace: `strandline facts capture`)",
    "capture_acts": "(of a namespace: `strandline facts capture`)",
}
AUDIT = {
    "acts": f"GET {A}/audit",
    "each": f"GET {A}/audit",
    "act": f"GET {A}/audit/acts/{{entry_id}}",
    "level": f"GET {A}/audit/level",
    "set_level": f"PUT {A}/audit/level",
    "verify": f"GET {A}/audit/verification",
    "anchor": "(anchors are kept outside of the database: `strandline audit anchor`)",
    "prune": "(deletes evidence: `strandline audit prune`)",
    "plan_pruning": "(goes with prune)",
    "namespace": "GET /v1/whoami",
    "of_namespace": f"({_LOCAL})",
    "close": f"({_LOCAL})",
}
E = "/v1/erasures"
ERASURES = {
    "erase_user": f"POST {U}/erasures",
    "erase_session": f"POST {S}/erasures",
    "plan_user": f"GET {U}/erasures/plan",
    "plan_session": f"GET {S}/erasures/plan",
    "readmit_user": f"POST {U}/readmission",
    "readmit_session": f"POST {S}/readmission",
    "list": f"GET {E}",
    "show": f"GET {E}/{{number}}",
    "verify": f"GET {E}/{{number}}/verification",
    "export_user": f"GET {U}/export",
    "export_session": f"GET {S}/export",
    "find_erased_rows": "(looks for rows of all namespaces: `strandline erasures verify`)",
    "reapply": "(after a restore, before producers write: `strandline erasures reapply`)",
    "vacuum": "(may take hours, on the operator's machine: `strandline erasures erase --vacuum`)",
    "has_key": "(the receipt says whether it is signed)",
    "namespace": "GET /v1/whoami",
    "of_namespace": f"({_LOCAL})",
    "close": f"({_LOCAL})",
}
_OPERATORS = "an operator's, on a machine with the archives"
_ASKED = "asks models as the machine on which it runs does"
RETENTION = {
    "get_retention": f"GET {S}/retention",
    "set_retention": f"PUT {S}/retention",
    "retention_acts": "(an operator's record: `strandline retention`)",
    "plan": f"({_OPERATORS}: `strandline retention plan`)",
    "run": f"({_OPERATORS}: `strandline retention run`; workers do it by themselves)",
    "status": f"({_OPERATORS}: `strandline retention status`)",
    "archived_ranges": f"({_OPERATORS}: `strandline retention archived`)",
    "read_archived": f"({_OPERATORS}: `strandline retention archived`)",
    "restore": f"({_OPERATORS}: `strandline retention restore`)",
    "adopt": f"({_OPERATORS}: `strandline retention adopt`)",
    "provide_input": "(a part of a replay from the archive, in its process)",
    "connect": f"({_LOCAL})",
}
_CARRIES = f"POST {A}/replays"
REPLAY = {
    "begin_in_place": _CARRIES,
    "begin_generation": _CARRIES,
    "claim_replay": _CARRIES,
    "derive_generation": _CARRIES,
    "replay_in_place": _CARRIES,
    "estimate": f"POST {A}/replays/estimate",
    "replays": f"GET {A}/operations",
    "kept_generations": f"GET {A}/generations",
    "serving_generations": f"GET {A}/generations",
    "compare_generations": f"GET {A}/generations/{{generation}}/diff",
    "serve_everybody": f"POST {A}/generations/{{generation}}/promote",
    "switch_owner": f"POST {A}/generations/{{generation}}/promote",
    "roll_back": f"POST {A}/pipelines/{{pipeline}}/rollback",
    "prune": f"DELETE {A}/generations/{{generation}}",
    "connect": f"({_LOCAL})",
}
COMMAND_ROUTES = {
    "audit": f"GET {A}/audit",
    "retention": f"PUT {S}/retention",
    "encryption": "(reads the keyring of the machine on which it runs)",
    "erasures": f"POST {U}/erasures",
    "export": f"GET {U}/export",
    "up": "(starts servers)",
    "demo": "(starts servers)",
    "worker": "(starts a worker)",
    "serve": "(starts the service)",
    "exporter": "(serves metrics to Prometheus)",
    "top": "(shows GET /v1/status in a terminal)",
    "migrate": "(changes tables, before the service runs)",
    "doctor": "(looks at the machine on which it runs)",
    "mcp": "(speaks stdio)",
    "keys": f"POST {A}/keys",
    "status": "GET /v1/status",
    "sessions": "GET /v1/sessions",
    "get": f"POST {S}/context",
    "ask": f"POST {S}/context",
    "search": f"POST {S}/search",
    "eval": "(asks for as long as it takes, with a file of questions)",
    "flush": f"POST {S}/flush",
    "import": f"POST {S}/import",
    "verify": "(reads all tables for as long as it takes, on the operator's machine)",
    "explain": "GET /v1/explain/messages/{message_id}",
    "facts": f"GET {U}/facts",
    "limits": f"PUT {A}/namespaces/{{namespace}}/limits",
    "replay": f"POST {A}/replays",
    "generations": f"GET {A}/generations",
    "dead-letters": f"GET {A}/dead-letters",
    "models": f"({_ASKED})",
    "prompts": "(shows what the package asks models)",
}
# Of commands that have parts; a command alone stands above.
SUBCOMMAND_ROUTES = {
    "keys create": f"POST {A}/keys",
    "keys list": f"GET {A}/keys",
    "keys rotate": f"POST {A}/keys/{{key_id}}/rotate",
    "keys revoke": f"DELETE {A}/keys/{{key_id}}",
    "sessions list": "GET /v1/sessions",
    "sessions show": f"GET {S}",
    "sessions delete": f"DELETE {S}",
    "sessions fork": f"POST {S}/fork",
    "sessions rewind": f"POST {S}/rewind",
    "sessions replace": f"PUT {S}/messages/{{seq}}/content",
    "sessions set-policy": f"PATCH {S}/policy",
    "facts list": f"GET {U}/facts",
    "facts add": f"POST {U}/facts",
    "facts replace": f"PATCH {U}/facts/{{fact_id}}",
    "facts delete": f"DELETE {U}/facts/{{fact_id}}",
    "facts settle": f"POST {U}/facts/{{fact_id}}/settle",
    "facts history": f"GET {U}/facts/{{fact_id}}/history",
    "facts users": "GET /v1/users",
    "facts figures": f"GET {U}/figures",
    "facts capture": f"PUT {U}/capture",
    "facts clear": f"DELETE {U}/facts",
    "limits list": f"GET {A}/namespaces",
    "limits set": f"PUT {A}/namespaces/{{namespace}}/limits",
    "limits clear": f"PUT {A}/namespaces/{{namespace}}/limits",
    "erasures erase": f"POST {U}/erasures",
    "erasures list": f"GET {E}",
    "erasures show": f"GET {E}/{{number}}",
    "erasures verify": f"GET {E}/{{number}}/verification",
    "erasures readmit": f"POST {U}/readmission",
    "erasures reapply": "(after a restore, before producers write)",
    "erasures key": "(makes a key on the machine that signs)",
    "retention show": f"GET {S}/retention",
    "retention set": f"PUT {S}/retention",
    "retention plan": f"({_OPERATORS})",
    "retention run": f"({_OPERATORS}; workers do it by themselves)",
    "retention status": f"({_OPERATORS})",
    "retention archived": f"({_OPERATORS})",
    "retention restore": f"({_OPERATORS})",
    "retention adopt": f"({_OPERATORS})",
    "audit list": f"GET {A}/audit",
    "audit show": f"GET {A}/audit/acts/{{entry_id}}",
    "audit verify": f"GET {A}/audit/verification",
    "audit level": f"PUT {A}/audit/level",
    "audit anchors": "(anchors are kept outside of the database)",
    "audit export": "(a file for whoever checks the trail elsewhere)",
    "audit prune": "(deletes evidence)",
    "encryption enable": "(for whoever holds the keyring)",
    "encryption status": "(for whoever holds the keyring)",
    "encryption reseal": "(for whoever holds the keyring)",
    "encryption rotate": "(for whoever holds the keyring)",
    "encryption retire": "(for whoever holds the keyring)",
    "generations list": f"GET {A}/generations",
    "generations diff": f"GET {A}/generations/{{generation}}/diff",
    "generations promote": f"POST {A}/generations/{{generation}}/promote",
    "generations rollback": f"POST {A}/pipelines/{{pipeline}}/rollback",
    "generations prune": f"DELETE {A}/generations/{{generation}}",
    "models show": f"({_ASKED})",
    "models check": f"({_ASKED})",
    "prompts show": "(shows what the package asks models)",
    "dead-letters list": f"GET {A}/dead-letters",
    "dead-letters show": f"GET {A}/dead-letters",
    "dead-letters retry": f"POST {A}/dead-letters/{{event_id}}/retry",
    "dead-letters drop": f"POST {A}/dead-letters/{{event_id}}/drop",
}


@pytest.fixture(scope="module")
def document(running: RunningService) -> dict[str, Any]:
    found: dict[str, Any] = running.app.openapi()
    return found


def routes(document: dict[str, Any]) -> set[str]:
    return {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}


def public(kind: type) -> set[str]:
    """The public methods and properties, each twin with its sync one."""
    names = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
    return {name for name in names if not (name.startswith("a") and name[1:] in names)}


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        (Memory, MEMORY),
        (Facts, FACTS),
        (NamespaceFacts, NAMESPACE_FACTS),
        (Audit, AUDIT),
        (Erasures, ERASURES),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_each_public_method_has_its_route_or_a_reason(
    document: dict[str, Any], kind: type, listed: dict[str, str]
) -> None:
    assert public(kind) == set(listed)
    assert {route for route in listed.values() if not route.startswith("(")} <= routes(document)


@pytest.mark.parametrize(("module", "listed"), [(retention, RETENTION), (replay, REPLAY)], ids=str)
def test_each_public_function_has_its_route_or_a_reason(
    document: dict[str, Any], module: ModuleType, listed: dict[str, str]
) -> None:
    assert {name for name in module.__all__ if inspect.isfunction(getattr(module, name))} == set(listed)
    assert {route for route in listed.values() if not route.startswith("(")} <= routes(document)


def test_each_command_has_its_route_or_a_reason(document: dict[str, Any]) -> None:
    assert set(COMMAND_ROUTES) == set(COMMANDS)
    groups = {name: load_command(name) for name in COMMANDS}
    parts = {
        f"{name} {part}"
        for name, group in groups.items()
        if isinstance(group, click.Group)
        for part in group.commands
    }
    assert set(SUBCOMMAND_ROUTES) == parts
    listed = {*COMMAND_ROUTES.values(), *SUBCOMMAND_ROUTES.values()}
    assert {route for route in listed if not route.startswith("(")} <= routes(document)


def test_the_contract_changes_on_purpose(document: dict[str, Any]) -> None:
    """After a change that is meant: `python -m tests.strandline.service.write_snapshot`."""
    stored = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    plain = json.loads(json.dumps(document))
    plain["info"]["version"] = stored["info"]["version"]
    assert plain == stored


def test_the_description_is_valid_and_says_what_a_request_needs(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    names = {
        operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
    }
    assert len(names) == len(routes(document))
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["summary"] and operation["description"] and operation["tags"], where
            if not path.startswith("/healthz"):
                assert operation["security"] == [{"key": []}] and "x-strandline-scope" in operation, where
                assert {"401", "403", "422", "429", "503"} <= set(operation["responses"]), where
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


# Bodies whose effect needs what no example can name: a generation, a key, somebody erased; or ends somebody.
NEED_MORE = {
    "promote_generation", "post_rotation", "post_replay", "estimate_replay", "put_limits",
    "readmit_user", "readmit_session", "erase_user", "erase_session", "settle_fact",
}  # fmt: skip


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, str, str, Any]]:
    """Method, path, operation and the example of each body."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            if content:
                reference = content["application/json"]["schema"].get("$ref", "").rpartition("/")[2]
                examples = document["components"]["schemas"].get(reference, {}).get("examples", [None])
                yield method.upper(), path, operation["operationId"], examples[0]


def test_each_body_has_an_example_that_is_taken(running: RunningService, document: dict[str, Any]) -> None:
    """What the description shows as a body is a body."""
    key = running.make_key(uuid4().hex, scopes=SCOPES)
    said = [{"role": "user", "content": f"I live in Lisbon, number {number}."} for number in range(3)]
    refused = {}
    with running.client(key, user="ana") as client:
        fact = client.post("/v1/users/ana/facts", json={"text": "Lives in Lisbon."}).json()["fact_id"]
        filled = {"user": "ana", "run_id": "run-1", "seq": "1", "fact_id": fact}
        for method, path, operation, example in bodies(document):
            assert example is not None, operation
            if operation in NEED_MORE:
                continue
            filled["session_id"] = operation
            if "{session_id}" in path:
                client.post(f"/v1/sessions/{operation}/messages", json={"messages": said})
            url = re.sub(r"\{(\w+)\}", lambda match: filled[match[1]], path)
            answer = client.request(method, url, json=example)
            if not answer.is_success:
                refused[operation] = answer.text
    assert refused == {}


def test_it_is_there_before_the_first_request(running: RunningService) -> None:
    """Making it takes most of a second, in which a process would answer nobody."""
    assert json.loads(running.app.state.description) == json.loads(SNAPSHOT.read_text()) | {
        "info": running.app.openapi()["info"]
    }


def test_it_is_served_to_all(running: RunningService, document: dict[str, Any]) -> None:
    with running.client(None) as client:
        assert client.get("/openapi.json").json() == json.loads(json.dumps(document))


def test_examples_of_answers_are_answers(document: dict[str, Any]) -> None:
    """What the description shows as a value is one, by its own schema."""
    schemas = document["components"]["schemas"]
    shown = {name for name, schema in schemas.items() if schema.get("examples")}
    assert shown >= {"ContextOut", "FactOut", "Hits", "MessagesPut", "Problem", "EventOut"}
    for name in sorted(shown):
        rooted = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        for example in schemas[name]["examples"]:
            jsonschema.validate(example, rooted, jsonschema.Draft202012Validator)


def parts(part: Any) -> Iterator[dict[str, Any]]:
    """All objects of a part of the document."""
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    for each in part if isinstance(part, list) else ():
        yield from parts(each)


def test_a_generator_of_clients_makes_types_that_hold_what_comes(document: dict[str, Any]) -> None:
    """Go has an `int32` of an integer without a format, and refuses fields unless a type is open."""
    integers = [part for part in parts(document) if part.get("type") == "integer"]
    assert len(integers) > 150
    for schema in integers:
        assert (schema.get("format") == "int64") == (schema.get("maximum", 2**31) >= 2**31), schema
    asked = {
        part["$ref"].rpartition("/")[2]
        for methods in document["paths"].values()
        for operation in methods.values()
        for part in parts(operation.get("requestBody"))
        if "$ref" in part
    }
    schemas = document["components"]["schemas"]
    inner = {
        part["$ref"].rpartition("/")[2] for name in asked for part in parts(schemas[name]) if "$ref" in part
    }
    assert {"MessageIn", "PolicyIn"} <= inner
    for name, schema in schemas.items():
        if "properties" in schema:
            assert schema["additionalProperties"] is (name not in asked | inner), name


def test_a_generator_of_clients_finds_plain_names_and_each_problem_once(document: dict[str, Any]) -> None:
    names = [*document["components"]["schemas"], *document["components"]["responses"]]
    operations = {
        operation["operationId"]: operation
        for methods in document["paths"].values()
        for operation in methods.values()
    }
    assert [name for name in [*names, *operations] if not name.replace("_", "").isalnum()] == []
    assert [name for name in names if "_" in name] == []
    assert {"MessagePage", "EventOut"} <= set(names)
    for name, operation in operations.items():
        for status, response in operation["responses"].items():
            if status >= "400" and name != "ready":
                assert list(response) == ["$ref"], (name, status)
        if operation["responses"].keys() & {"409", "410"}:
            assert name not in ("list_messages", "list_facts", "get_sessions", "get_status"), name
    assert "502" not in operations["get_status"]["responses"]
    assert "Location" in operations["erase_user"]["responses"]["202"]["headers"]
    assert "Last-Event-ID" in {one["name"] for one in operations["session_events"]["parameters"]}
