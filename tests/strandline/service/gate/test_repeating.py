"""Requests that come again: each route says what an Idempotency-Key does, and none takes one for nothing."""

from __future__ import annotations

import re
from collections import Counter
from urllib.parse import quote, unquote_to_bytes
from uuid import uuid4

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.schemas.wire.keys import SCOPES
from strandline.service.access import Access
from strandline.service.gate.heads import route_of
from strandline.service.route import ServiceRoute
from strandline.service.routes import ROUTES
from tests.support.servers.service_server import RunningService

CHANGING = {"POST", "PUT", "PATCH", "DELETE"}


def changing_routes() -> list[tuple[ServiceRoute, Access]]:
    return [
        (route, route.access) for route in ROUTES if route.method in CHANGING and route.access is not None
    ]


def test_each_route_that_changes_something_says_what_repeating_does() -> None:
    kinds = Counter(rule.idempotent for _, rule in changing_routes())
    assert sum(kinds.values()) > 45 and min(kinds.values()) >= 2, kinds
    silent = [
        route.name for route, rule in changing_routes() if rule.idempotent == "reads" and rule.scope != "read"
    ]
    assert silent == ["estimate_replay"]  # which reads


def test_a_key_is_refused_where_it_would_mean_nothing(running: RunningService) -> None:
    refusing = [route for route, rule in changing_routes() if rule.idempotent == "refused"]
    key = running.make_key("refusing", scopes=SCOPES)
    root = running.make_key(None, scopes=["operate"])
    assert len(refusing) > 5
    with running.client(key, user="ana") as client, running.client(root) as operator:
        for route in refusing:
            rule = route.access
            asker = operator if rule is not None and rule.holder == "installation" else client
            path = re.sub(r"\{generation\}", "1", route.path_format)
            path = re.sub(r"\{(fact|event)_id\}", str(uuid4()), path)
            path = re.sub(r"\{\w+\}", "x", path)
            method = route.method
            answer = asker.request(method, path, headers={"Idempotency-Key": "k"}, json={})
            assert answer.status_code == 422, (route.name, answer.text)
            (place,) = answer.json()["errors"]
            assert place["pointer"] == "/header/Idempotency-Key" and "leave it out" in place["detail"]


@pytest.mark.parametrize("of_all", [True, False])
def test_a_repeated_request_makes_no_second_key(running: RunningService, *, of_all: bool) -> None:
    namespace = f"n-{uuid4().hex}"
    maker = running.make_key(None if of_all else namespace, scopes=["operate"])
    body = {"scopes": ["read"], "namespace": namespace}
    once = {"Idempotency-Key": "make"}
    with running.client(maker) as client:
        made = client.post("/v1/admin/keys", json=body, headers=once)
        assert made.status_code == 201
        key_id = made.json()["key_id"]
        refused(client.post("/v1/admin/keys", json=body, headers=once), key_id)
        refused(client.post("/v1/admin/keys", json=body | {"label": "other"}, headers=once), key_id)
        path = f"/v1/admin/keys/{key_id}/rotate"
        rotated = client.post(path, json={"overlap_seconds": 0}, headers=once)
        assert rotated.status_code == 201
        refused(client.post(path, json={"overlap_seconds": 0}, headers=once), rotated.json()["key_id"])
        ours = client.get("/v1/admin/keys", params={"limit": 1_000}).json()["items"]
        made_here = [one for one in ours if one["namespace"] == namespace and one["scopes"] == ["read"]]
        assert len(made_here) == 2
    with running.client(running.make_key(namespace, scopes=["operate"])) as another:
        assert another.post("/v1/admin/keys", json={"scopes": ["read"]}, headers=once).status_code == 201


def refused(answer: httpx2.Response, key_id: str) -> None:
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:strandline:problem:conflict")
    assert key_id in answer.json()["detail"] and "revoke" in answer.json()["detail"]


@given(st.text("aZ09_.~-/%2Fé +", max_size=20))
def test_paths_that_decode_alike_are_one_route(path: str) -> None:
    """A plain path takes a short cut, which must make no second name of it."""
    encoded = "/".join(quote(unquote_to_bytes(part), safe="") for part in path.split("/"))
    assert route_of({"method": "GET", "path": path}) == route_of({"method": "GET", "path": encoded})
    assert route_of({"method": "GET", "path": path}) == f"GET {encoded}"
