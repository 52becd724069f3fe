"""Operators over HTTP: status, limits, dead letters, replays and generations, each to whom it concerns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import httpx2
import pytest

from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.service.carried_work import CarriedReplays
from tests.conftest import wait_until
from tests.support.servers.service_server import NO_AUTHORITIES, RunningService


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
    for body, status, words in (
        ({}, 422, "a replay is of one"),
        ({"pipeline": "nonsense"}, 422, "no such pipeline; it has facts, summary, vectors"),
        ({"pipeline": "facts", "new": True}, 409, "so there is nothing new to derive"),
        ({"pipeline": "facts", "new": True, "namespace": "default"}, 422, "takes no selection"),
        ({"pipeline": "facts", "namespace": "never-seen"}, 404, "nothing here"),
        ({"resume": 999_999}, 404, "Replay 999999 is unknown"),
    ):
        answer = root.post("/v1/admin/replays", json=body)
        assert answer.status_code == status, body
        assert words in answer.json()["detail"] and "nonsense" not in answer.text, answer.text
    assert acme.post("/v1/admin/replays", json={"pipeline": "facts"}).status_code == 403


def test_operators_refusals_say_what_to_do(root: httpx2.Client, endless: dict[str, Any]) -> None:
    """As the commands do; none is the sentence of its kind alone."""
    generation, replay = endless["generation"], endless["operation_id"]
    serving = next(
        one["generation"]
        for one in root.get("/v1/admin/generations", params={"pipeline": "facts"}).json()["generations"]
        if one["state"] == "serving"
    )
    again = {"pipeline": "summary", "new": True, "force": True}
    for method, path, body, status, words in (
        ("POST", f"generations/{generation}/promote", {}, 409, "then promote again"),
        ("POST", "generations/9999/promote", {}, 404, "Generation 9999 does not exist"),
        ("DELETE", f"generations/{serving}", None, 409, "promote another one first"),
        ("DELETE", f"generations/{generation}", None, 409, f"Replay {replay} is deriving generation"),
        ("DELETE", "generations/9999", None, 404, "Generation 9999 does not exist"),
        ("GET", "generations/9999/diff", None, 404, "Generation 9999 does not exist"),
        ("GET", f"generations/{generation}/diff?against={serving}", None, 409, "not of one pipeline"),
        ("POST", "pipelines/facts/rollback", None, 409, "nothing to roll back to"),
        ("POST", "pipelines/zanzibar/rollback", None, 422, "no such pipeline"),
        ("POST", "replays", again, 409, f"Replay {replay} already derives a new generation"),
        ("POST", "replays", {"resume": replay}, 409, "Another process is running replay"),
        ("GET", "operations/9999", None, 404, "Replay 9999 is unknown"),
    ):
        answer = root.request(method, f"/v1/admin/{path}", json=body)
        assert answer.status_code == status, (path, answer.text)
        assert words in answer.json()["detail"] and "zanzibar" not in answer.text, (path, answer.text)


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


@pytest.fixture(scope="module")
def far(running: RunningService, root: httpx2.Client) -> Iterator[httpx2.Client]:
    """The operator at another process of the service, on the same database."""
    with (
        RunningService(running.database_url) as other,
        httpx2.Client(base_url=other.url, headers=root.headers, timeout=60, verify=NO_AUTHORITIES) as client,
    ):
        yield client


@pytest.fixture
def endless(running: RunningService, root: httpx2.Client) -> Iterator[dict[str, Any]]:
    """A replay that waits for workers, of whom there are none."""
    with running.client(running.make_key("endless"), user="ana") as client:
        body = {"messages": [{"role": "user", "content": "I live in Lisbon."}]}
        client.post("/v1/sessions/s/messages", json=body)
        client.post("/v1/sessions/s/flush", json={"all": True})
    replay = {"pipeline": "summary", "new": True, "force": True, "hold": True}
    begun = root.post("/v1/admin/replays", json=replay).json()
    yield begun
    root.post(f"/v1/admin/operations/{begun['operation_id']}/stop")
    ended(root, begun)
    root.delete(f"/v1/admin/generations/{begun['generation']}")


def test_any_process_stops_a_replay(root: httpx2.Client, far: httpx2.Client, endless: dict[str, Any]) -> None:
    path = f"/v1/admin/operations/{endless['operation_id']}"
    assert far.get(path).json()["is_running"]
    assert far.post(f"{path}/stop").status_code == 200
    assert ended(root, endless)["state"] == "stopped"
    assert not far.get(path).json()["is_running"]
    assert far.post(f"{path}/stop").json()["state"] == "stopped"
    resumed = far.post("/v1/admin/replays", json={"resume": endless["operation_id"]})
    assert resumed.status_code == 202, resumed.text  # what asked it to stop is over
    assert root.get(path).json()["is_running"]
    assert root.post(f"{path}/stop").status_code == 200
    assert ended(far, endless)["state"] == "stopped"
    assert root.post("/v1/admin/operations/999999/stop").status_code == 404


def test_a_replay_whose_process_is_gone_is_stopped_by_asking(
    running: RunningService, root: httpx2.Client, endless: dict[str, Any]
) -> None:
    path = f"/v1/admin/operations/{endless['operation_id']}"
    root.post(f"{path}/stop")
    ended(root, endless)
    with running.database.transaction() as tx:
        connection: Any = tx._connection
        connection.execute(
            "UPDATE strandline.replay SET state = 'running', updated_at = updated_at - interval '1 minute',"
            " counts = '{}'"
            " WHERE replay_id = %s",
            [endless["operation_id"]],
        )
    found = root.get(path).json()
    assert (found["state"], found["is_running"]) == ("running", False)
    assert root.post(f"{path}/stop").json()["state"] == "stopped"
    promoted = root.post(f"/v1/admin/generations/{endless['generation']}/promote", json={})
    # It is not filled in, or what it was filled with is due.
    assert promoted.status_code == 409 and "cannot serve all owners yet" in promoted.json()["detail"]


def test_replays_are_read_page_by_page(root: httpx2.Client, endless: dict[str, Any]) -> None:
    path = "/v1/admin/operations"
    whole = [one["operation_id"] for one in root.get(path).json()["items"]]
    assert whole[0] == endless["operation_id"] and len(whole) > 1
    listed: list[int] = []
    cursor: str | None = None
    while True:
        page = root.get(path, params={"limit": 1} | ({} if cursor is None else {"cursor": cursor})).json()
        listed += [one["operation_id"] for one in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert listed == whole


async def test_a_task_that_ends_leaves_the_next_one_to_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay is stopped and resumed before the thread that carried it on has ended."""
    release = threading.Event()

    class Winding:
        """The first thread ends when it is released; those after it when they are stopped."""

        threads = 0

        def run(
            self, _database: object, _settings: object, _number: int, stop: threading.Event, **_: object
        ) -> None:
            self.threads += 1
            assert (release if self.threads == 1 else stop).wait(30)

    monkeypatch.setattr("strandline.service.carried_work.run_replay", Winding().run)

    operations = CarriedReplays(cast(Settings, None))
    operations.carry_on(cast(Database, None), 1)
    (first,) = operations._running[1]
    operations.stop(1)
    operations.carry_on(cast(Database, None), 1)
    release.set()
    await first
    await asyncio.sleep(0)  # so that its callbacks run
    assert operations.is_running(1)
    operations.stop(1)
    await operations.wait(1, 30)
    assert not operations.is_running(1)
    await operations.close()


def test_dead_letters_are_those_of_the_namespace(
    running: RunningService, root: httpx2.Client, acme: httpx2.Client
) -> None:
    event = bury(running, "acme")
    bury(running, "globex")
    mine = acme.get("/v1/admin/dead-letters").json()["items"]
    assert [(one["event_id"], one["reason"]) for one in mine] == [(event, "it was buried")]
    whole = root.get("/v1/admin/dead-letters").json()["items"]
    first = root.get("/v1/admin/dead-letters", params={"limit": 1}).json()
    rest = root.get("/v1/admin/dead-letters", params={"limit": 9, "cursor": first["next_cursor"]}).json()
    assert first["items"] + rest["items"] == whole and len(whole) > 1 and rest["next_cursor"] is None
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
