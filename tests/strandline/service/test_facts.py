"""Facts over HTTP: added, found, corrected under their ETag, explained."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx2
import pytest

from tests.support.servers.service_server import RunningService


@pytest.fixture
def user() -> str:
    return uuid4().hex


def add(client: httpx2.Client, user: str, text: str, **more: object) -> httpx2.Response:
    answer = client.post(f"/v1/users/{user}/facts", json={"text": text, **more})
    assert answer.status_code == 201, answer.text
    return answer


def texts(client: httpx2.Client, user: str, **params: object) -> list[str]:
    page = client.get(f"/v1/users/{user}/facts", params=params).json()  # type: ignore[arg-type]
    return [fact["text"] for fact in page["items"]]


def test_a_fact_lives_through_its_routes(client: httpx2.Client, user: str) -> None:
    added = add(client, user, "Lives in Lisbon.", topics=["home"], about_date="2026-05-01", actor="bo")
    path = f"/v1/users/{user}/facts/{added.json()['fact_id']}"
    got = client.get(path)
    assert got.json() == added.json()
    assert got.headers["etag"] == added.headers["etag"] == f'"{got.json()["version"]}"'
    known = client.get(path, headers={"If-None-Match": got.headers["etag"]})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", got.headers["etag"])
    assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    assert (got.json()["about_date"], got.json()["topics"], got.json()["is_live"]) == (
        "2026-05-01",
        ["home"],
        True,
    )
    found = client.post(f"/v1/users/{user}/facts/search", json={"query": "Lisbon"}).json()["items"]
    assert [one["fact"]["text"] for one in found] == ["Lives in Lisbon."]
    changed = client.patch(path, json={"text": "Lives in Porto."})
    assert (changed.json()["text"], changed.json()["topics"]) == ("Lives in Porto.", ["home"])
    judged = client.put(path + "/feedback", json={"feedback": "true"})
    assert judged.json()["feedback"] == "true"
    revisions = client.get(path + "/history").json()["revisions"]
    assert [(one["operation"], one["actor"]) for one in revisions] == [
        ("add", "bo"),
        ("replace", revisions[1]["actor"]),
    ]
    assert revisions[1]["actor"].startswith("key:")
    explained = client.get(
        f"/v1/explain/facts/{changed.json()['fact_id']}", headers={"Strandline-User": user}
    )
    assert explained.json()["text"] == "Lives in Porto."
    assert client.delete(path).status_code == 204
    assert (client.get(path).status_code, client.delete(path).status_code) == (404, 404)
    gone = client.get(f"/v1/explain/facts/{changed.json()['fact_id']}", headers={"Strandline-User": user})
    assert [event["kind"] for event in gone.json()["events"]][-1] == "delete"


def test_an_etag_that_is_old_changes_nothing(client: httpx2.Client, user: str) -> None:
    added = add(client, user, "Drinks tea.")
    path = f"/v1/users/{user}/facts/{added.json()['fact_id']}"
    old = added.headers["etag"]
    new = client.patch(path, json={"text": "Drinks coffee."}, headers={"If-Match": old}).headers["etag"]
    assert new != old
    for method, more, body in (
        ("PATCH", "", {"text": "Drinks milk."}),
        ("DELETE", "", None),
        ("PUT", "/feedback", {"feedback": "no"}),
    ):
        refused = client.request(method, path + more, json=body, headers={"If-Match": old})
        assert (refused.status_code, refused.json()["type"]) == (412, "urn:strandline:problem:other-revision")
    assert texts(client, user) == ["Drinks coffee."]
    for bad in ("x", "W/" + new, new + ", " + old):
        assert client.delete(path, headers={"If-Match": bad}).status_code in (412, 422)
    judged = client.put(path + "/feedback", json={"feedback": "yes"}, headers={"If-Match": new})
    assert judged.headers["etag"] != new  # an opinion is a change as well
    assert client.delete(path, headers={"If-Match": "*"}).status_code == 204


def test_of_many_who_saw_the_same_one_changes_it(client: httpx2.Client, user: str) -> None:
    added = add(client, user, "Counts to zero.")
    path, tag = f"/v1/users/{user}/facts/{added.json()['fact_id']}", added.headers["etag"]

    def change(number: int) -> int:
        return client.patch(
            path, json={"text": f"Counts to {number}."}, headers={"If-Match": tag}
        ).status_code

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(change, range(1, 9)))
    assert sorted(answers) == [200] + [412] * 7


def test_pages_filters_topics_and_figures(client: httpx2.Client, user: str) -> None:
    for number in range(7):
        add(client, user, f"Fact number {number}.", topics=["even" if number % 2 == 0 else "odd"])
    first = client.get(f"/v1/users/{user}/facts", params={"limit": 4, "sort": "oldest"}).json()
    second = client.get(
        f"/v1/users/{user}/facts", params={"limit": 4, "sort": "oldest", "cursor": first["next_cursor"]}
    ).json()
    assert (first["total"], second["next_cursor"]) == (7, None)
    whole = [fact["text"] for fact in first["items"] + second["items"]]
    assert whole == [f"Fact number {number}." for number in range(7)]
    assert len(texts(client, user, topic="odd")) == 3
    assert texts(client, user, contains="number 3") == ["Fact number 3."]
    topics = client.get(f"/v1/users/{user}/topics").json()["items"]
    assert topics == [{"topic": "even", "facts": 4}, {"topic": "odd", "facts": 3}]
    assert client.get(f"/v1/users/{user}/figures").json()["facts"] == 7
    assert client.delete(f"/v1/users/{user}/facts").json() == {"facts": 7}
    assert texts(client, user) == []


@pytest.mark.parametrize("sort", ["newest", "oldest", "updated"])
def test_a_list_that_changes_while_it_is_read_leaves_out_none(
    client: httpx2.Client, user: str, sort: str
) -> None:
    path = f"/v1/users/{user}/facts"
    # Imported in one request: some have the same times.
    moments = [f"2020-01-01T00:00:0{number // 3}Z" for number in range(10)]
    facts = [{"id": str(n), "text": f"Fact {n}.", "created_at": at} for n, at in enumerate(moments)]
    assert client.post(f"{path}/import", json={"facts": facts}).json()["added"] == 10
    whole = texts(client, user, sort=sort)
    read: list[str] = []
    cursor = None
    while True:
        params = {"limit": "3", "sort": sort} | ({"cursor": cursor} if cursor else {})
        page = client.get(path, params=params).json()
        read += [fact["text"] for fact in page["items"]]
        for fact in page["items"][:2]:
            assert client.delete(f"{path}/{fact['fact_id']}").status_code == 204
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert read == whole
    other = "oldest" if sort == "newest" else "newest"
    first = client.get(path, params={"limit": 1, "sort": sort}).json()["next_cursor"]
    assert client.get(path, params={"cursor": first, "sort": other}).status_code == 422


def test_facts_of_messages_that_are_in_no_chat(client: httpx2.Client, user: str) -> None:
    body = {"messages": [{"role": "user", "content": "I live in Lisbon."}]}
    path = f"/v1/users/{user}/facts/from-messages"
    first, again = (client.post(path, json=body, headers={"Idempotency-Key": "k"}).json() for _ in range(2))
    assert (first["source_id"], first["is_complete"]) == (again["source_id"], False)  # nobody works here
    assert client.post(path, json=body).json()["source_id"] != first["source_id"]
    assert client.delete(f"/v1/users/{user}/sources/{first['source_id']}").status_code == 204


def test_imported_facts_come_once_and_keep_their_times(client: httpx2.Client, user: str) -> None:
    facts = [{"id": str(n), "text": f"Imported {n}.", "created_at": "2020-01-01T00:00:00Z"} for n in range(3)]
    path = f"/v1/users/{user}/facts/import"
    assert client.post(path, json={"facts": facts}).json() == {"added": 3, "known": 0}
    assert client.post(path, json={"facts": facts}).json() == {"added": 0, "known": 3}
    page = client.get(f"/v1/users/{user}/facts").json()
    assert {fact["created_at"] for fact in page["items"]} == {"2020-01-01T00:00:00Z"}


def test_what_is_captured_is_an_operators_choice(
    running: RunningService, client: httpx2.Client, user: str
) -> None:
    path = f"/v1/users/{user}/capture"
    assert client.put(path, json={"may_delete": False}).status_code == 403
    with running.client(running.make_key(scopes=["operate", "read"])) as operator:
        assert (
            operator.put(path, json={"may_delete": False, "instructions": "Keep names."}).json()["number"]
            >= 1
        )
        assert operator.get(path).json()["may_delete"] is False


def test_sessions_are_listed_by_user_and_explained(running: RunningService, user: str) -> None:
    with running.client(running.make_key(user), user="ana") as client:
        assert client.get("/v1/sessions").json() == {"items": [], "next_cursor": None}
        for number in range(3):
            body = {"messages": [{"role": "user", "content": "hi", "id": f"m{number}"}]}
            client.post(f"/v1/sessions/s{number}/messages", json=body)
        page = client.get("/v1/sessions", params={"limit": 2}).json()
        rest = client.get("/v1/sessions", params={"limit": 2, "cursor": page["next_cursor"]}).json()
        assert [one["session_id"] for one in page["items"] + rest["items"]] == ["s0", "s1", "s2"]
        assert client.get("/v1/explain/messages/m1").json()["place"] == "window"
        assert client.post("/v1/sessions/s1/flush", json={"all": True}).json()["events"]
        assert client.get("/v1/explain/messages/m1").json()["place"] == "tail"
        assert [one["user_id"] for one in client.get("/v1/users").json()["items"]] == ["ana"]
        assert client.delete("/v1/sessions/s1").json() == {"session_id": "s1", "derived": True}
        assert client.get("/v1/sessions/s1").json()["session"]["messages"] == 0
        scope = client.get("/v1/sessions/s1/scopes/a%2Fb").json()["session_id"]
        assert scope == "s1/a%2Fb"
