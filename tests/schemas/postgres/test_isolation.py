"""Transactions begin at read committed; what Postgres refuses for the moment is repeated, or told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine

from strandline import ConfigurationError, DatabaseBusyError, DatabaseUnavailableError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.queries.derived.generations import ServingGenerations
from strandline.schemas.settings import Settings
from tests.conftest import Rig, rows_of
from tests.support.messages import user

SERIALIZABLE = "default_transaction_isolation = 'serializable'"
REPEATABLE = "default_transaction_isolation = 'repeatable read'"
READ_ONLY = "default_transaction_read_only = on"

pytestmark = pytest.mark.timeout(600)


def set_default(url: str, setting: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET {setting}")


@pytest.mark.parametrize("setting", [SERIALIZABLE, REPEATABLE, READ_ONLY])
def test_the_isolation_that_a_database_sets_by_default_refuses_no_put(rig: Rig, setting: str) -> None:
    """Twelve threads and an event loop put to six sessions of one user, which are flushed on the way."""
    set_default(rig.url, setting)
    options = {"user_id": "u", "token_limit": 300, "token_flush_size": 40}
    memories = [rig.memory(f"s{n}", **options) for n in range(6)]

    def put_some(number: int) -> None:
        for turn in range(15):
            memories[number % 6].put(user(f"I saw {turn} gulls from boat {number}."))

    async def put_many() -> None:
        await asyncio.gather(*(memories[n % 6].aput(user(f"task {n}")) for n in range(60)))
        await memories[0].aclose()

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(put_some, range(12)))
    asyncio.run(put_many())
    assert rows_of(rig.url, "SELECT count(*)::int FROM strandline.message") == [(240,)]


@pytest.mark.parametrize("setting", [SERIALIZABLE, READ_ONLY])
def test_a_pool_of_the_callers_that_begins_otherwise_is_refused(rig: Rig, setting: str) -> None:
    set_default(rig.url, setting)
    with (
        ConnectionPool(rig.url, min_size=0, max_size=2, open=True) as pool,
        pytest.raises(ConfigurationError, match="ALTER ROLE"),
    ):
        rig.memory("s", pool=pool).put(user("hello"))
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(rig.url))
    with pytest.raises(ConfigurationError, match="ALTER ROLE"):
        rig.memory("s", pool=engine).put(user("hello"))
    engine.dispose()

    async def main() -> None:
        async with AsyncConnectionPool(rig.url, min_size=0, max_size=2, open=False) as pool:
            with pytest.raises(ConfigurationError, match="ALTER ROLE"):
                await rig.memory("s", pool=pool).aput(user("hello"))

    asyncio.run(main())


@pytest.mark.parametrize("setting", [SERIALIZABLE, REPEATABLE, READ_ONLY])
async def test_behind_a_pooler_each_transaction_begins_as_it_has_to(
    rig: Rig, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_POOLER", "transaction")
    set_default(rig.url, setting)
    memory = rig.memory("s")
    assert memory.put(user("hello")) == 1
    assert await memory.aput(user("hello")) == 2
    await memory.aclose()


HURDLE = """
CREATE SEQUENCE hurdle MINVALUE -1000 START 1;
CREATE FUNCTION stumble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('public.hurdle') <= {times} THEN
        RAISE EXCEPTION 'in the way' USING ERRCODE = '{code}';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER stumble BEFORE {moment} FOR EACH ROW EXECUTE FUNCTION stumble();
"""


def put_up(url: str, code: str, *, times: int, moment: str = "INSERT ON strandline.message") -> None:
    """Have Postgres refuse the next messages with this code."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(HURDLE.format(code=code, times=times, moment=moment).encode())


@pytest.mark.parametrize("code", ["40001", "40P01", "25006"])
async def test_a_put_that_postgres_refuses_for_the_moment_is_repeated_and_stored_once(
    rig: Rig, code: str
) -> None:
    """Serialization failures, deadlocks, and a standby; a sequence keeps count beyond each rollback."""
    memory = rig.memory("s", memory_blocks=[])
    put_up(rig.url, code, times=2)
    assert memory.put(user("first")) == 1
    rows_of(rig.url, "SELECT setval('hurdle', 1, false)")

    assert await memory.aput(user("second")) == 2
    await memory.aclose()
    assert [message.text for message in memory.get_all()] == ["first", "second"]


def test_a_forgetting_reset_that_was_rolled_back_for_another_is_done_again(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[])
    memory.put(user("hello"))
    put_up(rig.url, "40001", times=2, moment="UPDATE ON strandline.session")
    memory.reset(derived=True)
    assert memory.get_all() == []
    assert rows_of(rig.url, "SELECT last_value::int FROM hurdle") == [(3,)]


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("40001", "another transaction"),
        ("40P01", "another transaction"),
        ("53100", "no space left"),
        ("53200", "lacks memory"),
        ("53300", "takes no more connections"),
        ("25006", "reads only"),
    ],
)
async def test_each_lasting_refusal_of_postgres_has_a_sentence_of_its_own(
    rig: Rig, code: str, sentence: str
) -> None:
    memory = rig.memory("s", memory_blocks=[])
    put_up(rig.url, code, times=1_000)
    with pytest.raises(DatabaseBusyError, match=sentence) as told:
        memory.put(user("hello"))
    assert isinstance(told.value, DatabaseUnavailableError)

    with pytest.raises(DatabaseBusyError, match=sentence):
        await memory.aput(user("hello"))
    await memory.aclose()
    assert memory.get_all() == []


@pytest.fixture
def scarce(database_url: str) -> Iterator[str]:
    """The same database, by a role that may have a single connection."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE scarce LOGIN SUPERUSER")
        connection.execute("ALTER DATABASE " + connection.info.dbname + " CONNECTION LIMIT 3")
        connection.execute("ALTER ROLE scarce NOSUPERUSER CONNECTION LIMIT 0")
    yield database_url.replace("postgres@", "scarce@")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DROP ROLE scarce")


def test_a_server_that_takes_no_more_connections_says_so(scarce: str, settings: Settings) -> None:
    options = ConnectionOptions.from_settings(
        scarce, settings.model_copy(update={"pool_timeout_seconds": 1.0})
    )
    database = Database.connect(options)
    with pytest.raises(DatabaseUnavailableError, match="takes no more connections"):
        database.fetch(ServingGenerations())
    database.close()
