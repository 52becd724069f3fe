"""Each route of the OpenAPI document is asked by a method of the client, or a reason is here why not."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from strandline.client import RemoteAdmin, RemoteMemory, RemoteService
from strandline.schemas.errors import NotFoundError
from tests.support.remote.client_operations import (
    ASKED,
    PATHS,
    SERVICE,
    description_of,
    every_operation,
    route_of,
)
from tests.support.servers.scripted_server import Answers, answering, problem

WITHOUT = {
    "GET /v1/sessions/{session_id}/context": "the same as its POST, which `get` asks",
    "DELETE /v1/sessions/{session_id}": "reset(derived=True) does it",
    "GET /v1/sessions/{session_id}/scopes/{scope}": "get_scope makes the name without a request",
    "GET /v1/users/{user}/facts/{fact_id}": "facts.get asks for the history, which has the fact",
    "GET /healthz": "for people who operate it",
    "GET /healthz/live": "for load balancers",
    "GET /healthz/ready": "for load balancers",
}
# Streams are no operations.
STREAMS = {
    "events": "GET /v1/sessions/{session_id}/events",
    "admin.events": "GET /v1/events",
    "admin.export_user": "GET /v1/users/{user}/export",
    "admin.export_session": "GET /v1/sessions/{session_id}/export",
}
# Routes that read the key from the body, so that a caller can name the source by it.
KEY_IN_BODY = {"POST /v1/users/{user}/facts/from-messages", "POST /v1/users/{user}/facts/instruct"}


def test_every_route_is_asked_by_a_method_or_a_reason_is_here() -> None:
    asked = {route_of(call.method, call.path) for call in (next(one) for _, one in every_operation())}
    routes = {f"{method.upper()} {path}" for path, methods in PATHS.items() for method in methods}
    assert asked | set(STREAMS.values()) | set(WITHOUT) == routes
    assert not asked & set(WITHOUT)


@pytest.mark.parametrize("face", ASKED)
def test_no_method_is_left_out_here(face: type) -> None:
    methods = {
        name
        for name, method in inspect.getmembers(face, inspect.isfunction)
        if inspect.unwrap(method) is not method and not (name[0] == "a" and name[1:] in ASKED[face])
    }
    assert methods == set(ASKED[face])


def test_what_is_sent_is_what_the_route_takes() -> None:
    for name, operation in every_operation():
        call = next(operation)
        parameters = description_of(call).get("parameters", [])
        known = {one["name"] for one in parameters if one["in"] == "query"}
        assert set(SERVICE.request_of(call).get("params", ())) <= known, name
        # A change that may come twice names itself, where the route can tell that it did.
        headers = {one["name"] for one in parameters if one["in"] == "header"}
        assert set(call.headers) <= headers, name
        if route_of(call.method, call.path) in KEY_IN_BODY:
            assert call.body["key"], name
        else:
            assert ("Idempotency-Key" in headers) == ("Idempotency-Key" in call.headers), name
        assert call.user_id is None or "Strandline-User" in headers, name
        assert call.wait_seconds is None or "Prefer" in headers, name


def test_streams_ask_their_routes(tmp_path: Path) -> None:
    answers = Answers(problem("not-found", 404))
    with answering(answers) as url, RemoteService(url, "sl_a_b") as service:
        memory, admin = RemoteMemory.from_defaults("a/b", service=service), RemoteAdmin(service)
        for ask in (
            lambda: next(memory.events()),
            lambda: next(admin.events()),
            lambda: admin.export_user("ünï", tmp_path / "x"),
            lambda: admin.export_session("a/b", tmp_path / "x"),
        ):
            with pytest.raises(NotFoundError):
                ask()
    assert [route_of("GET", path) for path in answers.paths] == list(STREAMS.values())
