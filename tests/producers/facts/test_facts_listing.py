"""Listing facts: what is known of an owner, and the messages, event, prompt and model that it came from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline import Memory
from strandline.producers.facts.listing import Fact
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.servers.model_server import ModelServer

SAID = (
    "My sister Inga lives in Husum.",
    "I am allergic to mussels.",
    "My ferry to Amrum leaves on Friday.",
    "I prefer black tea without sugar.",
    "I moved to Hamburg in March.",
)
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def _model(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that finds one fact in each line."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")


@pytest.fixture
def memory(make_memory: MakeMemory, database_url: str, _model: None) -> Memory:
    """Two sessions of one user, told five things with a day between each, all of it derived."""
    for session_id, said in (("one", SAID[:3]), ("two", SAID[3:])):
        told = make_memory(session_id, user_id="maren", consume="background")
        for text in said:
            number = SAID.index(text)
            at = BEGAN + timedelta(days=number)
            told.put({"role": "user", "content": text, "id": f"m{number}", "created_at": at})
        told.flush(all=True)
        wait_until(lambda: nothing_due(database_url), timeout=30, what="everything to be consumed")
    told.close()
    return make_memory("three", user_id="maren")


def known(facts: Any) -> list[str]:
    return [fact.text for fact in facts]


def fact_about(facts: Any, word: str) -> Fact:
    (found,) = (fact for fact in facts if word in fact.text)
    assert isinstance(found, Fact)
    return found


def test_facts_are_the_owners_from_all_sessions_newest_first(memory: Memory) -> None:
    facts = memory.facts.list()
    assert len(facts) == 5
    for word in ("Inga", "mussels", "Amrum", "tea", "Hamburg"):
        assert word in fact_about(facts, word).text
    assert [fact.said_at for fact in facts] == [BEGAN + timedelta(days=day) for day in (4, 3, 2, 1, 0)]


def test_a_fact_names_where_it_came_from(memory: Memory, make_memory: MakeMemory, database_url: str) -> None:
    fact = fact_about(memory.facts.list(), "mussels")
    assert fact.message_ids == ("m1",)
    assert fact.invalidated_at is None
    assert fact.invalidated_by is None
    assert fact.created_at.tzinfo is not None
    assert fact.updated_at >= fact.created_at
    (revision,) = fact.revisions
    assert (revision.operation, revision.text, revision.seqs) == ("add", fact.text, (2,))
    assert revision.model
    assert revision.prompt_hash
    events = rows_of(database_url, "SELECT event_id FROM strandline.flush_event WHERE through_seq >= 2")
    assert revision.event_id in {event_id for (event_id,) in events}
    history = make_memory("one", user_id="maren").get_all()
    (source,) = (message for message in history if message.id in fact.message_ids)
    assert "mussels" in source.text
    assert source.seq in revision.seqs


def test_a_fact_said_again_has_both_messages(rig: Rig, memory: Memory) -> None:
    again = rig.memory("four", user_id="maren", consume="background")
    again.put({"role": "user", "content": SAID[1], "id": "again"})
    again.flush(all=True)
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="everything to be consumed")
    facts = memory.facts.list()
    assert len(facts) == 5
    fact = fact_about(facts, "mussels")
    assert fact.message_ids == ("m1", "again")
    assert [revision.operation for revision in fact.revisions] == ["add", "duplicate"]


def test_facts_are_listed_in_pages(memory: Memory) -> None:
    everything = known(memory.facts.list())
    pages = [known(memory.facts.list(limit=2, offset=offset)) for offset in (0, 2, 4, 6)]
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert [text for page in pages for text in page] == everything


def test_what_is_no_longer_true_is_listed_when_asked_for(memory: Memory, database_url: str) -> None:
    gone, successor = memory.facts.list()[:2]
    rows_of(
        database_url,
        "UPDATE strandline.fact SET live = false, invalidated_at = clock_timestamp(), invalidated_by = %s"
        " WHERE fact_id = %s RETURNING 1",
        successor.fact_id,
        gone.fact_id,
    )
    assert gone.text not in known(memory.facts.list())
    assert len(memory.facts.list()) == 4
    (found,) = (f for f in memory.facts.list(with_invalidated=True) if f.fact_id == gone.fact_id)
    assert found.invalidated_at is not None
    assert found.invalidated_by == successor.fact_id
    assert gone.text not in str(memory.get())


def test_only_the_generation_that_serves_is_listed(memory: Memory, database_url: str) -> None:
    rows_of(
        database_url,
        "UPDATE strandline.generation SET state = 'retired' WHERE pipeline = 'facts' RETURNING 1",
    )
    assert memory.facts.list() == []


def test_facts_of_a_user_are_not_listed_for_other_owners(memory: Memory, make_memory: MakeMemory) -> None:
    for options in ({"user_id": "tove"}, {"user_id": "maren", "namespace": "elsewhere"}, {}):
        assert make_memory("fresh", **options).facts.list() == []
