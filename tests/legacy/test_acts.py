"""What Agno 1 and TFrameX change is an act like any other: in the audit trail, and before the hook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from agno.memory.v2.db.schema import MemoryRow
from agno.memory.v2.schema import UserMemory
from agno.models.message import Message
from agno.run.response import RunResponse
from tframex.models.primitives import Message as FrameMessage

from strandline import Memory
from strandline.adapters.agno_v1 import StrandlineMemory, StrandlineMemoryDb
from strandline.adapters.tframex import StrandlineMemoryStore
from tests.support.agents.acts import ANSWER, HELLO, Call, Library, LibraryCall, check, library_beside


@pytest.fixture
def library(database_url: str) -> Iterator[Library]:
    with library_beside(database_url) as library:
        yield library


def tea(text: str) -> MemoryRow:
    return MemoryRow(id="tea", user_id="ann", memory={"memory": text})


def run(content: str) -> RunResponse:
    messages = [Message(role="user", content="one"), Message(role="assistant", content=content)]
    return RunResponse(run_id="r", content=content, messages=messages)


def said(content: str) -> Any:
    return [{"role": "user", "content": "one"}, {"role": "assistant", "content": content}]


MEMORY: dict[str, tuple[Call, LibraryCall]] = {
    "add_run": (
        lambda m: m.add_run("anns", run("two")),
        lambda of: of.memory.add_run("r", said("two")),
    ),
    "add_user_memory": (
        lambda m: m.add_user_memory(UserMemory("Ann sails."), "ann"),
        lambda of: of.facts.add("Ben sails.", actor="agno"),
    ),
    "replace_user_memory": (
        lambda m: m.replace_user_memory("tea", UserMemory("Ann likes mate."), "ann"),
        lambda of: of.facts.replace(of.fact_id, "Ben likes mate.", actor="agno"),
    ),
    "delete_user_memory": (
        lambda m: m.delete_user_memory("tea", "ann"),
        lambda of: of.facts.delete(of.fact_id, actor="agno"),
    ),
    "create_user_memories": (
        lambda m: m.create_user_memories("I row.", user_id="ann"),
        lambda of: of.facts.create_from([{"role": "user", "content": "I row."}]),
    ),
    "update_memory_task": (
        lambda m: m.update_memory_task("Forget tea.", "ann"),
        lambda of: of.facts.instruct("Forget tea."),
    ),
    "db.upsert_memory": (
        lambda m: m.db.upsert_memory(tea("Ann likes mate.")),
        lambda of: of.facts.replace(of.fact_id, "Ben likes mate.", actor="agno"),
    ),
    "db.delete_memory": (
        lambda m: m.db.delete_memory("tea"),
        lambda of: of.facts.delete(of.fact_id, actor="agno"),
    ),
}


@pytest.mark.parametrize("name", MEMORY)
def test_what_agno_1_changes(library: Library, name: str) -> None:
    call, library_call = MEMORY[name]
    db = StrandlineMemoryDb(**library.options)
    db.upsert_memory(tea("Ann likes tea."))
    memory = StrandlineMemory("ann", db=db)
    memory.session_memory("anns").put_messages([HELLO, ANSWER])
    check(memory, call, library, library_call)


STORE: dict[str, tuple[Call, LibraryCall]] = {
    "add_message": (
        lambda s: s.add_message(FrameMessage(role="user", content="one")),
        lambda of: of.memory.put(HELLO),
    ),
    "clear": (lambda s: s.clear(), lambda of: of.memory.reset()),
}


@pytest.mark.parametrize("name", STORE)
def test_what_tframex_changes(library: Library, name: str) -> None:
    options = {"user_id": "ann", "memory_blocks": [], **library.options}
    Memory.from_defaults("anns", **options).put_messages([HELLO, ANSWER])
    call, library_call = STORE[name]
    check(StrandlineMemoryStore("anns", **options), call, library, library_call)
