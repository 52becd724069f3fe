"""Joining a caller's transaction: what was put is there if, and only if, the caller commits."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row, namedtuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.orm import Session

from strandline import ConfigurationError, ConflictError, InvalidMessageError, OwnerError
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.messages import user


def texts(url: str) -> list[str]:
    return [
        text for (text,) in rows_of(url, "SELECT envelope ->> 'content' FROM strandline.message ORDER BY seq")
    ]


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(database_url.replace("postgresql:", "postgresql+psycopg:", 1))
    yield made
    made.dispose()


@pytest.mark.parametrize("row_factory", [None, dict_row, namedtuple_row])
def test_a_put_is_there_if_the_caller_commits(rig: Rig, row_factory: Any) -> None:
    memory = rig.memory("s", user_id="maren", token_limit=60, token_flush_size=20, memory_blocks=["summary"])
    options: dict[str, Any] = {} if row_factory is None else {"row_factory": row_factory}
    with psycopg.connect(rig.url, **options) as connection:
        connection.execute(b"CREATE TABLE orders (id integer)")
        connection.execute(b"INSERT INTO orders VALUES (1)")
        for number in range(12):
            assert memory.put(user(f"m{number} one two three four"), connection=connection) == number + 1
        shown = memory.get(connection=connection)
        assert shown[-1].text == "m11 one two three four"
        assert shown.tokens <= 60
        assert len(memory.get_all(connection=connection)) == 12
        assert memory.flush(connection=connection) != []
        assert texts(rig.url) == [], "nobody else sees it yet"
        assert memory.get_all() == []
        connection.commit()
    assert len(texts(rig.url)) == 12
    assert [message.seq for message in memory.get_all()] == list(range(1, 13))
    assert rows_of(rig.url, "SELECT count(*) > 1 FROM strandline.due") == [(True,)]


def test_nothing_is_there_if_the_caller_rolls_back(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", user_id="maren", memory_blocks=[])
    with psycopg.connect(database_url) as connection:
        assert memory.put_messages([user("one"), user("two")], connection=connection) == [1, 2]
        connection.rollback()
        assert memory.set([user("three")], connection=connection) == [1]
        connection.rollback()
    for table in ("session", "session_owner", "message", "watch"):
        assert rows_of(database_url, f"SELECT 1 FROM strandline.{table}") == []
    # The session had no owner: another user may have it.
    assert make_memory("s", user_id="other", memory_blocks=[]).put(user("mine")) == 1


def test_a_rolled_back_put_leaves_a_session_as_it_was(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put(user("one"))
    before = rows_of(database_url, "SELECT s::text FROM strandline.session s")
    with psycopg.connect(database_url) as connection:
        memory.put(user("two", id="a"), connection=connection)
        memory.flush(all=True, connection=connection)
        memory.reset(derived=True, connection=connection)
        assert memory.get_all(connection=connection) == []
        connection.rollback()
    assert rows_of(database_url, "SELECT s::text FROM strandline.session s") == before
    assert memory.put(user("other words", id="a")) == 2


def test_a_refusal_leaves_the_callers_transaction_usable(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", user_id="maren", memory_blocks=[])
    memory.put(user("one", id="a"))
    with psycopg.connect(database_url) as connection:
        with pytest.raises(ConflictError):
            memory.put(user("other", id="a"), connection=connection)
        with pytest.raises(InvalidMessageError):
            memory.put(user("\x00"), connection=connection)
        with pytest.raises(OwnerError):
            make_memory("s", memory_blocks=[]).put(user("x"), connection=connection)
        assert memory.put(user("two"), connection=connection) == 2
        connection.commit()
    assert texts(database_url) == ["one", "two"]


def test_a_set_is_atomic_in_the_callers_transaction(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.put_messages([user("one"), user("two")])
    with psycopg.connect(database_url) as connection:
        assert memory.set([user("three")], connection=connection) == [3]
        assert [message.text for message in memory.get_all()] == ["one", "two"]
        connection.commit()
    assert [message.text for message in memory.get_all()] == ["three"]


def test_an_autocommitting_connection_is_taken_too(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[])
    with psycopg.connect(database_url, autocommit=True) as connection:
        memory.put(user("one"), connection=connection)
        assert texts(database_url) == ["one"]
        with connection.transaction(force_rollback=True):
            memory.put(user("two"), connection=connection)
    assert texts(database_url) == ["one"]


def test_a_sqlalchemy_connection(make_memory: MakeMemory, database_url: str, engine: sa.Engine) -> None:
    memory = make_memory("s", memory_blocks=[])
    with engine.connect() as connection:
        # Its commit() does nothing for what it did not begin itself.
        memory.put(user("kept"), connection=connection)
        connection.commit()
        assert connection.scalar(sa.text("SELECT count(*) FROM strandline.message")) == 1
        memory.put(user("dropped"), connection=connection)
        assert len(memory.get(connection=connection)) == 2
        connection.rollback()
    with engine.begin() as connection:
        memory.put(user("kept too"), connection=connection)
    assert texts(database_url) == ["kept", "kept too"]


def test_a_sqlalchemy_session(make_memory: MakeMemory, database_url: str, engine: sa.Engine) -> None:
    memory = make_memory("s", memory_blocks=[])
    with Session(engine) as session:
        memory.put(user("kept"), connection=session)
        session.commit()
        memory.put(user("dropped"), connection=session)
        session.rollback()
    assert texts(database_url) == ["kept"]


async def test_an_async_connection(make_memory: MakeMemory, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=[], token_limit=60, token_flush_size=20)
    connection = await psycopg.AsyncConnection.connect(database_url, row_factory=dict_row)
    async with connection:
        for number in range(12):
            await memory.aput(user(f"m{number} one two three four"), connection=connection)
        assert (await memory.aget(connection=connection))[-1].text == "m11 one two three four"
        assert len(await memory.aget_all(connection=connection)) == 12
        await memory.aflush(connection=connection)
        assert texts(database_url) == []
        await connection.commit()
        assert await memory.aset([user("dropped")], connection=connection) == [13]
        await memory.areset(connection=connection)
        await connection.rollback()
    assert len(await memory.aget_all()) == 12
    await memory.aclose()


async def test_an_async_sqlalchemy_connection(make_memory: MakeMemory, database_url: str) -> None:
    sqlalchemy_asyncio = pytest.importorskip(
        "sqlalchemy.ext.asyncio", reason="needs greenlet", exc_type=ImportError
    )

    memory = make_memory("s", memory_blocks=[])
    engine = sqlalchemy_asyncio.create_async_engine(
        database_url.replace("postgresql:", "postgresql+psycopg:", 1)
    )
    async with engine.connect() as connection:
        await memory.aput(user("kept"), connection=connection)
        await connection.commit()
        await memory.aput(user("dropped"), connection=connection)
        await connection.rollback()
    async with sqlalchemy_asyncio.AsyncSession(engine) as session:
        await memory.aput(user("kept too"), connection=await session.connection())
        await session.commit()
        with pytest.raises(ConfigurationError, match=r"await session\.connection\(\)"):
            await memory.aput(user("x"), connection=session)
    await engine.dispose()
    await memory.aclose()
    assert texts(database_url) == ["kept", "kept too"]


async def test_a_connection_of_another_kind_is_refused_by_its_type(rig: Rig, engine: sa.Engine) -> None:
    memory = rig.memory("s", memory_blocks=[])
    other = sqlite3.connect(":memory:")
    for wrong in (object(), "postgresql://", other, engine):
        with pytest.raises(ConfigurationError, match="connection= is a") as caught:
            memory.put(user("x"), connection=wrong)
        assert type(wrong).__name__ in str(caught.value)
    other.close()

    with (
        psycopg.connect(rig.url) as connection,
        pytest.raises(ConfigurationError, match=r"psycopg\.AsyncConnection"),
    ):
        await memory.aput(user("x"), connection=connection)
    async with await psycopg.AsyncConnection.connect(rig.url) as connection:
        with pytest.raises(ConfigurationError, match=r"without a psycopg\.Connection"):
            memory.get(connection=connection)
    await memory.aclose()
    assert texts(rig.url) == []


def test_a_pool_of_the_callers_own(make_memory: MakeMemory, database_url: str) -> None:
    """It is used and stays open; whatever its connections are configured to, rows come as they must."""
    options = {"row_factory": dict_row}
    with ConnectionPool(database_url, min_size=1, max_size=2, open=True, kwargs=options) as pool:
        memory = make_memory("s", database_url=None, pool=pool, memory_blocks=[])
        assert memory.put(user("one")) == 1
        assert memory.set([user("two")]) == [2]
        assert len(memory.get()) == 1
        memory.close()
        with pool.connection() as connection:
            row: Any = connection.execute(b"SELECT 1 AS one").fetchone()
            assert row == {"one": 1}, "still open"

        async def main() -> None:
            with pytest.raises(ConfigurationError, match="AsyncConnectionPool"):
                await memory.aput(user("x"))

        asyncio.run(main())
    assert texts(database_url) == ["one", "two"]


async def test_an_async_pool_of_the_callers_own(make_memory: MakeMemory, database_url: str) -> None:
    async with AsyncConnectionPool(database_url, min_size=1, max_size=2, open=False) as pool:
        memory = make_memory("s", database_url=None, pool=pool, memory_blocks=[])
        assert await memory.aput(user("one")) == 1
        assert len(await memory.aget()) == 1
        with pytest.raises(ConfigurationError, match="ConnectionPool"):
            memory.put(user("x"))
        await memory.aclose()
        async with pool.connection() as connection:
            await connection.execute(b"SELECT 1")
    assert texts(database_url) == ["one"]


async def test_background_consumption_wants_a_pool_for_threads(rig: Rig) -> None:
    async with AsyncConnectionPool(rig.url, min_size=0, max_size=1, open=False) as pool:
        memory = rig.memory("s", database_url=None, pool=pool, consume="background")
        with pytest.raises(ConfigurationError, match="consume='background'"):
            await memory.aput(user("x"))


def test_an_engine_of_the_callers_own_in_the_place_of_a_pool(rig: Rig, engine: sa.Engine) -> None:
    memory = rig.memory("s", database_url=None, pool=engine, memory_blocks=[])
    assert memory.put(user("one")) == 1
    assert memory.set([user("two"), user("three")]) == [2, 3]
    with pytest.raises(InvalidMessageError):
        memory.put(user("\x00"))
    with pytest.raises(ConflictError):
        memory.put_messages([user("four", id="a"), user("five", id="a")])
    rows_of(
        rig.url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    assert [message.text for message in memory.get()] == ["two", "three"], "on a fresh connection"
    memory.close()
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM strandline.message")) == 3
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # QueuePool


async def test_an_async_engine_of_the_callers_own(make_memory: MakeMemory, database_url: str) -> None:
    sqlalchemy_asyncio = pytest.importorskip(
        "sqlalchemy.ext.asyncio", reason="needs greenlet", exc_type=ImportError
    )

    engine = sqlalchemy_asyncio.create_async_engine(
        database_url.replace("postgresql:", "postgresql+psycopg:", 1)
    )
    memory = make_memory("s", database_url=None, pool=engine, memory_blocks=[])
    await asyncio.gather(*(memory.aput(user(f"m{number}")) for number in range(8)))
    assert await memory.aset([user("one")]) == [9]
    assert len(await memory.aget()) == 1
    with pytest.raises(ConfigurationError, match="AsyncEngine"):
        await make_memory("s", database_url=None, pool=sa.create_engine("postgresql+psycopg://")).aget()
    with pytest.raises(ConfigurationError, match="SQLAlchemy Engine"):
        memory.get()
    await memory.aclose()
    assert engine.pool.checkedout() == 0
    await engine.dispose()
    assert texts(database_url)[-1] == "one"


def test_an_engine_on_another_driver_is_refused(make_memory: MakeMemory) -> None:
    engine = sa.create_engine("sqlite://")
    memory = make_memory("s", database_url=None, pool=engine, memory_blocks=[])
    with pytest.raises(ConfigurationError, match=r"engine on 'pysqlite'.*psycopg 3"):
        memory.get()
    engine.dispose()


async def test_an_engine_on_asyncpg_is_refused(make_memory: MakeMemory) -> None:
    pytest.importorskip("asyncpg")
    sqlalchemy_asyncio = pytest.importorskip(
        "sqlalchemy.ext.asyncio", reason="needs greenlet", exc_type=ImportError
    )

    engine = sqlalchemy_asyncio.create_async_engine("postgresql+asyncpg://postgres@127.0.0.1/postgres")
    memory = make_memory("s", database_url=None, pool=engine, memory_blocks=[])
    with pytest.raises(ConfigurationError, match=r"engine on 'asyncpg'.*psycopg 3"):
        await memory.aget()
    await engine.dispose()
