"""Each method of the client with arguments, as the operation that it carries out; nothing is sent."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from strandline.client import RemoteAdmin, RemoteFacts, RemoteMemory, RemoteService
from strandline.client.operations import Call, Operation
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.values.acts.retention import Retention
from strandline.schemas.wire.keys import KeyRequest
from strandline.schemas.wire.operations import ImportedFactIn, LimitsIn, ReplayIn
from tools.typescript import DOCUMENT

PATHS: dict[str, Any] = json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"]
SERVICE = RemoteService("http://nowhere.example/below", "sl_a_b")
SERVICE.known_namespace = "default"
FACES: dict[type, Any] = {
    RemoteMemory: RemoteMemory.from_defaults("a/b", user_id="ünï", service=SERVICE),
    RemoteFacts: RemoteFacts(SERVICE, "ünï"),
    RemoteAdmin: RemoteAdmin(SERVICE),
}
ID = UUID(int=7)
HELLO = {"role": "user", "content": "hello", "id": "m1"}


def ask(*arguments: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return arguments, named


ASKED: dict[type, dict[str, tuple[tuple[Any, ...], dict[str, Any]]]] = {
    RemoteMemory: {
        "put": ask(HELLO),
        "put_messages": ask([HELLO]),
        "import_messages": ask([HELLO]),
        "get": ask("x", wait_for=3),
        "get_all": ask(),
        "iterate": ask(after_seq=3),
        "history": ask(),
        "context_window": ask(),
        "search": ask("x"),
        "summarize": ask(wait=1.5),
        "summarize_last": ask(3),
        "explain": ask("m/1"),
        "add_run": ask("r/1", [HELLO]),
        "run_history": ask(),
        "reset": ask(),
        "flush": ask(),
        "deliver": ask(),
        "pop": ask(),
        "rewind": ask(1),
        "replace": ask(1, "x"),
        "fork": ask(),
        "set_policy": ask(token_limit=5),
        "get_retention": ask(),
        "set_retention": ask(Retention(max_messages=3)),
    },
    RemoteFacts: {
        "get": ask(ID),
        "list": ask(),
        "search": ask("x"),
        "add": ask("x"),
        "replace": ask(ID, "x"),
        "delete": ask(ID),
        "settle": ask(ID, "new"),
        "clear": ask(),
        "feedback": ask(ID, "x"),
        "import_facts": ask([ImportedFactIn(id="1", text="x")]),
        "create_from": ask([HELLO]),
        "instruct": ask("forget it"),
        "forget_source": ask("s"),
        "choose": ask("x"),
        "explain": ask(ID),
        "topics": ask(),
        "figures": ask(),
        "optimize": ask(),
        "get_capture": ask(),
        "set_capture": ask(Capture(may_add=False)),
    },
    RemoteAdmin: {
        "whoami": ask(),
        "status": ask(),
        "workers": ask(),
        "create_key": ask(KeyRequest(scopes=["read"])),
        "keys": ask(),
        "rotate_key": ask("k"),
        "revoke_key": ask("k"),
        "namespaces": ask(),
        "limits": ask("n/1"),
        "set_limits": ask("n/1", LimitsIn(max_lanes=2)),
        "dead_letters": ask(),
        "retry_dead_letter": ask(ID),
        "drop_dead_letter": ask(ID),
        "start_replay": ask(ReplayIn(pipeline="facts")),
        "estimate_replay": ask(ReplayIn(pipeline="facts")),
        "operations": ask(),
        "operation": ask(1),
        "stop_operation": ask(1),
        "generations": ask(),
        "diff_generation": ask(2),
        "promote_generation": ask(2),
        "prune_generation": ask(2),
        "roll_pipeline_back": ask("facts"),
        "acts": ask(),
        "act": ask(ID),
        "verify_audit": ask(),
        "audit_level": ask(),
        "set_audit_level": ask("all"),
        "users": ask(),
        "sessions": ask(),
        "session": ask("a/b"),
        "explain_message": ask("m/1"),
        "explain_fact": ask(ID),
        "plan_user": ask("u"),
        "plan_session": ask("a/b"),
        "erase_user": ask("u", actor="desk", items_below=[["u", "notes"]]),
        "erase_session": ask("a/b"),
        "readmit_user": ask("u"),
        "readmit_session": ask("a/b"),
        "erasures": ask(user_id="u"),
        "erasure": ask(1),
        "receipt": ask(1),
        "verify_erasure": ask(1),
    },
}


def every_operation() -> Iterator[tuple[str, Operation[Any]]]:
    """The name of each method, and its operation; of a list that of the first page."""
    for face, methods in ASKED.items():
        for name, (arguments, named) in methods.items():
            operation = inspect.unwrap(getattr(face, name))
            cursor = (None,) if "cursor" in inspect.signature(operation).parameters else ()
            yield f"{face.__name__}.{name}", operation(FACES[face], *cursor, *arguments, **named)
    yield "RemoteAdmin.erasures", inspect.unwrap(RemoteAdmin.erasures)(FACES[RemoteAdmin], None)


def route_of(method: str, path: str) -> str:
    """The route of the document that a request asks; one without parameters goes before."""
    for route in sorted(PATHS, key=lambda one: one.count("{")):
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route))
        if re.fullmatch(pattern, path) and method.lower() in PATHS[route]:
            return f"{method} {route}"
    raise AssertionError(f"{method} {path} is no route of the document")


def description_of(call: Call) -> Any:
    """What the document says of the route that a call asks."""
    return PATHS[route_of(call.method, call.path).partition(" ")[2]][call.method.lower()]
