"""A page of the log is bounded in bytes as well as in number, and loses no message by it."""

from __future__ import annotations

from uuid import uuid4

import httpx2
import pytest

from strandline import Memory
from strandline.producers.sessions import HISTORY_PAGE_BYTES
from tests.support.servers.service_server import RunningService

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
