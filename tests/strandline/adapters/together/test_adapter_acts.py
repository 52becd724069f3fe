"""What adapters change is an act like any other: in the audit trail, and before the compliance hook."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast
from uuid import uuid4

import pytest

pytest.importorskip("agents", reason="needs the extras of all adapters")
pytest.importorskip("agno.session.agent", reason="needs the extras of all adapters")
pytest.importorskip("langchain_core", reason="needs the extras of all adapters")
pytest.importorskip("langgraph", reason="needs the extras of all adapters")
pytest.importorskip("llama_index.core", reason="needs the extras of all adapters")
pytest.importorskip("pydantic_ai", reason="needs the extras of all adapters")

from agents import RunContextWrapper
from agno.db.base import AsyncBaseDb
from agno.db.in_memory import InMemoryDb
from agno.db.schemas import UserMemory
from agno.memory.strategies import MemoryOptimizationStrategy
from agno.models.base import Model
from langchain_core.messages import AIMessage, HumanMessage
from llama_index.core.llms import ChatMessage
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.test import TestModel

from strandline import Memory
from strandline.adapters.agents import StrandlineContextSession, StrandlineSession
from strandline.adapters.agno import StrandlineMemoryManager
from strandline.adapters.agno.overlay import AsyncMemories, Memories
from strandline.adapters.langchain import StrandlineHistory
from strandline.adapters.langgraph import StrandlineStore
from strandline.adapters.llamaindex import StrandlineMemory
from strandline.adapters.pydantic_ai import StrandlineHistory as Capability
from strandline.adapters.pydantic_ai import StrandlineToolset
from strandline.deploy.embedded.stack import EmbeddedStack
from tests.support.agents.acts import (
    ANSWER,
    HELLO,
    Call,
    Library,
    LibraryCall,
    asked,
    assert_refused,
    attempts_at,
    check,
    is_read,
    library_beside,
    wait_for,
)
from tests.support.agents.scripted_agno import ScriptedModel
from tests.support.servers.databases import temporary_database

TEA = "Ann likes tea."


@pytest.fixture(scope="module")
def url(stack: EmbeddedStack) -> Iterator[str]:
    with temporary_database(stack.database_url) as url:
        yield url


@pytest.fixture
def library(url: str) -> Iterator[Library]:
    with library_beside(url) as library:
        yield library


# Agno 3.


class Shorter(MemoryOptimizationStrategy):
    """Says all memories in one sentence."""

    def optimize(self, memories: list[UserMemory], model: Model) -> list[UserMemory]:
        return [UserMemory("Ann drinks.")]

    async def aoptimize(self, memories: list[UserMemory], model: Model) -> list[UserMemory]:
        return self.optimize(memories, model)


class AsyncDb(AsyncBaseDb):
    """An async database of Agno, of which these tests use the memories alone."""


AsyncDb.__abstractmethods__ = frozenset()


def memories_of_agno(*, is_async: bool) -> Any:
    """A database of Agno's own to lay over."""
    kind: Any = AsyncDb
    return object.__new__(kind) if is_async else InMemoryDb()


@pytest.fixture
def manager(library: Library) -> StrandlineMemoryManager:
    manager = StrandlineMemoryManager(wait=None, model=ScriptedModel(), **library.options)
    manager.add_user_memory(UserMemory(TEA, memory_id="tea"), user_id="ann")
    return manager


def tea(text: str = TEA, **fields: Any) -> UserMemory:
    return UserMemory(text, memory_id="tea", user_id="ann", **fields)


def optimize(library: Library) -> None:
    library.facts.apply_optimization(library.facts.optimize())


def nothing(_library: Library) -> None:
    """What the library leaves for it."""


MANAGER: dict[str, tuple[Call, LibraryCall]] = {
    "add_user_memory": (
        lambda m: m.add_user_memory(UserMemory("Ann sails."), "ann"),
        lambda of: of.facts.add("Ben sails."),
    ),
    "add_user_memory judged": (
        lambda m: m.add_user_memory(UserMemory("Ann sails.", feedback="right"), "ann"),
        lambda of: of.facts.feedback(of.facts.add("Ben sails.").fact_id, "right"),
    ),
    "add_user_memory under a known id": (
        lambda m: m.add_user_memory(tea("Ann sails."), "ann"),
        lambda of: of.facts.replace(of.fact_id, "Ben sails."),
    ),
    "replace_user_memory": (
        lambda m: m.replace_user_memory("tea", UserMemory("Ann likes mate."), "ann"),
        lambda of: of.facts.replace(of.fact_id, "Ben likes mate."),
    ),
    "replace_user_memory by the same": (
        lambda m: m.replace_user_memory("tea", UserMemory(TEA), "ann"),
        nothing,
    ),
    "replace_user_memory of none": (
        lambda m: m.replace_user_memory("boat", UserMemory("Ann sails."), "ann"),
        lambda of: of.facts.add("Ben sails."),
    ),
    "delete_user_memory": (
        lambda m: m.delete_user_memory("tea", "ann"),
        lambda of: of.facts.delete(of.fact_id),
    ),
    "delete_user_memory of none": (
        lambda m: m.delete_user_memory("boat", "ann"),
        lambda of: of.facts.delete(uuid4()),
    ),
    "clear_user_memories": (lambda m: m.clear_user_memories("ann"), lambda of: of.facts.clear()),
    "aclear_user_memories": (lambda m: m.aclear_user_memories("ann"), lambda of: of.facts.clear()),
    "create_user_memories": (
        lambda m: m.create_user_memories("I row.", user_id="ann"),
        lambda of: of.facts.create_from([{"role": "user", "content": "I row."}]),
    ),
    "acreate_user_memories": (
        lambda m: m.acreate_user_memories("I row.", user_id="ann"),
        lambda of: of.facts.create_from([{"role": "user", "content": "I row."}]),
    ),
    "update_memory_task": (
        lambda m: m.update_memory_task("Forget tea.", "ann"),
        lambda of: of.facts.instruct("Forget tea."),
    ),
    "aupdate_memory_task": (
        lambda m: m.aupdate_memory_task("Forget tea.", "ann"),
        lambda of: of.facts.instruct("Forget tea."),
    ),
    "optimize_memories": (lambda m: m.optimize_memories("ann"), optimize),
    "aoptimize_memories": (lambda m: m.aoptimize_memories("ann"), optimize),
}
# ``keep`` and ``akeep`` take runs, which `test_adapter_agno_runs.py` has in plenty: each is ``add_run``.
MANAGER_READS = {
    "aget_user_memories", "aread_from_db", "arecall", "get_user_memories", "get_user_memory", "read_from_db",
    "recall", "search_user_memories",
    # They give an object, or are Agno's own and make no change.
    "facts", "overlay", "close", "aclose", "keep", "akeep",
}  # fmt: skip


@pytest.mark.parametrize("name", MANAGER)
def test_what_agnos_manager_changes(manager: StrandlineMemoryManager, library: Library, name: str) -> None:
    call, library_call = MANAGER[name]
    check(manager, call, library, library_call)


def test_agnos_manager_clears_the_namespace_as_the_library_does(
    manager: StrandlineMemoryManager,
    library: Library,
) -> None:
    """Each owner is an act: ann's and ben's facts, once by the adapter, and once by the library."""
    before = len(library.changes())
    manager.clear()
    rows = library.changes()[before:]
    assert [row[0] for row in rows] == ["facts.clear"] * 2
    manager.add_user_memory(tea("Ann sails."), "ann")
    library.facts.add("Ben sails.")
    before = len(library.changes())
    library.users.clear()
    assert library.changes()[before:] == rows


def test_a_strategy_of_agnos_own_is_one_act(
    manager: StrandlineMemoryManager,
    library: Library,
) -> None:
    before = len(library.changes())
    asked.clear()
    for optimized in (
        manager.optimize_memories("ann", Shorter()),
        asyncio.run(manager.aoptimize_memories("ann", Shorter())),
    ):
        assert [memory.memory for memory in optimized] == ["Ann drinks."]
    assert [(row[0], row[4]) for row in library.changes()[before:]] == [("facts.optimize", 1)] * 2
    attempts = [act for act in asked if not is_read(act)]
    assert [(act.kind, act.user_id, act.text) for act in attempts] == [
        ("facts.optimize", "ann", "Ann drinks.")
    ] * 2


OVERLAY: dict[str, tuple[Call, LibraryCall]] = {
    "upsert_user_memory": (
        lambda db: db.upsert_user_memory(tea("Ann likes mate.", feedback="right")),
        lambda of: of.facts.feedback(
            cast(Any, of.facts.replace(of.fact_id, "Ben likes mate.")).fact_id, "right"
        ),
    ),
    "upsert_memories": (
        lambda db: db.upsert_memories(
            [tea("Ann rows."), UserMemory("Ann sails.", user_id="ann"), tea("Ann rows.")]
        ),
        lambda of: [of.facts.replace(of.fact_id, "Ben rows."), of.facts.add("Ben sails.")],
    ),
    "delete_user_memory": (
        lambda db: db.delete_user_memory("tea", "ann"),
        lambda of: of.facts.delete(of.fact_id),
    ),
    "delete_user_memories": (
        lambda db: db.delete_user_memories(["tea", "boat"], "ann"),
        lambda of: [of.facts.delete(of.fact_id), of.facts.delete(uuid4())],
    ),
}
OVERLAY_READS = {
    "get_all_memory_topics", "get_user_memories", "get_user_memory", "get_user_memory_stats",
    "clear_memories",  # as the manager's ``clear``
}  # fmt: skip


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", OVERLAY)
def test_what_agnos_databases_change(
    manager: StrandlineMemoryManager, library: Library, name: str, is_async: bool
) -> None:
    db: Any = manager.overlay(memories_of_agno(is_async=is_async))
    call, library_call = OVERLAY[name]
    check(db, call, library, library_call)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_agnos_databases_are_cleared_as_the_library_does(
    manager: StrandlineMemoryManager, library: Library, is_async: bool
) -> None:
    db: Any = manager.overlay(memories_of_agno(is_async=is_async))
    before = len(library.changes())
    wait_for(db.clear_memories())
    assert [row[0] for row in library.changes()[before:]] == ["facts.clear"] * 2
    assert list(library.facts.list()) == []


def test_what_agno_reads_is_recorded_as_the_librarys_reads(
    manager: StrandlineMemoryManager,
    library: Library,
) -> None:
    db: Any = manager.overlay(InMemoryDb())
    asked.clear()
    for read in (
        lambda: manager.get_user_memories("ann"), lambda: manager.get_user_memory("tea", "ann"),
        lambda: db.get_all_memory_topics("ann"), lambda: db.get_user_memory_stats(user_id="ann"),
        lambda: db.get_user_memories(user_id="ann", limit=1),
    ):  # fmt: skip
        read()
    assert [(act.kind, act.user_id) for act in asked] == [("facts.read", "ann")] * 5
    asked.clear()
    manager.read_from_db()
    assert [(act.kind, act.user_id) for act in asked] == [
        ("directory.read", None), ("facts.read", "ann"), ("facts.read", "ben"),
    ]  # fmt: skip


# Sessions: each call of an adapter is one of the memory that it stands on.


def agents_session(**options: Any) -> StrandlineSession:
    return StrandlineSession("anns", user_id="ann", **options)


CONTEXT: Any = RunContextWrapper({"session_id": "anns", "user_id": "ann"})
ITEMS: Any = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
MESSAGES_OF_BEN: Any = ITEMS
LANGCHAIN = [HumanMessage("one"), AIMessage("two")]
LLAMA = [ChatMessage(role="user", content="one"), ChatMessage(role="assistant", content="two")]


def run_pydantic(capability: Any) -> Awaitable[object]:
    return Agent(TestModel(custom_output_text="two"), capabilities=[capability]).run("one")


def call_toolset(name: str, **arguments: Any) -> Call:
    return lambda toolset: toolset.call_tool(name, arguments, cast("RunContext[Any]", None), None)


SESSIONS: dict[str, tuple[Callable[..., Any], dict[str, tuple[Call, LibraryCall]], set[str]]] = {
    "Agents SDK": (
        agents_session,
        {
            "add_items": (lambda s: s.add_items(ITEMS), lambda of: of.memory.put_messages(MESSAGES_OF_BEN)),
            "pop_item": (lambda s: s.pop_item(), lambda of: of.memory.pop()),
            "clear_session": (lambda s: s.clear_session(), lambda of: of.memory.reset()),
        },
        {"get_items", "run_compaction"},
    ),
    "Agents SDK, by context": (
        StrandlineContextSession,
        {
            "add_items": (
                lambda s: s.add_items(ITEMS, wrapper=CONTEXT),
                lambda of: of.memory.put_messages(MESSAGES_OF_BEN),
            ),
            "pop_item": (lambda s: s.pop_item(wrapper=CONTEXT), lambda of: of.memory.pop()),
            "clear_session": (lambda s: s.clear_session(wrapper=CONTEXT), lambda of: of.memory.reset()),
        },
        {"get_items", "of", "run_compaction"},
    ),
    "LangChain": (
        lambda **options: StrandlineHistory("anns", user_id="ann", **options),
        {
            "add_messages": (
                lambda h: h.add_messages(LANGCHAIN),
                lambda of: of.memory.put_messages(MESSAGES_OF_BEN),
            ),
            "aadd_messages": (
                lambda h: h.aadd_messages(LANGCHAIN),
                lambda of: of.memory.put_messages(MESSAGES_OF_BEN),
            ),
            "add_state": (
                lambda h: h.add_state(LANGCHAIN),
                lambda of: of.memory.put_messages(MESSAGES_OF_BEN),
            ),
            "aadd_state": (
                lambda h: h.aadd_state(LANGCHAIN),
                lambda of: of.memory.put_messages(MESSAGES_OF_BEN),
            ),
            "clear": (lambda h: h.clear(), lambda of: of.memory.reset()),
            "aclear": (lambda h: h.aclear(), lambda of: of.memory.reset()),
            # Of LangChain's own class.
            "add_message": (lambda h: h.add_message(LANGCHAIN[0]), lambda of: of.memory.put(HELLO)),
            "add_user_message": (lambda h: h.add_user_message("one"), lambda of: of.memory.put(HELLO)),
            "add_ai_message": (lambda h: h.add_ai_message("two"), lambda of: of.memory.put(ANSWER)),
        },
        {"messages", "aget_messages"},
    ),
    "LlamaIndex": (
        lambda **options: StrandlineMemory.from_defaults("anns", user_id="ann", **options),
        {
            "put": (lambda m: m.put(LLAMA[0]), lambda of: of.memory.put(HELLO)),
            "aput": (lambda m: m.aput(LLAMA[0]), lambda of: of.memory.put(HELLO)),
            "put_messages": (
                lambda m: m.put_messages(LLAMA),
                lambda of: of.memory.put_messages(MESSAGES_OF_BEN),
            ),
            "aput_messages": (
                lambda m: m.aput_messages(LLAMA),
                lambda of: of.memory.put_messages(MESSAGES_OF_BEN),
            ),
            "set": (lambda m: m.set(LLAMA), lambda of: of.memory.set(MESSAGES_OF_BEN)),
            "aset": (lambda m: m.aset(LLAMA), lambda of: of.memory.set(MESSAGES_OF_BEN)),
            "reset": (lambda m: m.reset(), lambda of: of.memory.reset()),
            "areset": (lambda m: m.areset(), lambda of: of.memory.reset()),
        },
        {
            "get",
            "aget",
            "get_all",
            "aget_all",
            "session_memory",
            "from_defaults",
            "class_name",
            "model_post_init",
        },
    ),
    "Pydantic AI": (
        lambda **options: Capability(Memory.from_defaults("anns", user_id="ann", **options)),
        {"after_run": (run_pydantic, lambda of: of.memory.put_messages(MESSAGES_OF_BEN))},
        {"before_model_request", "for_run", "get_serialization_name"},
    ),
    "Pydantic AI's tools": (
        lambda **options: StrandlineToolset(Memory.from_defaults("anns", user_id="ann", **options)),
        {
            "call_tool": (
                call_toolset("add_memory", text="Ann sails."),
                lambda of: of.memory.call_tool("add_memory", {"text": "Ben sails."}),
            )
        },
        {"get_tools", "id"},
    ),
}


@pytest.mark.parametrize(
    ("adapter", "method"), [(adapter, method) for adapter, case in SESSIONS.items() for method in case[1]]
)
def test_what_adapters_of_sessions_change(
    library: Library, database_url: str, adapter: str, method: str
) -> None:
    make, methods, _reads = SESSIONS[adapter]
    options = {**library.options, "memory_blocks": []}
    Memory.from_defaults("anns", user_id="ann", **options).put_messages([HELLO, ANSWER])
    call, library_call = methods[method]
    check(make(**options), call, library, library_call)


STORE: dict[str, tuple[Call, list[tuple[str, int]]]] = {
    "put": (lambda s: s.put(("notes",), "boat", {"text": "Petrel"}), [("items.put", 1)]),
    "aput": (lambda s: s.aput(("notes",), "boat", {"text": "Petrel"}), [("items.put", 1)]),
    "delete": (lambda s: s.delete(("notes",), "tea"), [("items.delete", 1)]),
    "adelete": (lambda s: s.adelete(("notes",), "tea"), [("items.delete", 1)]),
}


@pytest.mark.parametrize("name", STORE)
def test_what_langgraphs_store_changes(library: Library, name: str) -> None:
    call, acts = STORE[name]
    store = StrandlineStore(**library.options)
    store.put(("notes",), "tea", {"text": "green"})
    before = len(library.changes())
    assert_refused(call, store)
    assert [item.key for item in store.search(("notes",))] == ["tea"]
    assert attempts_at(call, store) == [kind for kind, _count in acts]
    assert [(row[0], row[4]) for row in library.changes()[before:]] == acts


def test_every_public_method_is_named() -> None:
    """A method that is added to an adapter is in a table above, or among its reads."""
    named = {
        StrandlineMemoryManager: {name.split()[0] for name in MANAGER} | MANAGER_READS | {"clear"},
        Memories: {*OVERLAY, *OVERLAY_READS},
        AsyncMemories: {*OVERLAY, *OVERLAY_READS},
        StrandlineSession: {*SESSIONS["Agents SDK"][1], *SESSIONS["Agents SDK"][2]},
        StrandlineContextSession: {
            *SESSIONS["Agents SDK, by context"][1],
            *SESSIONS["Agents SDK, by context"][2],
        },
        StrandlineHistory: {*SESSIONS["LangChain"][1], *SESSIONS["LangChain"][2]},
        StrandlineMemory: {*SESSIONS["LlamaIndex"][1], *SESSIONS["LlamaIndex"][2]},
        Capability: {*SESSIONS["Pydantic AI"][1], *SESSIONS["Pydantic AI"][2]},
        StrandlineToolset: {*SESSIONS["Pydantic AI's tools"][1], *SESSIONS["Pydantic AI's tools"][2]},
    }
    for face, names in named.items():
        assert _own_methods(face) - names == set(), face


def _own_methods(face: type) -> set[str]:
    """The public methods that our own classes define."""
    ours = [one for one in face.__mro__ if one.__module__.startswith("strandline.")]
    return {
        name
        for one in ours
        for name, member in vars(one).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, (property, classmethod)))
    }
