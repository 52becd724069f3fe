"""Operators over HTTP: status, limits, dead letters, replays and generations, each to whom it concerns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.conftest import wait_until
from tests.support.servers.service_server import RunningService


@pytest.fixture(scope="module")
def root(running: RunningService) -> Iterator[httpx2.Client]:
    with running.client(running.make_key(None, scopes=["operate"])) as client:
        yield client


@pytest.fixture(scope="module")
def acme(running: RunningService) -> Iterator[httpx2.Client]:
    with running.client(running.make_key("acme", scopes=["operate"])) as client:
        yield client


def ended(root: httpx2.Client, operation: dict[str, Any]) -> dict[str, Any]:
    path = f"/v1/admin/operations/{operation['operation_id']}"
    wait_until(lambda: not root.get(path).json()["is_running"], timeout=60, what="the end of the replay")
    found: dict[str, Any] = root.get(path).json()
    return found


def test_status_is_for_the_installation(root: httpx2.Client, acme: httpx2.Client) -> None:
    assert {one["name"] for one in root.get("/v1/status").json()["pipelines"]} == {
        "facts",
        "summary",
        "vectors",
    }
    assert root.get("/v1/admin/workers").json() == {"items": [], "next_cursor": None}
    assert (acme.get("/v1/status").status_code, acme.get("/v1/admin/workers").status_code) == (403, 403)


def test_limits_are_set_whole_and_seen_by_their_namespace(root: httpx2.Client, acme: httpx2.Client) -> None:
    path = "/v1/admin/namespaces/acme/limits"
    assert acme.get(path).status_code == 404
    body = {"calls_per_day": 100, "agents_read_only": True}
    assert root.put(path, json=body).json()["calls_per_day"] == 100
    root.put("/v1/admin/namespaces/globex/limits", json={"max_lanes": 2})
    assert acme.get(path).json()["agents_read_only"] is True
    assert acme.get("/v1/admin/namespaces/globex/limits").status_code == 404
    assert [one["namespace"] for one in acme.get("/v1/admin/namespaces").json()["namespaces"]] == ["acme"]
    assert len(root.get("/v1/admin/namespaces").json()["namespaces"]) == 2
    assert acme.put(path, json={}).status_code == 403
    assert root.put(path, json={"max_lanes": 3}).json()["calls_per_day"] is None
    assert root.put(path, json={}).json()["max_lanes"] is None
    assert acme.get(path).status_code == 404


def test_a_replay_is_an_operation_with_an_end(running: RunningService, root: httpx2.Client) -> None:
    with running.client(running.make_key("replayed"), user="ana") as client:
        body = {"messages": [{"role": "user", "content": "I live in Lisbon."}]}
        client.post("/v1/sessions/s/messages", json=body)
        client.post("/v1/sessions/s/flush", json={"all": True})
    estimate = root.post("/v1/admin/replays/estimate", json={"pipeline": "facts"}).json()["pipelines"]
    assert estimate[0]["pipeline"] == "facts"
    begun = root.post("/v1/admin/replays", json={"pipeline": "facts", "namespace": "replayed"})
    assert begun.status_code == 202
    assert begun.headers["location"] == f"/v1/admin/operations/{begun.json()['operation_id']}"
    done = ended(root, begun.json())
    assert (done["state"], done["failed"]) == ("done", None)
    listed = root.get("/v1/admin/operations").json()["items"]
    assert listed[0]["operation_id"] == done["operation_id"]


def test_a_replay_that_cannot_begin_says_so(root: httpx2.Client, acme: httpx2.Client) -> None:
    for body, status in (
        ({}, 422),
        ({"pipeline": "nonsense"}, 422),
        ({"pipeline": "facts", "new": True}, 409),  # the settings say nothing new
        ({"pipeline": "facts", "new": True, "namespace": "default"}, 422),
        ({"pipeline": "facts", "namespace": "never-seen"}, 404),
        ({"resume": 999_999}, 409),
    ):
        assert root.post("/v1/admin/replays", json=body).status_code == status, body
    assert acme.post("/v1/admin/replays", json={"pipeline": "facts"}).status_code == 403


def test_a_new_generation_is_held_compared_and_pruned(root: httpx2.Client) -> None:
    body = {"pipeline": "summary", "new": True, "force": True, "hold": True}
    begun = root.post("/v1/admin/replays", json=body).json()
    assert begun["kind"] == "new"
    path = f"/v1/admin/generations/{begun['generation']}"
    stopped = root.post(f"/v1/admin/operations/{begun['operation_id']}/stop")
    assert stopped.status_code == 200
    state = ended(root, begun)["state"]
    assert state in ("stopped", "done")
    generations = root.get("/v1/admin/generations", params={"pipeline": "summary"}).json()["generations"]
    assert begun["generation"] in [one["generation"] for one in generations]
    assert root.get(path + "/diff").json()["new"] == begun["generation"]
    itself = root.get(path + "/diff", params={"against": begun["generation"]})
    assert itself.status_code == 409 and "compared with itself" in itself.json()["detail"]
    document = root.get("/openapi.json").json()["paths"]["/v1/admin/generations/{generation}/diff"]
    assert "409" in document["get"]["responses"]
    assert root.post("/v1/admin/pipelines/summary/rollback").status_code == 409
    if state == "stopped":
        resumed = root.post("/v1/admin/replays", json={"resume": begun["operation_id"]})
        assert resumed.status_code == 202
        root.post(f"/v1/admin/operations/{begun['operation_id']}/stop")
        ended(root, begun)
    assert root.delete(path).json()["generation"] == begun["generation"]


def test_dead_letters_are_those_of_the_namespace(
    running: RunningService, root: httpx2.Client, acme: httpx2.Client
) -> None:
    event = bury(running, "acme")
    bury(running, "globex")
    mine = acme.get("/v1/admin/dead-letters").json()["items"]
    assert [(one["event_id"], one["reason"]) for one in mine] == [(event, "it was buried")]
    assert len(root.get("/v1/admin/dead-letters", params={"limit": 1}).json()["items"]) == 1
    foreign = next(
        one for one in root.get("/v1/admin/dead-letters").json()["items"] if one["namespace"] == "globex"
    )
    assert acme.post(f"/v1/admin/dead-letters/{foreign['event_id']}/retry").status_code == 404
    done = acme.post(f"/v1/admin/dead-letters/{event}/retry").json()["items"]
    assert [(one["stage"], one["outcome"]) for one in done] == [("vectors", "due")]
    assert acme.get("/v1/admin/dead-letters").json()["items"] == []
    dropped = root.post(f"/v1/admin/dead-letters/{foreign['event_id']}/drop").json()["items"]
    assert [one["outcome"] for one in dropped] == ["dropped"]


def bury(running: RunningService, namespace: str, session: str = "buried") -> str:
    """Have a flush event die in a stage, as a lane does that goes past it."""
    with running.client(running.make_key(namespace), user="ana") as client:
        body = {"messages": [{"role": "user", "content": "hi"}]}
        client.post(f"/v1/sessions/{session}/messages", json=body)
        (event,) = client.post(f"/v1/sessions/{session}/flush", json={"all": True}).json()["events"]
    with running.database.transaction() as tx:
        connection: Any = tx._connection
        connection.execute(
            "WITH gone AS (DELETE FROM strandline.due d USING strandline.flush_event e WHERE e.event_id = %s"
            " AND d.shard_key = e.shard_key AND d.session_key = e.session_key AND d.from_seq = e.from_seq"
            " AND d.stage = 'vectors' RETURNING d.*, e.event_id AS event, e.through_seq AS through),"
            " receipt AS (INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome)"
            " SELECT shard_key, event, generation_id, stage, 'dead' FROM gone)"
            " INSERT INTO strandline.dead_letter (shard_key, session_key, generation_id, stage, from_seq,"
            " through_seq, scope_key, event_id, incarnation, batch_id, reason)"
            " SELECT shard_key, session_key, generation_id, stage, from_seq, through, session_key, event,"
            " incarnation, gen_random_uuid(), 'it was buried' FROM gone",
            [event],
        )
    return str(event)
