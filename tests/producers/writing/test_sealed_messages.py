"""Messages of an encrypted namespace: sealed in their rows, and otherwise as they were put."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from strandline import Memory
from strandline.schemas.errors import ConflictError, KeyUnavailableError, SealedContentError
from tests.conftest import MakeMemory, rows_of

KEYS = f"first {b64encode(b'1' * 32).decode()};second {b64encode(b'2' * 32).decode()}"
OTHER_KEYS = f"first {b64encode(b'3' * 32).decode()}"


@pytest.fixture(autouse=True)
def _keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)


@pytest.fixture
def sealed_url(database_url: str) -> str:
    rows_of(database_url, "INSERT INTO strandline.encryption VALUES ('default', 'first', 'clear') RETURNING 1")
    return database_url


@pytest.fixture
def memory(sealed_url: str, make_memory: MakeMemory) -> Iterator[Memory]:
    yield make_memory("s", user_id="u")


def test_the_rows_hold_no_content_and_reads_give_it_all(memory: Memory, sealed_url: str) -> None:
    call = {"id": "call-zyx", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "The canary is xylophone", "name": "Ottilie", "id": "m1"},
        {"role": "assistant", "content": None, "tool_calls": [call], "metadata": {"mood": "marzipan"}},
        {"role": "tool", "content": "found", "tool_call_id": "call-zyx"},
    ]
    memory.put(messages[0])
    memory.put_messages(messages[1:])
    stored = rows_of(sealed_url, "SELECT m::text FROM strandline.message m")
    for word in ("xylophone", "Ottilie", "marzipan", "call-zyx", "found", "mood"):
        assert word not in str(stored)
    assert [m.to_openai() for m in memory.get()] == [
        {"role": "user", "content": "The canary is xylophone", "name": "Ottilie"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "found", "tool_call_id": "call-zyx"},
    ]
    assert [m.metadata for m in memory.history(metadata={"mood": "marzipan"})] == [{"mood": "marzipan"}]
    assert memory.history(metadata={"mood": "other"}) == []


def test_a_put_is_repeatable_and_a_conflict_is_one(memory: Memory) -> None:
    first = memory.put({"role": "user", "content": "once", "id": "a"})
    assert memory.put({"role": "user", "content": "once", "id": "a"}) == first
    with pytest.raises(ConflictError):
        memory.put({"role": "user", "content": "twice", "id": "a"})
