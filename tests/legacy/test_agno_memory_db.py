"""Agno 1's own memory and its manager over Strandline's ``MemoryDb``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from agno.memory.v2.db.schema import MemoryRow
from agno.memory.v2.memory import Memory
from agno.memory.v2.schema import UserMemory

from strandline import ConfigurationError, InvalidMessageError, NotFoundError, OwnerError, SchemaError
from strandline.adapters.agno_v1 import StrandlineMemoryDb
from strandline.adapters.legacy.agno_v1 import memory_ids
from tests.conftest import rows_of, wait_until

WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
Make = Callable[..., StrandlineMemoryDb]


@pytest.fixture
def make(database_url: str) -> Iterator[Make]:
    opened: list[StrandlineMemoryDb] = []

    def make_one(namespace: str = "default") -> StrandlineMemoryDb:
        opened.append(StrandlineMemoryDb(namespace=namespace, database_url=database_url))
        return opened[-1]

    yield make_one
    for db in opened:
        db.close()


@pytest.fixture
def db(make: Make) -> StrandlineMemoryDb:
    return make()


def row(memory_id: str, text: str, user_id: str | None = "ana") -> MemoryRow:
    return MemoryRow(id=memory_id, user_id=user_id, memory={"memory": text, "topics": ["sea"]})


def texts(rows: list[MemoryRow]) -> list[str]:
    return [one.memory["memory"] for one in rows]


def test_the_tables_are_looked_for(db: StrandlineMemoryDb, empty_database_url: str) -> None:
    db.create()
    assert db.table_exists()
    with pytest.raises(ConfigurationError, match="tables hold the memories of all namespaces"):
        db.drop_table()
    empty = StrandlineMemoryDb(database_url=empty_database_url)
    with pytest.raises(SchemaError, match="strandline migrate"):
        empty.create()
    empty.close()


def test_a_row_is_stored_under_its_id_and_changed(make: Make) -> None:
    db = make()
    db.upsert_memory(row("m1", "Ana sails."))
    db.upsert_memory(row("m1", "Ana sails."))
    db.upsert_memory(row("m1", "Ana sails the Petrel."))
    for one in (db, make()):
        (stored,) = one.read_memories("ana")
        assert (stored.id, stored.user_id, texts([stored])) == ("m1", "ana", ["Ana sails the Petrel."])
        assert stored.memory["topics"] == ["sea"]
        assert stored.last_updated is not None
        assert UserMemory.from_dict(dict(stored.memory)).memory_id == "m1"
    assert db.memory_exists(row("m1", ""))
    assert not db.memory_exists(row("m2", ""))


def test_the_row_of_another_user_is_refused(db: StrandlineMemoryDb) -> None:
    db.upsert_memory(row("m1", "Ana sails."))
    with pytest.raises(OwnerError, match="belongs to another user"):
        db.upsert_memory(row("m1", "Rui was here.", "rui"))
    assert texts(db.read_memories("ana")) == ["Ana sails."]
    assert db.read_memories("rui") == []
    assert not db.memory_exists(row("m1", "", "rui"))


def test_of_two_users_who_give_one_id_at_once_one_has_it(make: Make, database_url: str) -> None:
    """Both have found that no one has it, when the first stores it: as in two processes."""
    users = ("ana", "rui")
    dbs = [make() for _user in users]
    for db, user in zip(dbs, users, strict=True):
        db.upsert_memory(row(f"first of {user}", "The lanes are open.", user))

    def store(db: StrandlineMemoryDb, user: str) -> bool:
        try:
            db.upsert_memory(row("m1", f"{user} sails.", user))
        except OwnerError:
            return False
        return True

    with psycopg.connect(database_url) as holder, ThreadPoolExecutor(2) as threads:
        holder.execute("LOCK TABLE strandline.store_item IN SHARE MODE")  # read by all, written by none
        stored = [threads.submit(store, db, user) for db, user in zip(dbs, users, strict=True)]
        wait_until(lambda: rows_of(database_url, WAITING) == [(2,)], timeout=30, what="both to wait")
        holder.rollback()
        assert sorted(one.result() for one in stored) == [False, True]
    owner, other = users if stored[0].result() else users[::-1]
    for db in (*dbs, make()):
        assert set(texts(db.read_memories(owner))) == {f"{owner} sails.", "The lanes are open."}
        assert texts(db.read_memories(other)) == ["The lanes are open."]


def test_an_id_whose_memory_could_not_be_stored_is_free(db: StrandlineMemoryDb) -> None:
    with pytest.raises(InvalidMessageError):
        db.upsert_memory(row("m1", ""))
    db.upsert_memory(row("m1", "Rui rows.", "rui"))
    assert texts(db.read_memories("rui")) == ["Rui rows."]


def test_all_users_are_found_however_many_ids_there_are(
    db: StrandlineMemoryDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read page by page."""
    monkeypatch.setattr(memory_ids, "PAGE", 3)
    for number in range(7):
        db.memories.facts_of(f"u{number}")
        db.upsert_memory(row(f"m{number}", f"Fact {number}.", f"u{number}"))
    assert db.memories.users() == [f"u{number}" for number in range(7)]
    assert len(db.read_memories(limit=None)) == 7
    assert db.clear()
    assert db.memories.users() == []


def test_ten_rows_are_read_unless_more_are_asked_for(db: StrandlineMemoryDb) -> None:
    for number in range(12):
        db.upsert_memory(row(f"m{number}", f"Fact {number:02d}."))
    assert texts(db.read_memories("ana")) == [f"Fact {number:02d}." for number in range(11, 1, -1)]
    assert texts(db.read_memories("ana", limit=2, sort="asc")) == ["Fact 00.", "Fact 01."]
    assert len(db.read_memories("ana", limit=None)) == 12
    assert db.read_memories("ana", limit=0) == []
    with pytest.raises(ConfigurationError, match="limit"):
        db.read_memories("ana", limit=-1)
    db.upsert_memory(row("r1", "Rui rows.", "rui"))
    assert len(db.read_memories(limit=None)) == 13
    assert len(db.read_memories()) == 10


def test_a_row_is_deleted_by_its_id(make: Make) -> None:
    db = make()
    db.upsert_memory(row("m1", "Ana sails."))
    make().delete_memory("m1")
    assert db.read_memories("ana") == []
    fact = db.memories.facts_of("ana").add("Ana bakes.")
    with pytest.raises(NotFoundError, match="read the memories of its user first"):
        db.delete_memory(str(fact.fact_id))
    (stored,) = db.read_memories("ana")
    db.delete_memory(str(stored.id))
    assert db.read_memories("ana") == []
    db.upsert_memory(row("m1", "Ana rows."))
    assert texts(db.read_memories("ana")) == ["Ana rows."]


def test_clearing_ends_with_the_namespace(make: Make) -> None:
    db, other = make(), make("other")
    for one in (db, other):
        one.upsert_memory(row("m1", "Ana sails."))
        one.upsert_memory(row("m2", "Nobody said it.", None))
    assert db.clear()
    assert db.read_memories(limit=None) == []
    assert sorted(texts(other.read_memories())) == ["Ana sails.", "Nobody said it."]
    assert texts(other.read_memories("default")) == ["Nobody said it."]
    db.upsert_memory(row("m1", "Rui rows.", "rui"))
    assert texts(db.read_memories()) == ["Rui rows."], "its id is free again"


def test_fields_that_no_memory_has_are_refused(db: StrandlineMemoryDb) -> None:
    with pytest.raises(InvalidMessageError, match="fields that no memory has: mood"):
        db.upsert_memory(MemoryRow(user_id="ana", memory={"memory": "It rains.", "mood": "bad"}))
    with pytest.raises(InvalidMessageError, match="text"):
        db.upsert_memory(MemoryRow(user_id="ana", memory={}))


def test_agnos_own_memory_keeps_its_memories_there(db: StrandlineMemoryDb) -> None:
    memory = Memory(db=db)
    memory_id = memory.add_user_memory(UserMemory("Ana sails."), user_id="ana")
    again = Memory(db=db)
    again.initialize(user_id="ana")
    assert [one.memory for one in again.get_user_memories("ana")] == ["Ana sails."]
    again.replace_user_memory(memory_id, UserMemory("Ana rows.", memory_id=memory_id), user_id="ana")
    assert [one.memory for one in memory.get_user_memories("ana")] == ["Ana rows."]
    memory.delete_user_memory(memory_id, user_id="ana")
    assert again.get_user_memories("ana") == []
