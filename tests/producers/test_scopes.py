"""One window for several agents, and scopes that are apart."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import InvalidMessageError
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import scope_session_id
from tests.conftest import MakeMemory, Rig
from tests.support.messages import user
from tests.support.workers.draining import drain_everything

AGENTS = ("analyst", "writer", "critic")


def says(agent: str, text: str) -> dict[str, Any]:
    return {"role": "assistant", "name": agent, "content": text, "metadata": {"agent": agent}}


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages]


def test_agents_share_one_window_and_are_told_apart_by_name(rig: Rig) -> None:
    """Each has a memory of its own, as in a process of its own, and a thread."""
    memories = {agent: rig.memory("report", memory_blocks=[]) for agent in AGENTS}

    def work(agent: str) -> None:
        for number in range(20):
            memories[agent].put(says(agent, f"{agent} {number}"))

    memories["analyst"].put(user("How is the harbour doing?"))
    threads = [threading.Thread(target=work, args=(agent,)) for agent in AGENTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    windows = [list(memory.get()) for memory in memories.values()]
    assert windows[0] == windows[1] == windows[2] and len(windows[0]) == 61
    for agent in AGENTS:
        own = [message for message in windows[0] if message.name == agent]
        assert texts(own) == [f"{agent} {number}" for number in range(20)], "none lost, in order"
        assert memories["writer"].history(metadata={"agent": agent}) == own
    assert memories["critic"].get().to_openai()[1]["name"] in AGENTS
    assert verify(rig.database).violations == ()


def test_a_model_is_told_which_agent_spoke(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", rig.model.base_url)
    memory = rig.memory("report", memory_blocks=["summary"])
    memory.put_messages([says("analyst", "Traffic grew."), says("writer", "Brisk business.")])
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, load_settings(database_url=rig.url, embedding_backend="local"))
    transcript = str(rig.model.requests[-1].body["messages"][1]["content"])
    assert '"by": "analyst (assistant)"' in transcript and '"by": "writer (assistant)"' in transcript


def test_what_is_put_to_a_scope_is_in_no_other(make_memory: MakeMemory) -> None:
    memory = make_memory("team", memory_blocks=["facts", "vectors"], max_window_messages=3)
    drafts, sources = memory.get_scope("drafts"), memory.get_scope("sources")
    for place, word in ((memory, "harbour"), (drafts, "lighthouse"), (sources, "ferry")):
        place.put_messages([user(f"About the {word} {number}.") for number in range(5)])
    for place, word in ((memory, "harbour"), (drafts, "lighthouse"), (sources, "ferry")):
        assert len(place.history()) == 5 and all(word in text for text in texts(place.history()))
        assert all(word in message.text for message in place.get())
        assert texts(place.search("harbour lighthouse ferry", scope="owner")) == texts(place.search(word))
    again = make_memory("team", memory_blocks=["facts", "vectors"]).get_scope("drafts")
    assert again.session_id == "team/drafts" and again.history() == drafts.history()
    assert again.token_limit == memory.token_limit and again.memory_blocks == memory.memory_blocks


def test_clearing_one_scope_leaves_the_others_with_their_facts(rig: Rig) -> None:
    memory = rig.memory("team", memory_blocks=["facts"])
    drafts, sources = memory.get_scope("drafts"), memory.get_scope("sources")
    drafts.put(user("My name is Dora and I live in Bergen."))
    sources.put(user("My name is Sven and I live in Oslo."))
    for scope in (drafts, sources):
        scope.flush(all=True)
    drain_everything(
        rig.database,
        rig.url,
        load_settings(database_url=rig.url, text_backend="local", embedding_backend="local"),
    )
    assert any("Bergen" in fact.text for fact in drafts.facts.list())
    known = [fact.text for fact in sources.facts.list()]
    assert any("Oslo" in text for text in known) and not any("Bergen" in text for text in known)
    assert list(memory.facts.list()) == []
    drafts.reset(derived=True)
    assert drafts.get_all() == [] and list(drafts.facts.list()) == []
    assert len(sources.get_all()) == 1 and [fact.text for fact in sources.facts.list()] == known
    assert verify(rig.database).violations == ()


def test_scopes_of_a_user_share_facts_and_nothing_else(make_memory: MakeMemory) -> None:
    memory = make_memory("team", user_id="maren", memory_blocks=["facts"])
    drafts, sources = memory.get_scope("drafts"), memory.get_scope("sources")
    drafts.facts.add("Maren writes in short sentences.")
    drafts.put(user("A draft."))
    sources.put(user("A source."))
    for scope in (memory, drafts, sources):
        assert [fact.text for fact in scope.facts.list()] == ["Maren writes in short sentences."]
    assert texts(sources.get_all()) == ["A source."]
    drafts.reset(derived=True)
    assert len(sources.facts.list()) == 1 and texts(sources.get_all()) == ["A source."]
    other = make_memory("team", user_id="bo", namespace="other", memory_blocks=["facts"]).get_scope("drafts")
    assert other.get_all() == [] and list(other.facts.list()) == []


@given(*(st.text("a/%2F5", min_size=1, max_size=4) for _ in range(4)))
def test_no_two_scopes_are_one_session(one: str, scope: str, other: str, other_scope: str) -> None:
    is_same = scope_session_id(one, scope) == scope_session_id(other, other_scope)
    assert is_same == ((one, scope) == (other, other_scope))


@pytest.mark.parametrize("name", ["", 3, None, "\x00", "x" * 513, "x" * 512])
def test_a_name_that_cannot_be_is_refused(name: Any, make_memory: MakeMemory) -> None:
    with pytest.raises(InvalidMessageError):
        make_memory("team", memory_blocks=[]).get_scope(name)
