"""Agno 3's ``MemoryManager`` over facts: what its users know it to do, and where it differs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest

pytest.importorskip("agno.session.agent", reason="needs the extra agno")

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.db.schemas import UserMemory
from agno.memory import MemoryManager
from agno.memory.strategies import MemoryOptimizationStrategy
from agno.models.base import Model
from agno.models.message import Message as AgnoMessage

from strandline import ConfigurationError, ConflictError, InvalidMessageError
from strandline.adapters.agno import StrandlineMemoryManager, StrandlineSummaryManager, operations
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from tests.conftest import rows_of
from tests.producers.facts.test_fact_optimizing import BEES, BOTH, COFFEE, TEA, merging
from tests.support.agents.scripted_agno import UNSEEN, ScriptedModel
from tests.support.servers.model_server import ModelServer, RecordedRequest
from tests.support.workers.draining import drain_everything

T = TypeVar("T")
MakeManager = Callable[..., StrandlineMemoryManager]
Derive = Callable[[], None]
UNKNOWN = "00000000-0000-4000-8000-000000000000"
OWN_ID = "3f0c0f2e-6a0d-4f52-9a39-c6b2f1a4d901"


@pytest.fixture
def make_manager(
    database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeManager]:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    made: list[StrandlineMemoryManager] = []

    def make(**options: Any) -> StrandlineMemoryManager:
        made.append(StrandlineMemoryManager(database_url=database_url, **options))
        return made[-1]

    yield make
    for manager in made:
        manager.close()


@pytest.fixture
def manager(make_manager: MakeManager) -> StrandlineMemoryManager:
    return make_manager(wait=None)


@pytest.fixture
def derive(database: Database, database_url: str, make_manager: MakeManager) -> Derive:
    def derive_now() -> None:
        settings: Settings = load_settings(database_url=database_url, embedding_backend="local")
        drain_everything(database, database_url, settings, (EXTRACT_STAGE, MERGE_STAGE))

    return derive_now


def await_(manager: StrandlineMemoryManager, call: Coroutine[Any, Any, T]) -> T:
    async def whole() -> T:
        try:
            return await call
        finally:
            await manager.aclose()

    return asyncio.run(whole())


def add(manager: MemoryManager, user: str, *texts: str) -> list[str]:
    return [str(manager.add_user_memory(UserMemory(text), user_id=user)) for text in texts]


def texts(memories: Sequence[UserMemory] | None) -> list[str]:
    return [memory.memory for memory in memories or ()]


# What it is made with.


def test_it_is_a_manager_of_agno_and_takes_a_model_as_one(make_manager: MakeManager) -> None:
    plain = make_manager()
    assert isinstance(plain, MemoryManager)
    assert plain.model is None and plain.db is None and plain.debug_mode is False
    model = ScriptedModel()
    named = make_manager(model=model, id="memories", name="Memories", debug_mode=True)
    assert (named.model, named.id, named.name, named.debug_mode) == (model, "memories", "Memories", True)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ({"db": InMemoryDb()}, "database_url="),
        ({"memory_capture_instructions": "Only academic facts."}, "set_capture"),
        ({"additional_instructions": "No names."}, "set_capture"),
        ({"system_message": "You are …"}, "set_capture"),
        ({"delete_memories": True}, "set_capture"),
        ({"clear_memories": True}, "clear_user_memories"),
        ({"max_memoris": 3}, "max_memoris"),
        ({"token_limit": -1}, "token_limit"),
    ],
)
def test_what_it_does_not_take_is_refused_with_what_to_do(option: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        StrandlineMemoryManager(**option)


def test_names_and_numbers_are_checked_when_it_is_made() -> None:
    wrong: Any
    with pytest.raises(InvalidMessageError):
        StrandlineMemoryManager(namespace="")
    for wrong in ({"max_memories": -1}, {"max_memories": 1_001}):
        with pytest.raises(ConfigurationError):
            StrandlineMemoryManager(**wrong)
    for wrong in ({"wait": "soon"}, {"token_limit": -1}):
        with pytest.raises(ConfigurationError):
            StrandlineMemoryManager(**wrong)
        with pytest.raises(ConfigurationError):
            StrandlineSummaryManager(**wrong)


# Reading.


def test_memories_are_a_users_own(manager: StrandlineMemoryManager) -> None:
    (cats, _work) = add(manager, "ana", "Ana likes cats.", "Ana works at Acme.")
    (dark,) = add(manager, "rui", "Rui prefers dark mode.")
    assert texts(manager.get_user_memories("ana")) == ["Ana likes cats.", "Ana works at Acme."]
    assert texts(manager.get_user_memories("rui")) == ["Rui prefers dark mode."]
    assert manager.get_user_memories("nobody") == []
    found = manager.get_user_memory(cats, user_id="ana")
    assert found is not None and (found.memory_id, found.memory) == (cats, "Ana likes cats.")
    assert manager.get_user_memory(dark, user_id="ana") is None
    assert manager.get_user_memory(UNKNOWN, user_id="ana") is None
    assert manager.get_user_memory("no-uuid", user_id="ana") is None


def test_without_a_user_the_user_is_default(manager: StrandlineMemoryManager) -> None:
    assert manager.get_user_memories() == []
    memory = UserMemory("Somebody sails.")
    memory_id = manager.add_user_memory(memory)
    assert memory.user_id == "default" and texts(manager.get_user_memories("default")) == ["Somebody sails."]
    assert memory_id is not None and manager.get_user_memory(memory_id) is not None
    manager.replace_user_memory(memory_id, UserMemory("Somebody rows."))
    assert texts(manager.get_user_memories()) == ["Somebody rows."]
    manager.delete_user_memory(memory_id)
    add(manager, "default", "Somebody swims.")
    manager.clear_user_memories()
    assert manager.get_user_memories() == []


def test_all_of_a_namespace_are_read_by_user(
    manager: StrandlineMemoryManager, make_manager: MakeManager
) -> None:
    for user in ("ana", "rui"):
        manager.create_user_memories("I sail.", user_id=user)  # begins what the directory lists
        add(manager, user, f"{user} sails.", f"{user} swims.")
    add(make_manager(namespace="other"), "ana", "Another Ana rows.")
    by_user = manager.read_from_db()
    assert {user: texts(memories) for user, memories in by_user.items()} == {
        "ana": ["ana sails.", "ana swims."],
        "rui": ["rui sails.", "rui swims."],
    }
    assert list(manager.read_from_db(user_id="rui")) == ["rui"]


def test_the_async_twins_read_the_same(manager: StrandlineMemoryManager) -> None:
    add(manager, "ana", "Ana likes cats.")
    add(manager, "default", "Somebody sails.")

    async def whole() -> tuple[Any, ...]:
        return (
            texts((await manager.aread_from_db("ana"))["ana"]),
            await manager.aread_from_db(),
            texts(await manager.aget_user_memories("ana")),
            texts(await manager.aget_user_memories()),
        )

    ana, listed, again, default = await_(manager, whole())
    assert ana == again == ["Ana likes cats."] and default == ["Somebody sails."]
    assert {user: texts(memories) for user, memories in listed.items()} == {
        "ana": ["Ana likes cats."],
        "default": ["Somebody sails."],
    }


def test_more_memories_than_fit_a_page_are_all_given(
    manager: StrandlineMemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "MAX_MEMORIES_PER_READ", 3)
    add(manager, "ana", *(f"Ana knows knot {number}." for number in range(8)))
    assert texts(manager.get_user_memories("ana")) == [f"Ana knows knot {number}." for number in range(8)]


# Adding and replacing.


def test_an_id_of_the_caller_is_kept(manager: StrandlineMemoryManager) -> None:
    assert manager.add_user_memory(UserMemory("Ana sails.", memory_id=OWN_ID), user_id="ana") == OWN_ID
    assert [one.memory_id for one in manager.get_user_memories("ana")] == [OWN_ID]
    assert manager.add_user_memory(UserMemory("Ana swims.", memory_id="mem-1"), user_id="ana") == "mem-1"
    found = manager.get_user_memory("mem-1", user_id="ana")
    assert found is not None and (found.memory_id, found.memory) == ("mem-1", "Ana swims.")
    assert manager.get_user_memory("mem-1", user_id="rui") is None
    manager.delete_user_memory("mem-1", user_id="ana")
    assert texts(manager.get_user_memories("ana")) == ["Ana sails."]
    assert manager.add_user_memory(UserMemory("Ana dives.", memory_id="mem-1"), user_id="ana") == "mem-1"


def test_an_id_of_another_user_is_another_memory(manager: StrandlineMemoryManager) -> None:
    manager.add_user_memory(UserMemory("Ana sails.", memory_id=OWN_ID), user_id="ana")
    manager.add_user_memory(UserMemory("Rui rows.", memory_id=OWN_ID), user_id="rui")
    manager.replace_user_memory(OWN_ID, UserMemory("Rui swims."), user_id="rui")
    assert texts(manager.get_user_memories("ana")) == ["Ana sails."]
    manager.delete_user_memory(OWN_ID, user_id="rui")
    assert texts(manager.get_user_memories("ana")) == ["Ana sails."]


def test_a_memory_without_an_id_gets_one(manager: StrandlineMemoryManager) -> None:
    memory = UserMemory("Ana sails.")
    memory_id = manager.add_user_memory(memory, user_id="ana")
    assert memory_id == memory.memory_id == manager.get_user_memories("ana")[0].memory_id
    assert memory.updated_at is not None and memory.updated_at > 0


def test_the_same_words_again_are_the_same_memory(manager: StrandlineMemoryManager) -> None:
    first = manager.add_user_memory(UserMemory("Ana sails."), user_id="ana")
    memory = UserMemory("Ana sails.", memory_id=OWN_ID)
    assert manager.add_user_memory(memory, user_id="ana") == first == memory.memory_id
    assert len(manager.get_user_memories("ana")) == 1


def test_fields_are_kept_and_a_replacement_keeps_when_it_was_made(manager: StrandlineMemoryManager) -> None:
    memory = UserMemory(
        "Ana drinks coffee.",
        topics=["Drinks", "work"],
        input="I need a coffee.",
        feedback="right",
        agent_id="sailor",
        team_id="harbour",
    )
    memory_id = str(manager.add_user_memory(memory, user_id="ana"))
    (first,) = manager.get_user_memories("ana")
    assert first.topics == ["drinks", "work"]
    assert (first.input, first.feedback, first.user_id) == ("I need a coffee.", "right", "ana")
    assert (first.agent_id, first.team_id) == ("sailor", "harbour")
    assert first.created_at is not None and first.updated_at is not None
    assert UserMemory.from_dict(first.to_dict()) == first
    replacement = UserMemory("Ana drinks tea.", topics=["drinks"], feedback="better")
    assert manager.replace_user_memory(memory_id, replacement, user_id="ana") == memory_id
    (second,) = manager.get_user_memories("ana")
    assert (second.memory, second.topics, second.feedback) == ("Ana drinks tea.", ["drinks"], "better")
    assert second.created_at == first.created_at
    assert second.updated_at is not None and second.updated_at >= first.updated_at
    assert (second.input, second.agent_id) == ("I need a coffee.", "sailor"), "where it came from stays"
    assert [one.operation for one in manager.facts("ana").list()[0].revisions][:1] == ["add"]


def test_a_replacement_of_what_is_not_there_is_added(manager: StrandlineMemoryManager) -> None:
    assert manager.replace_user_memory(OWN_ID, UserMemory("Ana sails."), user_id="ana") == OWN_ID
    assert texts(manager.get_user_memories("ana")) == ["Ana sails."]


@pytest.mark.parametrize(
    "memory",
    [
        UserMemory(""),
        UserMemory("x" * 1_001),
        UserMemory("Ana\0"),
        UserMemory("Ana sails.", topics=[""]),
        UserMemory("Ana sails.", memory_id=7),  # type: ignore[arg-type]
        UserMemory("Ana sails.", input="x" * 8_001),
    ],
)
def test_what_cannot_be_stored_is_refused_and_changes_nothing(
    manager: StrandlineMemoryManager, memory: UserMemory
) -> None:
    with pytest.raises(InvalidMessageError):
        manager.add_user_memory(memory, user_id="ana")
    assert manager.get_user_memories("ana") == []


# Deleting and clearing.


def test_one_is_deleted_for_good(manager: StrandlineMemoryManager, derive: Derive) -> None:
    manager.create_user_memories("I keep bees.", user_id="ana")
    derive()
    (bees,) = manager.get_user_memories("ana")
    manager.delete_user_memory(str(bees.memory_id), user_id="rui")
    assert len(manager.get_user_memories("ana")) == 1
    manager.delete_user_memory(str(bees.memory_id), user_id="ana")
    manager.delete_user_memory(UNKNOWN, user_id="ana")
    assert manager.get_user_memories("ana") == []
    assert manager.get_user_memory(str(bees.memory_id), user_id="ana") is None


def test_clearing_concerns_one_user_or_one_namespace(
    manager: StrandlineMemoryManager, make_manager: MakeManager
) -> None:
    other = make_manager(namespace="other")
    for user in ("ana", "rui", "eva"):
        add(manager, user, f"{user} sails.")
    add(other, "ana", "Another Ana rows.")
    manager.clear_user_memories("ana")
    manager.clear_user_memories("nobody")
    assert manager.get_user_memories("ana") == [] and len(manager.get_user_memories("rui")) == 1
    manager.clear()
    assert manager.get_user_memories("rui") == manager.get_user_memories("eva") == []
    assert texts(other.get_user_memories("ana")) == ["Another Ana rows."]
    await_(other, other.aclear_user_memories("ana"))
    assert other.get_user_memories("ana") == []


# Searching.


def test_a_search_gives_the_newest_or_the_oldest_in_order(manager: StrandlineMemoryManager) -> None:
    for number in range(1, 6):
        add(manager, "ana", f"Memory {number}.")
    search = manager.search_user_memories
    assert texts(search(user_id="ana")) == [f"Memory {n}." for n in range(1, 6)]
    assert texts(search(user_id="ana", limit=2)) == ["Memory 4.", "Memory 5."]
    assert texts(search(user_id="ana", limit=2, retrieval_method="first_n")) == ["Memory 1.", "Memory 2."]
    assert texts(search(user_id="ana", retrieval_method="first_n"))[0] == "Memory 1."
    assert search(user_id="ana", limit=0) == search(user_id="rui") == search() == []


def test_a_model_chooses_and_ids_that_do_not_exist_are_ignored(
    manager: StrandlineMemoryManager, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_FACTS_MODEL", "test-model")
    add(manager, "ana", "Ana sails.", "Ana bakes bread.")

    def respond(request: RecordedRequest) -> str:
        shown = str(request.body["messages"][-1]["content"])
        assert "Ana bakes bread." in shown and "What does Ana bake?" in shown
        return json.dumps({"facts": [99, 1]})

    model_server.behave(responder=respond)
    chosen = manager.search_user_memories("What does Ana bake?", retrieval_method="agentic", user_id="ana")
    assert len(chosen) == 1
    wrong: Any
    for wrong in ("agentic", "best"):
        with pytest.raises(InvalidMessageError):
            manager.search_user_memories(user_id="ana", retrieval_method=wrong)


# Changes by workers.


def test_memories_are_made_of_messages(manager: StrandlineMemoryManager, derive: Derive) -> None:
    assert "in the background" in manager.create_user_memories("My name is Ana.", user_id="ana")
    talk = [
        AgnoMessage(role="system", content="Be short."),
        AgnoMessage(role="user", content="I keep bees."),
        AgnoMessage(role="assistant", content="Nice."),
    ]
    for _again in range(2):
        manager.create_user_memories(messages=talk, user_id="ana")
    derive()
    assert set(texts(manager.get_user_memories("ana"))) == {"My name is Ana.", "I keep bees."}
    assert manager.get_user_memories("rui") == []
    wrong: Any
    for wrong in (None, [], "I sail.", talk[:1]):
        with pytest.raises(ValueError, match="messages"):
            manager.create_user_memories(messages=wrong, user_id="ana")


def test_with_a_wait_what_came_of_it_is_said(make_manager: MakeManager) -> None:
    manager = make_manager(wait=60, consume="background")
    assert manager.create_user_memories("I keep bees.", user_id="ana") == "Added: I keep bees."
    assert manager.create_user_memories("Hm", user_id="rui") is not None
    said = await_(manager, manager.acreate_user_memories("I sail a boat.", user_id="ana"))
    assert said == "Added: I sail a boat."


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_agents_own_calls_make_memories_only_where_no_hook_keeps_its_runs(
    manager: StrandlineMemoryManager, database_url: str, is_kept: bool
) -> None:
    hooks: dict[str, Any] = {"pre_hooks": [manager.recall], "post_hooks": [manager.keep]} if is_kept else {}
    agent = Agent(model=ScriptedModel(), memory_manager=manager, update_memory_on_run=True, **hooks, **UNSEEN)
    for said in ("I keep bees.", "I sail."):
        agent.run(said, user_id="ana", session_id="s")
    kinds = "SELECT kind, count(*) FROM strandline.session_owner GROUP BY kind"
    assert rows_of(database_url, kinds) == [("chat", 1) if is_kept else ("source", 2)]


def test_a_task_changes_the_memories_of_this_user_alone(
    make_manager: MakeManager, model_server: ModelServer, derive: Derive
) -> None:
    manager = make_manager(wait=None)
    for user in ("ana", "rui"):
        add(manager, user, "My address is 5 Elm Street.", "I keep bees.")

    def respond(request: RecordedRequest) -> str | None:
        shown = str(request.body["messages"][-1]["content"])
        if "<instruction>\n" not in shown:
            return None
        rows = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
        (number,) = [row["n"] for row in rows if "address" in row["text"]]
        return json.dumps({"operations": [{"op": "delete", "fact": number}]})

    model_server.behave(responder=respond)
    assert "in the background" in manager.update_memory_task("Forget my address.", user_id="ana")
    derive()
    assert texts(manager.get_user_memories("ana")) == ["I keep bees."]
    assert len(manager.get_user_memories("rui")) == 2


# Optimizing.


@pytest.fixture
def tastes(
    manager: StrandlineMemoryManager, derive: Derive, model_server: ModelServer
) -> StrandlineMemoryManager:
    """A manager with three memories that workers made, and a model that says two of them as one."""
    manager.create_user_memories(
        messages=[AgnoMessage(role="user", content=said) for said in (TEA, COFFEE, BEES)], user_id="ana"
    )
    derive()
    merging(model_server)
    return manager


def test_an_optimization_is_shown_and_then_applied_whole(tastes: StrandlineMemoryManager) -> None:
    preview = tastes.optimize_memories("ana", apply=False)
    assert set(texts(preview)) == {BEES, BOTH} and len(tastes.get_user_memories("ana")) == 3
    applied = tastes.optimize_memories("ana")
    assert set(texts(applied)) == {BEES, BOTH} == set(texts(tastes.get_user_memories("ana")))
    assert all(memory.user_id == "ana" and memory.memory_id for memory in applied)


def test_the_async_twin_optimizes_as_well(tastes: StrandlineMemoryManager) -> None:
    async def whole() -> tuple[list[UserMemory], ...]:
        return (
            await tastes.aoptimize_memories("ana", apply=False),
            await tastes.aoptimize_memories("ana"),
            await tastes.aoptimize_memories("nobody"),
        )

    preview, applied, nothing = await_(tastes, whole())
    assert set(texts(preview)) == set(texts(applied)) == {BEES, BOTH}
    assert nothing == []


def test_nothing_to_optimize_asks_no_model(
    manager: StrandlineMemoryManager, model_server: ModelServer
) -> None:
    assert manager.optimize_memories("ana") == manager.optimize_memories() == []
    assert model_server.received == 0


class Shortest(MemoryOptimizationStrategy):
    """Keeps the shortest memory, and adds one in words of its own."""

    def optimize(self, memories: list[UserMemory], model: Model) -> list[UserMemory]:
        assert isinstance(model, ScriptedModel)
        return [min(memories, key=lambda memory: len(memory.memory)), UserMemory("Ana drinks.")]

    async def aoptimize(self, memories: list[UserMemory], model: Model) -> list[UserMemory]:
        return self.optimize(memories, model)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_strategy_of_ones_own(make_manager: MakeManager, is_async: bool) -> None:
    manager = make_manager(model=ScriptedModel())
    add(manager, "ana", TEA, COFFEE, BEES)
    add(manager, "rui", TEA)
    assert set(texts(manager.optimize_memories("ana", Shortest(), apply=False))) == {BEES, "Ana drinks."}
    assert len(manager.get_user_memories("ana")) == 3
    if is_async:
        applied = await_(manager, manager.aoptimize_memories("ana", Shortest()))
    else:
        applied = manager.optimize_memories("ana", Shortest())
    assert set(texts(applied)) == {BEES, "Ana drinks."} == set(texts(manager.get_user_memories("ana")))
    assert texts(manager.get_user_memories("rui")) == [TEA]


@pytest.mark.parametrize("act", ["replaced", "deleted", "added"])
def test_a_strategy_overwrites_nothing_that_a_person_did_while_it_worked(
    make_manager: MakeManager, act: str
) -> None:
    manager = make_manager(model=ScriptedModel())
    add(manager, "ana", TEA, COFFEE)
    facts = manager.facts("ana")

    class Slow(Shortest):
        def optimize(self, memories: list[UserMemory], model: Model) -> list[UserMemory]:
            fact = next(fact for fact in facts.list() if fact.text == TEA)
            if act == "replaced":
                facts.replace(fact.fact_id, BEES, actor="ana")
            elif act == "deleted":
                facts.delete(fact.fact_id, actor="ana")
            else:
                facts.add(BEES, actor="ana")
            memories[0].memory = "Ana drinks."
            return [memories[0]]

    if act == "added":
        assert set(texts(manager.optimize_memories("ana", Slow()))) == {BEES, "Ana drinks."}
        return
    with pytest.raises(ConflictError, match="nothing was changed"):
        manager.optimize_memories("ana", Slow())
    assert {fact.text for fact in facts.list()} == ({BEES, COFFEE} if act == "replaced" else {COFFEE})


def test_a_strategy_whose_result_cannot_be_stored_loses_nothing(make_manager: MakeManager) -> None:
    manager = make_manager(model=ScriptedModel())
    add(manager, "ana", TEA, COFFEE)

    class Wrong(Shortest):
        def optimize(self, memories: list[UserMemory], model: Model) -> list[UserMemory]:
            return [UserMemory("Ana drinks."), UserMemory("")]

    with pytest.raises(InvalidMessageError):
        manager.optimize_memories("ana", Wrong())
    assert set(texts(manager.get_user_memories("ana"))) == {TEA, COFFEE}
