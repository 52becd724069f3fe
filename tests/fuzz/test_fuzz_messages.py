"""Messages of any form: stored whole and given back, or refused with nothing stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import Memory, Message, StrandlineError
from tests.fuzz.running import fuzzed
from tests.fuzz.values import messages

LIMITS: dict[str, Any] = {"token_limit": 2_000, "token_flush_size": 200}


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    yield database_url
    Memory.from_defaults("last", database_url=database_url).close()


def comparable(message: Message) -> dict[str, Any]:
    """The message as its caller gave it, without the library's additions, after a round trip through JSON."""
    fields = ("role", "content", "name", "tool_call_id")
    said = {name: getattr(message, name) for name in fields}
    said |= {"tool_calls": message.tool_calls or None, "metadata": dict(message.metadata)}
    said["extra"] = dict(message.extra)
    loaded: dict[str, Any] = json.loads(json.dumps(said, default=dict))
    return loaded


@given(given=st.lists(messages, min_size=1, max_size=3))
@fuzzed()
def test_a_put_stores_all_of_it_or_nothing(given: list[Any], url: str) -> None:
    memory = Memory.from_defaults(uuid4().hex, database_url=url, memory_blocks=[], **LIMITS)
    try:
        seqs = memory.put_messages(given)
    except StrandlineError:
        assert memory.get_all() == []
        return
    history = memory.get_all()
    assert [message.seq for message in history] == sorted(set(seqs))
    if len(set(seqs)) == len(given):
        asked = [comparable(Message.from_openai(message)) for message in given]
        assert [comparable(message) for message in history] == asked


@given(given=st.lists(messages, min_size=1, max_size=3))
@fuzzed()
def test_what_was_stored_can_be_read_and_sent_to_a_model(given: list[Any], url: str) -> None:
    memory = Memory.from_defaults(uuid4().hex, database_url=url, **LIMITS)
    memory.put({"role": "user", "content": "The lighthouse is red."})
    with suppress(StrandlineError):
        memory.put_messages(given)
    context = memory.get()
    json.dumps(context.to_openai(), ensure_ascii=False, allow_nan=False).encode()
    memory.flush(all=True)
    delivered = memory.get()
    assert delivered.to_openai() or delivered.omitted
    assert memory.search("lighthouse")


@given(given=st.lists(messages, min_size=1, max_size=3))
@fuzzed(0.3)
def test_an_import_stores_all_of_it_or_nothing(given: list[Any], url: str) -> None:
    memory = Memory.from_defaults(uuid4().hex, database_url=url, memory_blocks=[], **LIMITS)
    try:
        imported = memory.import_messages(given)
    except StrandlineError:
        assert memory.get_all() == []
        return
    assert len(memory.get_all()) == imported.added
