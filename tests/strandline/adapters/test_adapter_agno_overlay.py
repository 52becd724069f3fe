"""Agno 3's own databases with Strandline's memories: filters, pages, users, and everything else as it was."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agno.session.agent", reason="needs the extra agno")

from agno.agent import Agent
from agno.db.base import AsyncBaseDb, BaseDb
from agno.db.in_memory import InMemoryDb
from agno.db.postgres import AsyncPostgresDb
from agno.db.schemas import UserMemory
from agno.db.sqlite import SqliteDb
from agno.memory import MemoryManager

from strandline import ConfigurationError, InvalidMessageError
from strandline.adapters.agno import StrandlineMemoryManager, operations
from tests.conftest import rows_of
from tests.support.agents.scripted_agno import UNSEEN, ScriptedModel, call, text

MEMORY_METHODS = {
    "clear_memories",
    "delete_user_memories",
    "delete_user_memory",
    "get_all_memory_topics",
    "get_user_memories",
    "get_user_memory",
    "get_user_memory_stats",
    "upsert_user_memory",
    "upsert_memories",
}


@pytest.fixture
def manager(database_url: str) -> Iterator[StrandlineMemoryManager]:
    manager = StrandlineMemoryManager(database_url=database_url, wait=None)
    yield manager
    manager.close()


@pytest.fixture
def db(manager: StrandlineMemoryManager, tmp_path: Path) -> SqliteDb:
    return manager.overlay(SqliteDb(db_file=str(tmp_path / "agno.db")))


def insert(db: BaseDb, user: str, memory: str, **fields: Any) -> UserMemory:
    stored = db.upsert_user_memory(UserMemory(memory, user_id=user, **fields))
    assert isinstance(stored, UserMemory)
    return stored


def texts(memories: Any) -> list[str]:
    return [memory.memory for memory in memories]


def begin_conversation(manager: StrandlineMemoryManager, *users: str) -> None:
    """The directory lists users that have one."""
    for user in users:
        manager.create_user_memories("I sail.", user_id=user)


# What it is.


def test_it_is_a_database_of_the_same_class_and_shares_all_else(
    manager: StrandlineMemoryManager, tmp_path: Path
) -> None:
    own = SqliteDb(db_file=str(tmp_path / "agno.db"))
    overlaid = manager.overlay(own)
    assert isinstance(overlaid, SqliteDb) and isinstance(overlaid, BaseDb)
    assert (overlaid.id, overlaid.db_engine) == (own.id, own.db_engine)
    agent = Agent(model=ScriptedModel(), db=overlaid, **UNSEEN)
    agent.run("Hello?", user_id="ana", session_id="s")
    session = Agent(model=ScriptedModel(), db=own, **UNSEEN).get_session("s")
    assert session is not None and len(session.runs or ()) == 1, "both are one database"
    insert(overlaid, "ana", "Ana sails.")
    assert own.get_user_memories(user_id="ana") == [], "but for memories"


def test_a_database_whose_attributes_are_set_anew_stays_one(manager: StrandlineMemoryManager) -> None:
    own = InMemoryDb()
    overlaid = manager.overlay(own)
    own.delete_sessions(["none"])
    own.delete_user_memories(["none"])  # sets its list anew
    Agent(model=ScriptedModel(), db=overlaid, **UNSEEN).run("Hello?", user_id="ana", session_id="s")
    assert Agent(model=ScriptedModel(), db=own, **UNSEEN).get_session("s") is not None


@pytest.mark.parametrize("base", [BaseDb, AsyncBaseDb])
def test_it_has_each_method_for_memories_that_a_database_of_agno_has(base: type[Any]) -> None:
    named = {name for name in vars(base) if "memor" in name and not name.startswith("_")}
    assert named <= MEMORY_METHODS | {"replace_user_memories"}, "Agno has a new one"


def test_what_is_no_database_is_refused(manager: StrandlineMemoryManager) -> None:
    with pytest.raises(ConfigurationError, match="SqliteDb"):
        manager.overlay({})  # type: ignore[type-var]


# Adding, reading, deleting.


def test_a_memory_is_inserted_and_updated(db: SqliteDb) -> None:
    first = insert(
        db,
        "ana",
        "Ana drinks coffee.",
        memory_id="mem-1",
        topics=["drinks", "work"],
        input="Coffee, please.",
        feedback="right",
        agent_id="sailor",
        team_id="harbour",
    )
    assert (first.memory_id, first.memory, first.topics) == (
        "mem-1",
        "Ana drinks coffee.",
        ["drinks", "work"],
    )
    assert (first.input, first.feedback, first.agent_id, first.team_id, first.user_id) == (
        "Coffee, please.",
        "right",
        "sailor",
        "harbour",
        "ana",
    )
    second = insert(db, "ana", "Ana drinks tea.", memory_id="mem-1", topics=["drinks"])
    assert (second.memory, second.topics, second.created_at) == (
        "Ana drinks tea.",
        ["drinks"],
        first.created_at,
    )
    assert db.get_user_memory("mem-1", user_id="ana") == second
    assert texts(db.get_user_memories(user_id="ana")) == ["Ana drinks tea."]


@pytest.fixture(params=["Asia/Kolkata", "America/Los_Angeles", "Australia/Eucla"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The zone of the host's clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def test_times_are_seconds_of_the_moment_it_was_stored_whatever_the_zone(db: SqliteDb, zone: str) -> None:
    """A caller's times are taken in each form that Agno knows, and not stored."""
    began = int(time.time())
    times: list[Any] = [1_700_000_000, "2025-01-02T03:04:05+00:00", datetime(2025, 1, 2, tzinfo=UTC)]
    for n, moment in enumerate(times):
        given = UserMemory.from_dict(
            {"memory_id": f"m{n}", "memory": f"Ana sails {n}.", "created_at": moment, "updated_at": moment}
        )
        given.user_id = "ana"
        stored: Any = db.upsert_user_memory(given)
        assert began - 5 <= stored.created_at == stored.updated_at <= time.time() + 5
        row: Any = db.get_user_memory(f"m{n}", deserialize=False, user_id="ana")
        assert (row["created_at"], row["updated_at"]) == (stored.created_at, stored.updated_at)
        assert UserMemory.from_dict(row) == stored


def test_what_is_no_text_is_refused(db: SqliteDb) -> None:
    said: Any = {"content": "Ana sails.", "importance": "high"}
    with pytest.raises(InvalidMessageError):
        db.upsert_user_memory(UserMemory(said, user_id="ana"))
    assert db.get_user_memories(user_id="ana") == []


def test_rows_have_what_agnos_service_reads(db: SqliteDb, manager: StrandlineMemoryManager) -> None:
    begin_conversation(manager, "ana")
    row = db.upsert_user_memory(UserMemory("Ana sails.", user_id="ana", topics=["sea"]), deserialize=False)
    assert isinstance(row, dict)
    assert (row["memory"], row["topics"], row["user_id"]) == ("Ana sails.", ["sea"], "ana")
    assert isinstance(row["updated_at"], int) and {"memory_id", "agent_id", "team_id"} <= set(row)
    assert db.get_user_memory(row["memory_id"], deserialize=False, user_id="ana") == row
    assert db.get_user_memories(user_id="ana", deserialize=False) == ([row], 1)
    stats, total = db.get_user_memory_stats()
    last = row["updated_at"]
    assert (stats, total) == ([{"user_id": "ana", "total_memories": 1, "last_memory_updated_at": last}], 1)


def test_many_are_inserted_and_updated_at_once(db: SqliteDb) -> None:
    def memories(words: str) -> list[UserMemory]:
        return [
            UserMemory(f"User {n} {words}.", memory_id=f"bulk-{n}", user_id=f"user-{n}", topics=[f"t{n}"])
            for n in range(5)
        ]

    assert texts(db.upsert_memories(memories("sails"))) == [f"User {n} sails." for n in range(5)]
    stored = db.upsert_memories(memories("rows"), deserialize=False)
    assert [(row["memory_id"], row["memory"]) for row in stored] == [  # type: ignore[index]
        (f"bulk-{n}", f"User {n} rows.") for n in range(5)
    ]
    assert db.upsert_memories([]) == []


def test_deletions_reach_only_the_users_own(db: SqliteDb, manager: StrandlineMemoryManager) -> None:
    for n in range(3):
        insert(db, "ana", f"Ana sails {n}.", memory_id=f"a{n}")
        insert(db, "rui", f"Rui rows {n}.", memory_id=f"r{n}")
    db.delete_user_memory("a0", user_id="rui")
    db.delete_user_memories(["a0", "a1"], user_id="rui")
    db.delete_user_memories([], user_id="ana")
    assert len(db.get_user_memories(user_id="ana")) == 3
    db.delete_user_memory("a0", user_id="ana")
    db.delete_user_memories(["a1", "r0", "none"], user_id="ana")
    assert texts(db.get_user_memories(user_id="ana")) == ["Ana sails 2."]
    assert len(db.get_user_memories(user_id="rui")) == 3
    for change in (
        lambda: db.delete_user_memory("a2"),
        lambda: db.delete_user_memories(["a2"]),
        lambda: db.upsert_user_memory(UserMemory("Whose?")),
    ):
        with pytest.raises(InvalidMessageError, match="user_id"):
            change()
    assert len(db.get_user_memories(user_id="ana")) == 1


def test_a_read_by_id_keeps_to_the_user_if_one_is_named(
    db: SqliteDb, manager: StrandlineMemoryManager
) -> None:
    begin_conversation(manager, "ana", "rui")
    memory_id = str(insert(db, "ana", "Ana sails.").memory_id)
    assert db.get_user_memory(memory_id, user_id="rui") is None
    for found in (db.get_user_memory(memory_id, user_id="ana"), db.get_user_memory(memory_id)):
        assert isinstance(found, UserMemory) and found.user_id == "ana"


def test_clearing_keeps_to_the_namespace(db: SqliteDb, database_url: str) -> None:
    other = StrandlineMemoryManager(database_url=database_url, namespace="other")
    others = other.overlay(InMemoryDb())
    for one in (db, others):
        insert(one, "ana", "Ana sails.")
    db.clear_memories()
    assert db.get_user_memories(user_id="ana") == []
    assert texts(others.get_user_memories(user_id="ana")) == ["Ana sails."]
    other.close()


# Filters, pages and order.


def fill(db: BaseDb) -> None:
    for n in range(6):
        insert(
            db,
            "ana",
            f"Ana keeps note {n}.",
            memory_id=f"n{n}",
            topics=[f"topic-{n % 3}", "notes"],
            agent_id=f"agent-{n % 2}",
            team_id="harbour" if n < 2 else "market",
        )


# Filters, and the numbers of the notes that they give.
FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 1, 2, 3, 4, 5]),
    ({"agent_id": "agent-1"}, [1, 3, 5]),
    ({"team_id": "harbour"}, [0, 1]),
    ({"agent_id": "agent-0", "team_id": "market"}, [2, 4]),
    ({"topics": ["topic-1"]}, [1, 4]),
    ({"topics": ["topic-1", "topic-2"]}, [1, 2, 4, 5]),
    ({"topics": ["none"]}, []),
    ({"search_content": "NOTE 3"}, [3]),
    ({"search_content": "note", "agent_id": "agent-0"}, [0, 2, 4]),
    ({"search_content": "boat"}, []),
    ({"limit": 2}, [0, 1]),
    ({"limit": 2, "page": 2}, [2, 3]),
    ({"limit": 4, "page": 2}, [4, 5]),
    ({"limit": 4, "page": 3}, []),
    ({"limit": 0}, []),
    ({"sort_by": "memory", "sort_order": "desc"}, [5, 4, 3, 2, 1, 0]),
    ({"sort_by": "memory", "sort_order": "asc", "limit": 2, "page": 3}, [4, 5]),
    ({"sort_by": "agent_id", "sort_order": "asc", "limit": 3}, [0, 2, 4]),
    ({"sort_by": "no_such_field"}, [0, 1, 2, 3, 4, 5]),
]


def test_memories_are_filtered_and_paged(db: SqliteDb) -> None:
    fill(db)
    for filters, numbers in FILTERS:
        given = texts(db.get_user_memories(user_id="ana", **filters))
        assert given == [f"Ana keeps note {n}." for n in numbers], filters
        everything = {key: value for key, value in filters.items() if key not in ("limit", "page")}
        page: Any = db.get_user_memories(user_id="ana", deserialize=False, **filters)
        total = len(db.get_user_memories(user_id="ana", **everything))
        assert (len(page[0]), page[1]) == (len(numbers), total), filters


def test_the_last_changed_come_first_if_asked_for(db: SqliteDb, database_url: str) -> None:
    fill(db)
    earlier = "UPDATE strandline.fact SET updated_at = updated_at - interval '1 hour' WHERE text LIKE %s"
    rows_of(database_url, f"{earlier} RETURNING fact_id", "%note 5.")
    for direction, place in (("desc", -1), ("asc", 0), (None, -1)):
        ordered = db.get_user_memories(user_id="ana", sort_by="updated_at", sort_order=direction)
        assert texts(ordered)[place] == "Ana keeps note 5."


@pytest.mark.parametrize("wrong", [{"page": 2}, {"limit": 3, "page": 0}, {"limit": -1}, {"limit": 1_001}])
def test_pages_that_cannot_be_are_refused(db: SqliteDb, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"limit|page"):
        db.get_user_memories(user_id="ana", **wrong)
    with pytest.raises(ValueError, match=r"limit|page"):
        db.get_user_memory_stats(**wrong)


def test_topics_and_figures_of_one_user_and_of_all(db: SqliteDb, manager: StrandlineMemoryManager) -> None:
    begin_conversation(manager, "ana", "eva")  # and none of rui
    for user, topics in (("ana", ["sea", "tea"]), ("ana", ["sea"]), ("rui", ["music"])):
        insert(db, user, f"{user} likes {' and '.join(topics)}.", topics=topics)
    assert set(db.get_all_memory_topics()) == {"sea", "tea", "music"}
    assert set(db.get_all_memory_topics(user_id="ana")) == {"sea", "tea"}
    stats, total = db.get_user_memory_stats()
    assert total == 2 and {row["user_id"]: row["total_memories"] for row in stats} == {"ana": 2, "rui": 1}
    assert all(row["last_memory_updated_at"] > 0 for row in stats)
    assert db.get_user_memory_stats(user_id="rui")[1] == 1
    assert db.get_user_memory_stats(user_id="eva") == ([], 0)
    first, total = db.get_user_memory_stats(limit=1, page=1)
    second, _total = db.get_user_memory_stats(limit=1, page=2)
    assert total == 2 and {first[0]["user_id"], second[0]["user_id"]} == {"ana", "rui"}
    assert len(db.get_user_memories()) == 3 and texts(db.get_user_memories(limit=1, page=4)) == []
    assert texts(db.get_user_memories(topics=["music"])) == ["rui likes music."]
    assert texts(db.get_user_memories(search_content="MUSIC")) == ["rui likes music."]


def test_topics_of_a_user_are_not_anothers(db: SqliteDb, manager: StrandlineMemoryManager) -> None:
    begin_conversation(manager, "ana", "rui")
    insert(db, "ana", "Ana has a secret.", topics=["secrets", "of-ana"])
    insert(db, "rui", "Rui has a secret.", topics=["secrets", "of-rui"])
    assert set(db.get_all_memory_topics(user_id="ana")) == {"secrets", "of-ana"}
    assert set(db.get_all_memory_topics(user_id="rui")) == {"secrets", "of-rui"}
    assert db.get_all_memory_topics(user_id="nobody") == []


def test_figures_have_the_user_whose_memories_changed_last_first(
    db: SqliteDb, manager: StrandlineMemoryManager, database_url: str
) -> None:
    users = [f"user-{n}" for n in range(5)]
    begin_conversation(manager, *users)
    for n, user in enumerate(users):
        insert(db, user, f"{user} sails.", memory_id=f"m{n}")
        earlier = (
            "UPDATE strandline.fact SET updated_at = updated_at - %s * interval '1 hour' WHERE text = %s"
        )
        rows_of(database_url, f"{earlier} RETURNING fact_id", n, f"{user} sails.")
    pages: list[Any] = [db.get_user_memory_stats(limit=2, page=page) for page in (1, 2, 3)]
    assert [row["user_id"] for rows, _total in pages for row in rows] == users
    assert [len(rows) for rows, _total in pages] == [2, 2, 1] and {total for _rows, total in pages} == {5}


def test_a_read_of_all_users_is_bounded(
    db: SqliteDb, manager: StrandlineMemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_conversation(manager, "ana", "rui", "eva")
    monkeypatch.setattr(operations, "_USERS_PER_PAGE", 1)
    assert db.get_user_memories() == []
    monkeypatch.setattr(operations, "MAX_USERS_PER_READ", 2)
    with pytest.raises(InvalidMessageError, match="more than 2 users"):
        db.get_user_memories()


# Under Agno's own manager, and async.


def test_agnos_own_manager_and_its_model_work_on_it(db: SqliteDb) -> None:
    """Its model asks for changes by tools; ids that it makes are kept."""
    asked: list[str] = []

    def answer(messages: Any, _run: Any) -> Any:
        asked.append(messages[-1].get_content_string())
        if messages[-1].role == "tool":
            return text("Done.")
        return call("add_memory", '{"memory": "Ana keeps bees.", "topics": ["bees"]}', "c1")

    own = MemoryManager(model=ScriptedModel(answer=answer), db=db)
    own.create_user_memories("I keep bees.", user_id="ana", agent_id="sailor")
    memories: Any = db.get_user_memories(user_id="ana")
    (memory,) = memories
    assert (memory.memory, memory.topics, memory.input) == ("Ana keeps bees.", ["bees"], "I keep bees.")
    assert memory.agent_id == "sailor" and own.get_user_memories("ana") == [memory]
    assert "successfully" in asked[-1]
    own.clear_user_memories("ana")
    assert db.get_user_memories(user_id="ana") == []


@asynccontextmanager
async def async_overlay(database_url: str) -> AsyncIterator[tuple[AsyncPostgresDb, StrandlineMemoryManager]]:
    manager = StrandlineMemoryManager(database_url=database_url, wait=None)
    own = AsyncPostgresDb(db_url=database_url.replace("postgresql://", "postgresql+psycopg_async://"))
    try:
        yield manager.overlay(own), manager
    finally:
        await own.db_engine.dispose()
        await manager.aclose()


async def test_the_methods_of_an_async_database_do_the_same(database_url: str) -> None:
    async with async_overlay(database_url) as (db, manager):
        assert isinstance(db, AsyncBaseDb)
        await manager.acreate_user_memories("I sail.", user_id="ana")
        stored = await db.upsert_user_memory(
            UserMemory("Ana sails.", memory_id="m1", user_id="ana", topics=["sea"])
        )
        assert isinstance(stored, UserMemory) and stored.memory_id == "m1"
        assert await db.get_user_memory("m1", user_id="ana") == stored
        assert await db.get_user_memory("m1", user_id="rui") is None
        row = await db.get_user_memory("m1", user_id="ana", deserialize=False)
        assert isinstance(row, dict) and row["memory"] == "Ana sails."
        many: Any = db
        more = await many.upsert_memories([UserMemory("Ana swims.", memory_id="m2", user_id="ana")])
        assert texts(more) == ["Ana swims."]
        assert texts(await db.get_user_memories(user_id="ana", search_content="swim")) == ["Ana swims."]
        assert (await db.get_user_memories(limit=1, deserialize=False))[1] == 2
        assert await db.get_all_memory_topics() == ["sea"] == await db.get_all_memory_topics(user_id="ana")
        assert await db.get_all_memory_topics(user_id="nobody") == []
        pages: Any = [await db.get_user_memories(limit=1, page=n, deserialize=False) for n in (1, 2, 3)]
        assert [(len(rows), total) for rows, total in pages] == [(1, 2), (1, 2), (0, 2)]
        by_words = await db.get_user_memories(user_id="ana", sort_by="memory", sort_order="asc")
        assert texts(by_words) == ["Ana sails.", "Ana swims."]
        assert texts(await db.get_user_memories(user_id="ana", topics=["sea"])) == ["Ana sails."]
        unnamed = await db.upsert_user_memory(UserMemory("Rui rows.", user_id="rui", agent_id="sailor"))
        assert isinstance(unnamed, UserMemory) and unnamed.memory_id
        assert texts(await db.get_user_memories(user_id="rui", agent_id="sailor")) == ["Rui rows."]
        stats, total = await db.get_user_memory_stats()
        assert ({row["user_id"]: row["total_memories"] for row in stats}, total) == (
            {"ana": 2, "rui": 1},
            2,
        )
        await db.delete_user_memory("m1", user_id="rui")
        await db.delete_user_memories(["m2"], user_id="ana")
        assert texts(await db.get_user_memories(user_id="ana")) == ["Ana sails."]
        await db.clear_memories()
        assert await db.get_user_memories(user_id="ana") == []
        agent = Agent(
            model=ScriptedModel(),
            db=db,
            memory_manager=manager,
            pre_hooks=[manager.arecall],
            post_hooks=[manager.akeep],
            **UNSEEN,
        )
        await agent.arun("Hello?", user_id="ana", session_id="s")
        assert await agent.aget_user_memories("ana") == []
