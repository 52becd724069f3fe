"""Messages over HTTP: put, repeated, listed, corrected; what Python does, with the same words."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest

from strandline import Memory
from tests.support.servers.service_server import RunningService


@pytest.fixture
def session() -> str:
    return uuid4().hex


def put(client: httpx2.Client, session: str, *texts: str, **headers: str) -> httpx2.Response:
    messages = [{"role": "user", "content": text} for text in texts]
    return client.post(f"/v1/sessions/{session}/messages", json={"messages": messages}, headers=headers)


def log(client: httpx2.Client, session: str) -> list[tuple[int, Any]]:
    items = client.get(f"/v1/sessions/{session}/messages").json()["items"]
    return [(item["seq"], item["content"]) for item in items]


def test_what_is_put_is_read_by_python_and_the_other_way_round(
    running: RunningService, client: httpx2.Client, session: str
) -> None:
    answer = put(client, session, "I moved to Lisbon.")
    assert answer.status_code == 201
    memory = Memory.from_defaults(session, user_id="ana", database_url=running.database_url)
    (message,) = memory.get_all()
    assert answer.json() == {"messages": [{"id": message.id, "seq": 1}]}
    memory.put({"role": "assistant", "content": "How is it?", "metadata": {"mood": "kind"}})
    memory.close()
    context = client.post(f"/v1/sessions/{session}/context", json={})
    assert [one["content"] for one in context.json()["messages"]] == ["I moved to Lisbon.", "How is it?"]
    assert context.json()["messages"][1]["metadata"] == {"mood": "kind"}
    assert context.headers["strandline-caught-up"] == "true"
    assert context.headers["strandline-covered-through"] == "facts=0, summary=0, vectors=0"


def test_every_field_of_a_message_comes_back(client: httpx2.Client, session: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be brief.", "extra": {"cache": True}},
        {"role": "user", "content": [{"type": "text", "text": "Look."}], "name": "ana", "id": "m1"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": "no"},
        {"role": "tool", "content": "done", "tool_call_id": "c1", "created_at": "2026-01-31T12:00:00+01:00"},
    ]
    assert client.post(f"/v1/sessions/{session}/messages", json={"messages": messages}).status_code == 201
    items = client.get(f"/v1/sessions/{session}/messages").json()["items"]
    assert [item["role"] for item in items] == ["system", "user", "assistant", "tool"]
    assert items[0]["extra"] == {"cache": True}
    assert (items[1]["id"], items[1]["name"], items[1]["content"][0]["text"]) == ("m1", "ana", "Look.")
    assert (items[2]["tool_calls"], items[2]["extra"]) == ([call], {"refusal": "no"})
    assert (items[3]["tool_call_id"], items[3]["created_at"]) == ("c1", "2026-01-31T12:00:00+01:00")


def test_a_context_is_ready_to_be_sent(client: httpx2.Client, session: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    sent: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "Look."}], "name": "ana"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": "no"},
        {"role": "tool", "content": "done", "tool_call_id": "c1"},
    ]
    messages = [one | {"id": f"m{n}", "metadata": {"n": n}} for n, one in enumerate(sent)]
    user, path = {"Strandline-User": session}, f"/v1/sessions/{session}"
    put = client.post(f"{path}/messages", json={"messages": messages}, headers=user)
    fact = client.post(f"/v1/users/{session}/facts", json={"text": "Lives in Lisbon."}, headers=user)
    assert (put.status_code, fact.status_code) == (201, 201)
    for answer in (
        client.post(f"{path}/context", json={"form": "openai"}, headers=user),
        client.get(f"{path}/context", params={"form": "openai"}, headers=user),
    ):
        memory, *others = answer.json()["messages"]
        assert set(memory) == {"role", "content"}
        assert "Lives in Lisbon." in memory["content"]
        assert others == sent
    assert client.post(f"{path}/context", json={"form": "gemini"}, headers=user).status_code == 422


def test_a_put_with_a_key_is_done_once_however_often_and_at_once(client: httpx2.Client, session: str) -> None:
    def once(_: int) -> Any:
        answer = put(client, session, "one", "two", **{"Idempotency-Key": "k1"})
        assert answer.status_code == 201
        return answer.json()

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(once, range(16)))
    assert all(answer == answers[0] for answer in answers)
    assert log(client, session) == [(1, "one"), (2, "two")]
    other = put(client, session, "one", "three", **{"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["type"]) == (409, "urn:strandline:problem:idempotency-key-reused")
    assert other.json()["errors"][0]["pointer"] == "/body/messages/1"
    assert log(client, session) == [(1, "one"), (2, "two")]


def test_a_put_without_key_and_ids_is_another_each_time(client: httpx2.Client, session: str) -> None:
    put(client, session, "same")
    put(client, session, "same")
    assert log(client, session) == [(1, "same"), (2, "same")]


def test_pages_of_the_log_join_without_gap(client: httpx2.Client, session: str) -> None:
    put(client, session, *map(str, range(25)))
    found, cursor = [], None
    while True:
        page = client.get(
            f"/v1/sessions/{session}/messages", params={"limit": 10} | ({"cursor": cursor} if cursor else {})
        ).json()
        found += [item["content"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [str(number) for number in range(25)]


@pytest.mark.parametrize("cursor", ["x", "W10", "WyJvdGhlciIsIDFd", "WyJtZXNzYWdlcyIsICJ4Il0", "é" * 10])
def test_a_cursor_of_another_list_is_refused(client: httpx2.Client, session: str, cursor: str) -> None:
    put(client, session, "one")
    answer = client.get(f"/v1/sessions/{session}/messages", params={"cursor": cursor})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/query/cursor"


def test_names_may_hold_anything(client: httpx2.Client) -> None:
    for name in (
        f"team/drafts {uuid4().hex}",
        f"%2F?#é{uuid4().hex}",
        f"100%{uuid4().hex}",
        f"..{uuid4().hex}",
    ):
        assert put(client, quote(name, safe=""), "here").status_code == 201
        context = client.get(f"/v1/sessions/{quote(name, safe='')}/context").json()
        assert (context["session_id"], context["messages"][0]["content"]) == (name, "here")


def test_a_message_is_explained_by_whatever_id_it_was_put_under(client: httpx2.Client, session: str) -> None:
    for edge in ("\u00a0", "\u200b", " ", "/", "\n"):
        message_id = f"{uuid4().hex}{edge}"
        message = {"role": "user", "content": "here", "id": message_id}
        put = client.post(f"/v1/sessions/{session}/messages", json={"messages": [message]})
        assert put.status_code == 201
        explained = client.get(f"/v1/explain/messages/{quote(message_id, safe='')}")
        assert explained.json()["message"]["id"] == message_id, explained.text


def test_corrections_are_repeatable_and_change_what_is_read(client: httpx2.Client, session: str) -> None:
    put(client, session, "one", "two", "three")
    rewind = {"from_seq": 3}
    first, again = (
        client.post(f"/v1/sessions/{session}/rewind", json=rewind, headers={"Idempotency-Key": "r"})
        for _ in range(2)
    )
    assert first.json() == again.json()
    assert (first.json()["kind"], first.json()["seqs"]) == ("rewind", [3])
    replaced = client.put(f"/v1/sessions/{session}/messages/2/content", json={"content": "zwei"})
    assert replaced.json()["kind"] == "replace"
    assert log(client, session) == [(1, "one"), (2, "zwei")]
    corrections = client.get(f"/v1/sessions/{session}").json()["corrections"]
    assert [one["kind"] for one in corrections] == ["rewind", "replace"]
    assert corrections[0]["actor"].startswith("key:")


def test_a_repeated_pop_with_a_key_pops_once(client: httpx2.Client, session: str) -> None:
    put(client, session, "one", "two", "three")
    path = f"/v1/sessions/{session}/messages/last"
    first = client.delete(path, headers={"Idempotency-Key": "p1"})
    again = client.delete(path, headers={"Idempotency-Key": "p1"})
    assert first.json() == again.json()
    assert first.json()["message"]["content"] == "three"
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert [text for _, text in log(client, session)] == ["one", "two"]
    assert client.delete(path).json()["message"]["content"] == "two"
    assert [text for _, text in log(client, session)] == ["one"]


def test_a_repeated_request_is_known_however_its_path_is_encoded(client: httpx2.Client, session: str) -> None:
    put(client, session, "one", "two")
    key = {"Idempotency-Key": "e1"}
    first = client.delete(f"/v1/sessions/{session}/messages/last", headers=key)
    encoded = "".join(f"%{ord(letter):02x}" for letter in session)
    again = client.delete(f"/v1/sessions/{encoded}/messages/last", headers=key)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert [text for _, text in log(client, session)] == ["one"]


def test_a_key_is_of_one_request(client: httpx2.Client, session: str) -> None:
    put(client, session, "one", "two")
    path, key = f"/v1/sessions/{session}/reset", {"Idempotency-Key": "x"}
    assert client.post(path, json={"derived": False}, headers=key).status_code == 200
    other = client.post(path, json={"derived": True}, headers=key)
    assert other.status_code == 409
    assert other.json()["type"] == "urn:strandline:problem:idempotency-key-reused"


def test_a_repeated_reset_does_not_reset_what_was_put_since(client: httpx2.Client, session: str) -> None:
    put(client, session, "before")
    path, key = f"/v1/sessions/{session}/reset", {"Idempotency-Key": "x"}
    client.post(path, json={}, headers=key)
    put(client, session, "after")
    assert client.post(path, json={}, headers=key).headers["idempotency-replayed"] == "true"
    assert [text for _, text in log(client, session)] == ["after"]


def test_policy_is_stored_by_the_first_put_and_changed_on_record(client: httpx2.Client, session: str) -> None:
    body = {
        "messages": [{"role": "user", "content": "hello"}],
        "policy": {"token_limit": 5_000, "blocks": ["summary"], "idle_seconds": None},
    }
    client.post(f"/v1/sessions/{session}/messages", json=body)
    context = client.get(f"/v1/sessions/{session}/context").json()
    assert (context["token_limit"], list(context["covered_through"])) == (5_000, ["summary"])
    changed = client.patch(f"/v1/sessions/{session}/policy", json={"token_limit": 4_000, "actor": "bo"})
    assert (changed.json()["token_limit"], changed.json()["idle_seconds"]) == (4_000, None)
    assert client.get(f"/v1/sessions/{session}/context").json()["token_limit"] == 4_000
    (change,) = client.get(f"/v1/sessions/{session}").json()["policy_changes"]
    assert (change["actor"], change["after"]["token_limit"]) == ("bo", 4_000)


def test_a_read_within_fewer_tokens_is_cut_to_them(client: httpx2.Client, session: str) -> None:
    messages = [{"role": "user", "content": f"Message {n} of a long talk."} for n in range(20)]
    policy = {"token_limit": 500, "blocks": []}
    client.post(f"/v1/sessions/{session}/messages", json={"messages": messages, "policy": policy})
    path = f"/v1/sessions/{session}/context"
    whole = client.post(path).json()
    assert len(whole["messages"]) == 20
    for body in ({"token_limit": 100}, {"token_limit": 400, "initial_token_count": 300}):
        cut = client.post(path, json=body).json()
        assert (cut["token_limit"], cut["over_budget"]) == (100, False)
        assert 0 < cut["tokens"] <= 100
        assert cut["messages"][-1]["content"] == "Message 19 of a long talk."
        (left_out,) = cut["omitted"]
        assert (left_out["from_seq"], left_out["through_seq"]) == (1, 20 - len(cut["messages"]))
    assert client.post(path, json={"token_limit": 9_000}).json()["token_limit"] == 9_000


def test_a_fork_has_the_messages_and_goes_its_own_way(client: httpx2.Client, session: str) -> None:
    put(client, session, "one", "two", "three")
    fork = client.post(
        f"/v1/sessions/{session}/fork", json={"through_seq": 2}, headers={"Idempotency-Key": "f"}
    )
    again = client.post(
        f"/v1/sessions/{session}/fork", json={"through_seq": 2}, headers={"Idempotency-Key": "f"}
    )
    assert (fork.status_code, fork.json()) == (201, again.json())
    assert log(client, fork.json()["session_id"]) == [(1, "one"), (2, "two")]


def test_runs_replace_themselves(client: httpx2.Client, session: str) -> None:
    path = f"/v1/sessions/{session}/runs/r1"
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    assert client.put(path, json={"messages": messages}).json()["seqs"] == [1, 2]
    messages[1]["content"] = "good day"
    client.put(path, json={"messages": messages})
    items = client.post(f"/v1/sessions/{session}/run-history", json={}).json()["items"]
    assert [item["content"] for item in items] == ["hi", "good day"]


def test_history_is_filtered_and_a_window_fits(client: httpx2.Client, session: str) -> None:
    messages = [{"role": "user", "content": f"m{n}", "metadata": {"n": n}} for n in range(6)]
    client.post(f"/v1/sessions/{session}/messages", json={"messages": messages})
    newest = client.post(f"/v1/sessions/{session}/history", json={"limit": 2, "offset": 1}).json()["items"]
    assert [item["content"] for item in newest] == ["m3", "m4"]
    chosen = client.post(f"/v1/sessions/{session}/history", json={"metadata": {"n": 2}}).json()["items"]
    assert [item["content"] for item in chosen] == ["m2"]
    window = client.get(f"/v1/sessions/{session}/context_window", params={"max_tokens": 9}).json()["items"]
    assert [item["content"] for item in window] == ["m4", "m5"]


def test_imported_messages_need_ids_and_are_added_once(client: httpx2.Client, session: str) -> None:
    path = f"/v1/sessions/{session}/import"
    assert client.post(path, json={"messages": [{"role": "user", "content": "x"}]}).status_code == 422
    messages = [{"role": "user", "content": str(n), "id": f"i{n}"} for n in range(5)]
    assert client.post(path, json={"messages": messages}).json() == {"added": 5, "known": 0, "events": 0}
    assert client.post(path, json={"messages": messages}).json()["known"] == 5
    assert len(log(client, session)) == 5


def test_retention_is_stored_as_it_was_chosen(client: httpx2.Client, session: str) -> None:
    put(client, session, "one", "two", "three")
    path = f"/v1/sessions/{session}/retention"
    assert client.put(path, json={"max_age_seconds": 3600, "actor": "bo"}).json() == {"number": 1}
    assert client.get(path).json()["max_age_seconds"] == 3600
    assert client.put(path, json={"archive": "file:///tmp/x"}).status_code == 422  # an operator's choice
