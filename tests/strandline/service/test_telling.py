"""What a refusal tells: which scope, which message, which bound, which header; and nothing of the request."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx2
import pytest

from strandline.service.params import cursor_of
from tests.support.servers.service_server import RunningService

MARK = "Zanzibar"


@pytest.fixture
def session(client: httpx2.Client) -> str:
    """A session of ana's with one message."""
    name = uuid4().hex
    put(client, name, [{"role": "user", "content": "hello", "id": "m1"}])
    return name


def put(client: httpx2.Client, session: str, messages: list[Any], **headers: str) -> httpx2.Response:
    return client.post(f"/v1/sessions/{session}/messages", json={"messages": messages}, headers=headers)


def said(answer: httpx2.Response, status: int) -> tuple[str, str]:
    """Where and why; the detail where no place is named."""
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status), answer.text
    assert MARK not in answer.text
    if places := problem.get("errors"):
        return places[0]["pointer"], places[0]["detail"]
    assert "`errors`" not in problem["detail"]
    return "", problem["detail"]


@pytest.mark.parametrize(
    ("route", "body", "pointer", "words"),
    [
        ("search", {"query": MARK, "scope": "shared"}, "", "names no shared scope"),
        ("search", {"query": MARK, "scope": "shared", "kinds": ["fact"]}, "", "never shared"),
        ("search", {"query": MARK, "exclude_current": True}, "", "`exclude_current`"),
        ("summary/latest", {}, "", "`messages` or `runs`"),
        ("context", {"block_arguments": {MARK: 1}}, "", "`block_arguments`"),
        ("context", {MARK: 1}, "/body", "it knows input, messages, token_limit"),
        ("fork", {"through_seq": 400}, "/body/through_seq", "no message of this number"),
        ("messages", {"messages": [{"role": "user", "content": 5}]}, "/body/messages/0/content",
         "It must be a text, or a list."),
        ("messages", {"messages": [{"role": "user", "contnt": MARK}]}, "/body/messages/0",
         "it knows role, content, id"),
        ("messages", {"messages": [{"role": "user", "content": "x"}],
                      "policy": {"max_window_bytes": 2**31 - 1}},
         "/body/policy/max_window_bytes", "less than or equal to 16000000"),
        ("messages", {"messages": [{"role": "user"}]}, "/body/messages/0/content", "is missing; give text"),
        ("messages", {"messages": [{"role": "user", "content": f"{MARK}\0"}]}, "/body/messages/0/content",
         "holds a NUL character at position 8"),
    ],
)  # fmt: skip
def test_a_value_is_refused_with_its_reason(
    client: httpx2.Client, session: str, route: str, body: dict[str, Any], pointer: str, words: str
) -> None:
    where, why = said(client.post(f"/v1/sessions/{session}/{route}", json=body), 422)
    assert where == pointer
    assert words in why


def test_names_headers_and_facts_say_their_bounds(client: httpx2.Client, session: str) -> None:
    assert "512 bytes" in said(client.get(f"/v1/sessions/{'x' * 600}/context"), 422)[1]
    assert "512 bytes" in said(client.post(f"/v1/sessions/{'x' * 600}/context", json={}), 422)[1]
    assert "empty" in said(client.post("/v1/users/ana/facts", json={"text": "  "}), 422)[1]
    message = [{"role": "user", "content": "again"}]
    for value, word in (("", "empty"), ("k" * 600, "512 bytes")):
        where, why = said(put(client, session, message, **{"Idempotency-Key": value}), 422)
        assert (where, word in why) == ("/header/Idempotency-Key", True)
    large = client.post(f"/v1/sessions/{session}/context", content=b" " * 2_000_000)
    assert "1,048,576 bytes" in said(large, 413)[1]


def test_a_header_that_decides_comes_once(client: httpx2.Client, session: str) -> None:
    headers = [*client.headers.items(), ("Strandline-User", "bo")]
    answer = httpx2.get(f"{client.base_url}/v1/sessions/{session}/context", headers=headers)
    assert said(answer, 422) == ("/header/Strandline-User", "It is given more than once.")


def test_whose_session_it_is_must_be_said(running: RunningService) -> None:
    key, name = running.make_key(uuid4().hex), uuid4().hex
    message = [{"role": "user", "content": "hello"}]
    with running.client(key) as nameless, running.client(key, user="ana") as ana:
        for answer in (
            put(nameless, name, message),
            nameless.post(f"/v1/sessions/{name}/context", json={"begun_only": False}),
            nameless.get(f"/v1/sessions/{name}/messages"),
        ):
            where, why = said(answer, 422)
            assert where == "/header/Strandline-User" and "`-`" in why
        assert put(ana, name, message).status_code == 201  # nothing had been begun under that name
        assert nameless.get("/v1/sessions").json()["items"][0]["user_id"] == "ana"
        assert nameless.get(f"/v1/sessions/{name}").json()["session"]["user_id"] == "ana"
    with running.client(key, user="-") as nobody:
        assert put(nobody, f"{name}-own", message).status_code == 201
        assert nobody.get(f"/v1/sessions/{name}-own").json()["session"]["user_id"] is None
        assert nobody.get(f"/v1/sessions/{name}/messages").status_code == 404
        fork = nobody.post(f"/v1/sessions/{name}-own/fork")
        assert "has no user" in said(fork, 422)[1]
    with running.client(running.make_key(uuid4().hex, user_id="bo")) as bo:
        assert put(bo, name, message).status_code == 201


def test_a_key_learns_what_it_lacks(running: RunningService, client: httpx2.Client) -> None:
    assert "the scope `operate`" in said(client.get("/v1/admin/keys"), 403)[1]
    with running.client(running.make_key(scopes=["operate"])) as operator:
        for path in ("/v1/status", "/v1/admin/workers", "/v1/admin/operations", "/v1/admin/generations"):
            assert "all namespaces" in said(operator.get(path), 403)[1]
        assert "all namespaces" in said(operator.put("/v1/admin/namespaces/default/limits", json={}), 403)[1]
        foreign = operator.post("/v1/admin/keys", json={"scopes": ["read"], "namespace": "other"})
        assert "leave `namespace` out" in said(foreign, 403)[1]
        kinds = operator.get("/v1/admin/audit", params={"kind": "keys"})
        assert "key.create" in said(kinds, 422)[1]
    with running.client(running.make_key(user_id="ana", scopes=["read"])) as own:
        assert "one user" in said(own.get("/v1/users"), 403)[1]
    with running.client(running.make_key(None, scopes=["operate"])) as whole:
        assert "give `namespace`" in said(whole.post("/v1/admin/keys", json={"scopes": ["read"]}), 422)[1]
        made = whole.post("/v1/admin/keys", json={"scopes": ["read"], "namespace": "default"}).json()
        assert "opens no memory" in said(whole.post("/v1/users/ana/readmission"), 403)[1]
        assert whole.delete(f"/v1/admin/keys/{made['key_id']}").status_code == 200
        assert "has ended" in said(whole.post(f"/v1/admin/keys/{made['key_id']}/rotate"), 409)[1]


def test_a_conflict_says_what_contradicts(client: httpx2.Client, session: str) -> None:
    other = put(
        client, session, [{"role": "user", "content": "x"}, {"role": "user", "content": "y", "id": "m1"}]
    )
    assert said(other, 409)[0] == "/body/messages/1/id"
    assert "Give a new message a new id" in other.json()["detail"]
    twice = [{"role": "user", "content": text, "id": "t"} for text in "ab"]
    assert "Two messages" in put(client, session, twice).json()["detail"]
    taken = client.post(f"/v1/sessions/{session}/fork", json={"session_id": session})
    assert "nothing was copied" in said(taken, 409)[1]
    path = f"/v1/users/{session}/facts/from-messages"
    for text, status in (("one", 200), ("two", 409)):
        body = {"messages": [{"role": "user", "content": text}], "key": "k"}
        answer = client.post(path, json=body)
        assert answer.status_code == status
    assert "Give new messages a new key" in said(answer, 409)[1]


def test_a_body_that_says_nothing_may_be_left_out(client: httpx2.Client, session: str) -> None:
    assert client.post(f"/v1/sessions/{session}/flush").json() == {"events": []}
    assert client.post(f"/v1/sessions/{session}/context").json()["session_id"] == session
    assert client.post(f"/v1/sessions/{session}/reset").json()["derived"] is False


def test_a_foreign_shared_scope_is_told_apart_from_a_missing_scope(running: RunningService) -> None:
    bound = running.make_key(user_id="scoped", scopes=["read", "write"], shared_scopes=["open"])
    with running.client(bound) as client:
        body = {"messages": [{"role": "user", "content": "x"}], "policy": {"shared_scope": MARK}}
        why = said(client.post(f"/v1/sessions/{uuid4().hex}/messages", json=body), 403)[1]
    assert "shared scopes alone that it names" in why and "`write`" not in why


def test_a_message_in_several_sessions_asks_for_the_session(client: httpx2.Client, session: str) -> None:
    fork = uuid4().hex
    assert client.post(f"/v1/sessions/{session}/fork", json={"session_id": fork}).status_code == 201
    _, why = said(client.get("/v1/explain/messages/m1"), 422)
    assert "`session_id`" in why
    assert client.get("/v1/explain/messages/m1", params={"session_id": fork}).status_code == 200


def test_a_cursor_of_another_list_is_refused_by_each_list(running: RunningService) -> None:
    """Also where there is nothing to list, and by those that had cursors of their own."""
    foreign = cursor_of("zanzibar", "1")
    root = running.make_key(None, scopes=["operate"])
    key = running.make_key("cursors", scopes=["read", "erase", "operate"])
    paths = ("sessions", "users", "erasures", "admin/keys", "admin/audit", "admin/dead-letters",
             "users/ana/facts")  # fmt: skip
    with running.client(key) as client, running.client(root) as operator:
        asked = [client.get(f"/v1/{path}", params={"cursor": foreign}) for path in paths]
        asked.append(operator.get("/v1/admin/operations", params={"cursor": foreign}))
        asked += [client.get(f"/v1/{path}", params={"cursor": "zzz"}) for path in paths]
        for name in ("sessions", "audit", "dead-letters"):  # the list's own, of no place
            path = name if name == "sessions" else f"admin/{name}"
            asked.append(client.get(f"/v1/{path}", params={"cursor": cursor_of(name, "x y")}))
    for answer in asked:
        assert "a page of this list gave" in said(answer, 422)[1], answer.url
