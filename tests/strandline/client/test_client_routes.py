"""Each route of the OpenAPI document is asked by an operation of the client, or a reason is here why not."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any
from uuid import UUID

from strandline.client import RemoteAdmin, RemoteFacts, RemoteMemory, RemoteService
from strandline.client import admin_operations as admin
from strandline.client import fact_operations as facts
from strandline.client import session_changes as changes
from strandline.client import session_operations as sessions
from strandline.client.operations import Call
from strandline.client.upkeep import erasures
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.values.acts.retention import Retention
from strandline.schemas.wire.keys import KeyRequest
from strandline.schemas.wire.operations import ImportedFactIn, LimitsIn, ReplayIn
from tools.typescript import DOCUMENT

WITHOUT = {
    "GET /v1/sessions/{session_id}/context": "the same as its POST",
    "DELETE /v1/sessions/{session_id}": "reset(derived=True) does it",
    "GET /v1/sessions/{session_id}/scopes/{scope}": "get_scope makes the name without a request",
    "GET /v1/users/{user}/facts/{fact_id}": "get asks for the history, which has the fact",
    "GET /v1/events": "a stream: events",
    "GET /v1/sessions/{session_id}/events": "a stream: events",
    "GET /healthz/live": "for load balancers",
    "GET /healthz/ready": "for load balancers",
    "GET /v1/users/{user}/export": "a stream into a file: export_user",
    "GET /v1/sessions/{session_id}/export": "a stream into a file: export_session",
    "GET /v1/explain/messages/{message_id}": "for people: `strandline explain`",
    "GET /v1/explain/facts/{fact_id}": "for people: `strandline explain`",
}
SERVICE = RemoteService("http://nowhere.example/below", "sl_a_b")
SERVICE.known_namespace = "default"
MEMORY = RemoteMemory.from_defaults("a/b", user_id="ünï", service=SERVICE)
FACTS = RemoteFacts(SERVICE, "ünï")
ADMIN = RemoteAdmin(SERVICE)
ID = UUID(int=7)
HELLO = {"role": "user", "content": "hello", "id": "m1"}

OPERATIONS: list[Generator[Call, Any, Any]] = [
    sessions.put(MEMORY, HELLO),
    sessions.put_messages(MEMORY, [HELLO]),
    sessions.import_messages(MEMORY, [HELLO]),
    sessions.get(MEMORY, "x", wait_for=3),
    sessions.get_all(MEMORY),
    sessions.history(MEMORY),
    sessions.context_window(MEMORY),
    sessions.search(MEMORY, "x"),
    sessions.summarize(MEMORY, wait=1.5),
    sessions.summarize_last(MEMORY, 3),
    sessions.add_run(MEMORY, "r/1", [HELLO]),
    sessions.run_history(MEMORY),
    changes.reset(MEMORY),
    changes.flush(MEMORY),
    changes.deliver(MEMORY),
    changes.pop(MEMORY),
    changes.rewind(MEMORY, 1),
    changes.replace(MEMORY, 1, "x"),
    changes.fork(MEMORY),
    changes.set_policy(MEMORY, token_limit=5),
    changes.get_retention(MEMORY),
    changes.set_retention(MEMORY, Retention(max_messages=3)),
    facts.get(FACTS, ID),
    facts.list(FACTS),
    facts.search(FACTS, "x"),
    facts.add(FACTS, "x"),
    facts.replace(FACTS, ID, "x"),
    facts.delete(FACTS, ID),
    facts.clear(FACTS),
    facts.feedback(FACTS, ID, "x"),
    facts.import_facts(FACTS, [ImportedFactIn(id="1", text="x")]),
    facts.create_from(FACTS, [HELLO]),
    facts.instruct(FACTS, "forget it"),
    facts.forget_source(FACTS, "s"),
    facts.choose(FACTS, "x"),
    facts.topics(FACTS),
    facts.figures(FACTS),
    facts.optimize(FACTS),
    facts.get_capture(FACTS),
    facts.set_capture(FACTS, Capture(may_add=False)),
    admin.whoami(ADMIN),
    admin.status(ADMIN),
    admin.workers(ADMIN),
    admin.create_key(ADMIN, KeyRequest(scopes=["read"])),
    admin.keys(ADMIN, None),
    admin.rotate_key(ADMIN, "k"),
    admin.revoke_key(ADMIN, "k"),
    admin.namespaces(ADMIN),
    admin.limits(ADMIN, "n/1"),
    admin.set_limits(ADMIN, "n/1", LimitsIn(max_lanes=2)),
    admin.dead_letters(ADMIN, None),
    admin.retry_dead_letter(ADMIN, ID),
    admin.drop_dead_letter(ADMIN, ID),
    admin.start_replay(ADMIN, ReplayIn(pipeline="facts")),
    admin.estimate_replay(ADMIN, ReplayIn(pipeline="facts")),
    admin.operations(ADMIN, None),
    admin.operation(ADMIN, 1),
    admin.stop_operation(ADMIN, 1),
    admin.generations(ADMIN),
    admin.diff_generation(ADMIN, 2),
    admin.promote_generation(ADMIN, 2),
    admin.prune_generation(ADMIN, 2),
    admin.roll_pipeline_back(ADMIN, "facts"),
    admin.acts(ADMIN, None),
    admin.act(ADMIN, ID),
    admin.verify_audit(ADMIN),
    admin.audit_level(ADMIN),
    admin.set_audit_level(ADMIN, "all"),
    admin.users(ADMIN, None),
    admin.sessions(ADMIN, None),
    admin.session(ADMIN, "a/b"),
    erasures.plan_user(ADMIN, "u"),
    erasures.plan_session(ADMIN, "a/b"),
    erasures.erase_user(ADMIN, "u", actor="desk", items_below=[["u", "notes"]]),
    erasures.erase_session(ADMIN, "a/b"),
    erasures.readmit_user(ADMIN, "u"),
    erasures.readmit_session(ADMIN, "a/b"),
    erasures.erasures(ADMIN, None),
    erasures.erasures(ADMIN, None, user_id="u"),
    erasures.erasure(ADMIN, 1),
    erasures.receipt(ADMIN, 1),
    erasures.verify_erasure(ADMIN, 1),
]
PATHS: dict[str, Any] = json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"]


def route_of(call: Call) -> str:
    """The route of the document that a request asks; one without parameters goes before."""
    for path in sorted(PATHS, key=lambda one: one.count("{")):
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
        if re.fullmatch(pattern, call.path) and call.method.lower() in PATHS[path]:
            return f"{call.method} {path}"
    raise AssertionError(f"{call.method} {call.path} is no route of the document")


def test_every_route_is_asked_by_an_operation_or_a_reason_is_here() -> None:
    calls = [next(operation) for operation in OPERATIONS]
    asked = {route_of(call) for call in calls}
    routes = {f"{method.upper()} {path}" for path, methods in PATHS.items() for method in methods}
    assert asked | set(WITHOUT) == routes
    assert not asked & set(WITHOUT)
    for call in calls:
        sent = SERVICE.request_of(call)
        parameters = PATHS[route_of(call).partition(" ")[2]][call.method.lower()].get("parameters", [])
        known = {one["name"] for one in parameters if one["in"] == "query"}
        assert set(sent.get("params", ())) <= known, call
        # A change that may come twice names itself, where the route can tell that it did.
        takes_key = any(one["name"] == "Idempotency-Key" for one in parameters)
        key_in_body = isinstance(call.body, dict) and "key" in call.body
        assert takes_key == ("Idempotency-Key" in call.headers) or key_in_body, call
