"""The code of a tutorial's chapter on Agno 1's ``Memory``, on the adapter.

A line that differs from the chapter's ends with ``# changed``.
What is said in it, and what stands around it, is ours.
`docs/promises.md` lists all of its examples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("agno.memory.v2", reason="needs the environment of `make test-legacy`")

from agno.memory.v2.db.schema import MemoryRow
from agno.memory.v2.schema import UserMemory
from agno.models.message import Message
from agno.models.openai import OpenAIChat
from agno.run.response import RunResponse

from strandline import OwnerError
from strandline.adapters.agno_v1 import StrandlineMemory as Memory  # changed
from strandline.adapters.agno_v1 import StrandlineMemoryDb
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from tests.support.workers.draining import drain_everything

NAME = "The user is called "


@pytest.fixture(autouse=True)
def _configured(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    # A run's facts are drained right behind it here, and not by a worker that waits for its company.
    monkeypatch.setenv("STRANDLINE_TURN_DELAY_SECONDS", "0")


@pytest.fixture
def memory_db() -> Iterator[StrandlineMemoryDb]:
    db = StrandlineMemoryDb()  # changed: SqliteMemoryDb(db_file=…)
    db.create()
    yield db
    db.close()


def scripted(messages: list[Message], **_options: Any) -> Message:
    """Greets by the name that some message tells, and says it when asked."""
    said = [str(message.content) for message in messages]
    name = next((text.split(NAME)[1].split(".")[0] for text in said if NAME in text), None)
    name = name or next((text.split("I am ")[1].split(".")[0] for text in said if "I am " in text), "there")
    if "Who am I?" in said[-1]:
        return Message(role="assistant", content=f"You are {name}.")
    return Message(role="assistant", content=f"Ahoy {name}, you said: {said[-1]}")


def scripted_model() -> OpenAIChat:
    llm = OpenAIChat(id="scripted")
    llm.invoke = scripted
    return llm


Turn = Callable[[str, Memory, str], RunResponse]


def make_turn(llm: OpenAIChat, user_id: str) -> Turn:
    """A turn of the chapter: it recalls history and memories, asks the model, and records both."""

    def take(text: str, memory: Memory, session_id: str) -> RunResponse:
        history = memory.get_messages_from_last_n_runs(session_id=session_id)
        known = memory.get_user_memories(user_id=user_id)
        facts = [Message(role="system", content=f"Fact: {mem.memory}") for mem in known]
        answer = llm.invoke(messages=history + facts + [Message(role="user", content=text)])
        run = RunResponse(content=answer.content, messages=[Message(role="user", content=text), answer])
        memory.add_run(session_id=session_id, run=run)
        if "I am " in text:
            fact = UserMemory(memory=f"{NAME}{text.split('I am ')[1].strip('.')}.", topics=["name"])
            memory.add_user_memory(memory=fact, user_id=user_id)
        return run

    return take


def test_agno_01_a_memory_on_a_database_is_ready_for_a_user(memory_db: StrandlineMemoryDb) -> None:
    agent_memory = Memory(db=memory_db)  # changed: without model=, workers have models
    agent_memory.initialize(user_id="user_alpha")
    assert agent_memory.get_user_memories(user_id="user_alpha") == []
    assert scripted_model().invoke(messages=[Message(role="user", content="I am Maren.")]).content == (
        "Ahoy Maren, you said: I am Maren."
    )


def test_agno_02_the_next_session_knows_what_was_said(memory_db: StrandlineMemoryDb) -> None:
    turn = make_turn(scripted_model(), "user_alpha")
    agent_memory = Memory(db=memory_db)  # changed: as above
    agent_memory.initialize(user_id="user_alpha")
    assert turn("Ahoy, I am Maren.", agent_memory, "session_001").content == (
        "Ahoy Maren, you said: Ahoy, I am Maren."
    )
    assert turn("What did I tell you?", agent_memory, "session_001").content == (
        "Ahoy Maren, you said: What did I tell you?"
    )

    # Another instance, as after a restart.
    new_memory_instance = Memory(db=memory_db)  # changed: as above
    new_memory_instance.initialize(user_id="user_alpha")
    assert turn("Who am I?", new_memory_instance, "session_002").content == "You are Maren."
    # There runs are gone with their process.
    again = new_memory_instance.get_messages_from_last_n_runs(session_id="session_001")
    assert [message.content for message in again][-1] == "Ahoy Maren, you said: What did I tell you?"


def test_agno_02_facts_are_made_of_the_turns_themselves(
    memory_db: StrandlineMemoryDb, database: Database, database_url: str, settings: Settings
) -> None:
    """What the chapter says and its code leaves out: extracted facts, a search, a summary."""
    memory = Memory("user_alpha", db=memory_db)  # changed: the user is told, and initialize not needed
    messages = [Message(role="user", content="I live in Horta with my sister Ida.")]
    answer = Message(role="assistant", content="How nice.")
    memory.add_run("session_001", RunResponse(messages=[*messages, answer]))
    memory.create_user_memories(messages=messages, user_id="user_alpha")
    drain_everything(database, database_url, settings)
    (fact,) = memory.get_user_memories(user_id="user_alpha")
    assert "Horta" in fact.memory
    (found,) = memory.search_user_memories(query="Horta", retrieval_method="semantic", user_id="user_alpha")
    assert found.memory_id == fact.memory_id
    memory.create_session_summary("session_001", "user_alpha")
    drain_everything(database, database_url, settings)
    summary = memory.create_session_summary("session_001", "user_alpha")
    assert summary is not None and "Horta" in summary.summary


def test_agno_03_the_methods_of_memory(memory_db: StrandlineMemoryDb) -> None:
    for name, parameters in {
        "initialize": ["user_id"],
        "add_run": ["session_id", "run"],
        "get_messages_from_last_n_runs": ["session_id", "last_n"],
        "add_user_memory": ["memory", "user_id"],
        "get_user_memories": ["user_id"],
    }.items():
        assert set(parameters) <= set(inspect.signature(getattr(Memory, name)).parameters), name
    last_n = inspect.signature(Memory.get_messages_from_last_n_runs).parameters["last_n"]
    assert last_n.default == 5

    memory = Memory("user_alpha", db=memory_db)  # changed: as above
    for number in range(7):
        memory.add_run("session_001", RunResponse(messages=[Message(role="user", content=f"{number}")]))
    five = memory.get_messages_from_last_n_runs("session_001")
    assert [message.content for message in five] == ["2", "3", "4", "5", "6"]
    assert memory.get_messages_from_last_n_runs("session_001", last_n=0) == []
    memory_id = memory.add_user_memory(memory=UserMemory(memory="Maren sails."), user_id="user_alpha")
    assert [mem.memory_id for mem in memory.get_user_memories(user_id="user_alpha")] == [memory_id]


def test_agno_04_the_methods_of_a_memory_db(memory_db: StrandlineMemoryDb) -> None:
    memory_db.create()
    for number in range(12):
        row = MemoryRow(id=f"row-{number}", user_id="user_alpha", memory={"memory": f"Fact {number}."})
        memory_db.upsert_memory(row)
    rows = memory_db.read_memories(user_id="user_alpha")
    assert len(rows) == 10, "the limit that the chapter has"
    assert len(memory_db.read_memories(user_id="user_alpha", limit=12)) == 12

    memory_db.upsert_memory(MemoryRow(id="row-3", user_id="user_alpha", memory={"memory": "Fact three."}))
    changed = {
        row.id: row.memory["memory"] for row in memory_db.read_memories(user_id="user_alpha", limit=20)
    }
    assert changed["row-3"] == "Fact three." and len(changed) == 12
    with pytest.raises(OwnerError):
        memory_db.upsert_memory(MemoryRow(id="row-3", user_id="user_beta", memory={"memory": "Mine now."}))

    memory_db.delete_memory("row-3")
    assert len(memory_db.read_memories(user_id="user_alpha", limit=20)) == 11
    elsewhere = StrandlineMemoryDb(namespace="elsewhere")  # changed: the chapter says "its scope"
    elsewhere.upsert_memory(MemoryRow(id="row-1", user_id="user_alpha", memory={"memory": "It stays."}))
    memory_db.clear()
    assert memory_db.read_memories(user_id="user_alpha") == []
    assert len(elsewhere.read_memories(user_id="user_alpha")) == 1
    elsewhere.close()
