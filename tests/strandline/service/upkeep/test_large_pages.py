"""A page of the log is bounded in bytes as well as in number, and loses no message by it."""

from __future__ import annotations

from uuid import uuid4

import httpx2
import pytest

from strandline import Memory
from strandline.pipelines.inspect.verify import verify
from strandline.producers.sessions import HISTORY_PAGE_BYTES
from strandline.schemas.settings import load_settings
from strandline.schemas.values.policy import DEFAULT_WINDOW_BYTES
from strandline.service.routes import messages
from tests.support.servers.service_server import RunningService
from tests.support.workers.draining import drain_everything

LARGE, COUNT = 900_000, 12


@pytest.fixture(scope="module")
def filled(running: RunningService, client: httpx2.Client) -> str:
    """A session of twelve messages of 900 kB, and one small one behind them."""
    session = f"s-{uuid4().hex}"
    texts = [f"{place} " + "x" * LARGE for place in range(COUNT)] + ["the last"]
    for text in texts:
        body = {"messages": [{"role": "user", "content": text}], "policy": {"token_limit": 10_000_000}}
        client.post(f"/v1/sessions/{session}/messages", json=body).raise_for_status()
    return session


def test_pages_end_with_the_message_that_fills_them(client: httpx2.Client, filled: str) -> None:
    seqs, sizes, cursor = [], [], None
    while True:
        query = {"limit": "1000"} | ({"cursor": cursor} if cursor else {})
        answer = client.get(f"/v1/sessions/{filled}/messages", params=query).raise_for_status()
        page = answer.json()
        seqs += [message["seq"] for message in page["items"]]
        sizes.append(len(answer.content))
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seqs == list(range(1, COUNT + 2))
    assert len(sizes) > 2
    assert max(sizes) < HISTORY_PAGE_BYTES + 2 * LARGE


def test_a_history_that_is_too_large_is_refused(client: httpx2.Client, filled: str) -> None:
    path = f"/v1/sessions/{filled}/history"
    refused = client.post(path, json={"limit": 1000})
    assert refused.status_code == 422
    assert "ask for fewer at once" in refused.text
    given = client.post(path, json={"limit": 3}).raise_for_status().json()["items"]
    assert [message["seq"] for message in given] == [COUNT - 1, COUNT, COUNT + 1]


def test_the_library_reads_all_pages(running: RunningService, filled: str) -> None:
    memory = Memory.from_defaults(filled, user_id="ana", database_url=running.database_url, memory_blocks=[])
    try:
        assert [message.seq for message in memory.get_all()] == list(range(1, COUNT + 2))
        assert [message.seq for message in memory.iterate()] == list(range(1, COUNT + 2))
        assert len(memory.history()) == COUNT + 1
    finally:
        memory.close()


def test_the_newest_that_fit_end_with_the_message_that_fills_them(client: httpx2.Client, filled: str) -> None:
    """However many tokens are asked for."""
    path = f"/v1/sessions/{filled}/context_window"
    answer = client.get(path, params={"max_tokens": "2147483647"}).raise_for_status()
    assert len(answer.content) < HISTORY_PAGE_BYTES + 2 * LARGE
    seqs = [message["seq"] for message in answer.json()["items"]]
    assert seqs == list(range(COUNT + 2 - len(seqs), COUNT + 2))
    assert len(seqs) > 2


def test_runs_that_are_too_large_are_refused(client: httpx2.Client) -> None:
    """A message that several runs brought counts for each, since each reads it."""
    path = f"/v1/sessions/s-{uuid4().hex}"
    shared = {"role": "user", "content": "x" * LARGE, "id": "shared"}
    for number in range(8):
        own = {"role": "assistant", "content": f"run {number}"}
        client.put(f"{path}/runs/r{number}", json={"messages": [shared, own]}).raise_for_status()
    refused = client.post(f"{path}/run-history", json={"last_n": None})
    assert refused.status_code == 422
    assert "ask for fewer at once" in refused.text
    items = client.post(f"{path}/run-history", json={"last_n": 3}).raise_for_status().json()["items"]
    assert [message["seq"] for message in items] == [1, 7, 8, 9]


def test_many_small_messages_fill_a_page_too(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message costs memory beside its texts."""
    session = f"s-{uuid4().hex}"
    monkeypatch.setattr(messages, "HISTORY_PAGE_BYTES", 20_000)
    for _ in range(3):
        body = {"messages": [{"role": "user", "content": ""}] * 600}
        client.post(f"/v1/sessions/{session}/messages", json=body).raise_for_status()
    path = f"/v1/sessions/{session}/context_window"
    items = client.get(path, params={"max_tokens": "2147483647"}).raise_for_status().json()["items"]
    assert [message["seq"] for message in items] == list(range(1_800 - len(items) + 1, 1_801))
    assert 10 < len(items) < 200


def test_no_replacement_makes_a_window_larger_than_a_read_may_hold(client: httpx2.Client) -> None:
    path = f"/v1/sessions/s-{uuid4().hex}"
    body = {"messages": [{"role": "user", "content": "small"}] * 20, "policy": {"token_limit": 2**31 - 1}}
    client.post(f"{path}/messages", json=body).raise_for_status()
    given = [
        client.put(f"{path}/messages/{seq}/content", json={"content": "x" * LARGE}) for seq in range(1, 21)
    ]
    assert {answer.status_code for answer in given} == {200, 409}
    assert "Flush the session first" in given[-1].json()["detail"]
    context = client.post(f"{path}/context", json={})
    assert DEFAULT_WINDOW_BYTES - LARGE < len(context.content) < DEFAULT_WINDOW_BYTES + 20_000
    # What is smaller than before goes always, and so does a message that no read holds.
    client.put(f"{path}/messages/1/content", json={"content": "short"}).raise_for_status()
    client.post(f"{path}/flush", json={"all": True}).raise_for_status()
    client.put(f"{path}/messages/20/content", json={"content": "x" * LARGE}).raise_for_status()


def test_a_head_ends_before_it_is_larger_than_a_read_may_hold(
    running: RunningService, client: httpx2.Client
) -> None:
    path = f"/v1/sessions/s-{uuid4().hex}"
    policy = {"token_limit": 2**31 - 1, "max_window_bytes": 2_000_000}
    for number in range(20):
        body = {"messages": [{"role": "system", "content": f"{number} " + "x" * LARGE}], "policy": policy}
        client.post(f"{path}/messages", json=body).raise_for_status()
    client.post(f"{path}/messages", json={"messages": [{"role": "user", "content": "hello"}]})
    state = client.get(path).json()["session"]
    assert (state["pinned_through"], state["last_seq"]) == (DEFAULT_WINDOW_BYTES // LARGE, 21)
    assert state["flushed_through"] > state["pinned_through"]
    assert not verify(running.database).violations


def test_what_a_search_finds_is_bounded(running: RunningService, client: httpx2.Client) -> None:
    """Before vectors cover the messages, after that, and where an index in memory ranks them."""
    path, count = f"/v1/sessions/s-{uuid4().hex}", 19
    for place in range(count):
        body = {"messages": [{"role": "user", "content": f"harbour {place} " + "x" * LARGE}]}
        client.post(f"{path}/messages", json=body).raise_for_status()
    assert found(client, path) == HISTORY_PAGE_BYTES // LARGE + 1
    client.post(f"{path}/flush", json={"all": True}).raise_for_status()
    local = {"text_backend": "local", "embedding_backend": "local", "max_indexed_characters": 1_600}
    settings = load_settings(database_url=running.database_url, **local)
    drain_everything(running.database, running.database_url, settings)
    assert [found(client, path) for _ in range(3)] == [DEFAULT_WINDOW_BYTES // LARGE + 1] * 3


def found(client: httpx2.Client, path: str) -> int:
    answer = client.post(f"{path}/search", json={"query": "harbour", "limit": 1_000}).raise_for_status()
    return len(answer.json()["items"])
