"""The short way of named statements: what goes in comes out, errors are psycopg's, answers are in order."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from types import FrameType
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as checked
from hypothesis import strategies as st

from strandline.schemas.errors import DatabaseUnavailableError
from strandline.schemas.postgres import prepared as direct
from strandline.schemas.postgres.database import Database, execute
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.prepared import AsyncDirectConnection, DirectConnection, plain_values
from strandline.schemas.postgres.query import Query
from strandline.schemas.postgres.statements import compile_statements
from strandline.schemas.queries.conversation.sessions import FindOwner
from strandline.schemas.settings import Settings
from tests.conftest import Rig, needs_internals, rows_of, wait_until

pytestmark = needs_internals

ECHO = (
    b"SELECT $1::text, $2::bigint, $3::uuid, $4::bytea, $5::timestamptz, $6::double precision, $7::boolean,"
    b" $8::text[], $9::bigint[], $10::uuid[], $11::bytea[], $12::timestamptz[], $13::numeric, $14::date,"
    b" $15::boolean[], $16::double precision[], $17::date[]"
)
ONE = b"SELECT $1::integer"
SLEEP = b"SELECT pg_sleep($1)"
SLEEPING = "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep($1)' AND state = 'active'"

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
numbers = st.integers(-(2**63), 2**63 - 1)
times = st.datetimes(
    datetime.fromisoformat("0001-01-02"),
    datetime.fromisoformat("9999-12-30"),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7))]),
)
NOTHING = (None,) * 16


class Asked(Query[tuple[Any, ...]], name="asked"):
    """A test's query, with its parameters in the order of the statement's."""

    def __init__(self, *values: object) -> None:
        self.values = values


@pytest.fixture
def connection(database_url: str, settings: Settings) -> Iterator[DirectConnection]:
    arguments = ConnectionOptions.from_settings(database_url, settings).connect_arguments()
    with DirectConnection.connect(database_url, **arguments) as connected:
        yield connected


@checked(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.tuples(
        st.none() | texts,
        st.none() | numbers,
        st.none() | st.uuids(),
        st.none() | st.binary(),
        st.none() | times,
        st.none() | st.floats(allow_nan=False),
        st.none() | st.booleans(),
        st.none() | st.lists(st.none() | texts),
        st.none() | st.lists(st.none() | numbers),
        st.none() | st.lists(st.none() | st.uuids()),
        st.none() | st.lists(st.none() | st.binary()),
        st.none() | st.lists(st.none() | times),
        st.none() | st.decimals(allow_nan=False, allow_infinity=False),
        st.none() | st.dates(),
        st.none() | st.lists(st.none() | st.booleans()),
        st.none() | st.lists(st.none() | st.floats(allow_nan=False)),
        st.none() | st.lists(st.none() | st.dates()),
    )
)
def test_plain_values_come_back_from_postgres_unchanged(
    connection: DirectConnection, values: tuple[Any, ...]
) -> None:
    """Run for the first time, prepared, and as it was prepared."""
    plain = plain_values(values)
    assert plain is not None
    assert connection.run_plain(ECHO, plain) == [values]


def test_every_statement_can_be_prepared_as_it_stands(connection: DirectConnection) -> None:
    """Postgres is told no types: each parameter's has to follow from its place."""
    execute(connection, compile_statements("strandline")["make_import_table"], Asked())
    for number, (name, statement) in enumerate(compile_statements("strandline").items()):
        result = connection.pgconn.prepare(b"try_%d" % number, statement)
        assert result.status == psycopg.pq.ExecStatus.COMMAND_OK, (name, result.get_error_message())


@pytest.mark.parametrize("value", ["a\0b", ["a\0b"], "\ud800", {"a": 1}, [["a"]], ("a",)], ids=repr)
def test_values_that_are_not_plain_are_left_to_psycopg(connection: DirectConnection, value: object) -> None:
    assert plain_values((value, *NOTHING)) is None


def test_a_nul_is_refused_as_psycopg_refuses_it(connection: DirectConnection) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        execute(connection, ECHO, Asked("a\0b", *NOTHING))
    assert execute(connection, ONE, Asked(7)) == [(7,)]


def test_errors_are_psycopgs_and_leave_the_connection_as_it_was(connection: DirectConnection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        execute(connection, b"SELECT 1 / $1::integer", Asked(0))
    with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"):
        execute(connection, b"SELECT FROM nowhere", Asked())
    assert execute(connection, ONE, Asked(7)) == [(7,)]


def test_prepared_statements_survive_rollbacks_and_dropped_tables(connection: DirectConnection) -> None:
    assert [execute(connection, ONE, Asked(1)) for _ in range(2)] == [[(1,)], [(1,)]]
    for _ in range(10):
        connection.execute("SELECT 1")  # so often that psycopg would prepare it, if it were let
    with connection.transaction():
        execute(connection, ONE, Asked(2))
        raise psycopg.Rollback
    connection.execute("DROP TABLE IF EXISTS nowhere")
    assert execute(connection, ONE, Asked(3)) == [(3,)]


def test_a_lost_connection_is_told_and_a_repeatable_statement_sent_again(rig: Rig) -> None:
    assert rig.database.fetch(FindOwner(directory_key=uuid4())) == []
    rows_of(
        rig.url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'strandline'",
    )
    assert rig.database.fetch(FindOwner(directory_key=uuid4())) == []


def test_behind_a_pooler_nothing_is_prepared(database_url: str, settings: Settings) -> None:
    pooled = settings.model_copy(update={"database_pooler": "transaction"})
    database = Database.connect(ConnectionOptions.from_settings(database_url, pooled))
    try:
        for _ in range(10):
            database.fetch(FindOwner(directory_key=uuid4()))
        with database.transaction() as tx:
            tx.fetch(FindOwner(directory_key=uuid4()))
            assert tx._connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchall() == [(0,)]
    finally:
        database.close()


def await_sleeping(url: str) -> None:
    wait_until(lambda: rows_of(url, SLEEPING) != [], timeout=10, what="the statement to run")


def test_an_interrupted_statement_leaves_no_answer_to_the_next(
    connection: DirectConnection, database_url: str
) -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def send() -> None:
        await_sleeping(database_url)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            execute(connection, SLEEP, Asked(60))
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert execute(connection, ONE, Asked(7)) == [(7,)]


def test_a_cancelled_task_leaves_no_answer_to_the_next(database_url: str) -> None:
    async def run() -> list[tuple[Any, ...]]:
        connection = await AsyncDirectConnection.connect(database_url, autocommit=True)
        async with connection:
            sleeping = asyncio.ensure_future(connection.run_plain(SLEEP, [b"60"]))
            await asyncio.to_thread(await_sleeping, database_url)
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping
            return await connection.run_plain(ONE, [b"7"])

    assert asyncio.run(run()) == [(7,)]


def test_a_statement_is_prepared_when_it_comes_for_the_second_time(connection: DirectConnection) -> None:
    """The first use is one round trip; what is used again is prepared."""
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT $1::integer'"
    for uses in (0, 1, 1):
        assert execute(connection, ONE, Asked(7)) == [(7,)]
        assert connection.execute(prepared).fetchall() == [(uses,)]


def test_an_interrupt_after_a_statement_was_prepared_spoils_no_other(
    connection: DirectConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came between Postgres's answer and our note of it, so the name is taken."""
    execute(connection, ONE, Asked(7))
    with monkeypatch.context() as patched:
        patched.setattr(direct, "_SUCCEEDED", Interrupting())
        with pytest.raises(KeyboardInterrupt):
            execute(connection, ONE, Asked(7))
    other = b"SELECT $1::bigint"
    for statement in (ONE, other, ONE, other):
        assert execute(connection, statement, Asked(7)) == [(7,)]


class Interrupting:
    def __contains__(self, _status: object) -> bool:
        raise KeyboardInterrupt


def test_a_session_that_postgres_ended_inside_a_transaction_is_gone(rig: Rig) -> None:
    options = ConnectionOptions.from_settings(rig.url, rig.settings)
    database = Database.connect(replace(options, idle_in_transaction_timeout=0.05))
    ours = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'strandline'"

    def outlast() -> None:
        with database.transaction() as tx:
            tx.fetch(FindOwner(directory_key=uuid4()))
            wait_until(lambda: not rows_of(rig.url, ours), timeout=10, what="Postgres to end it")
            tx.fetch(FindOwner(directory_key=uuid4()))

    try:
        with pytest.raises(DatabaseUnavailableError):
            outlast()
        assert database.fetch(FindOwner(directory_key=uuid4())) == []
    finally:
        database.close()


def test_keys_of_any_kind_find_their_rows(connection: DirectConnection) -> None:
    """A key is a UUID where Postgres compares it with one, and text where it is asked for as text."""
    key = UUID(int=5)
    asked = b"SELECT $1::uuid = ANY ($2), $1::text"
    assert execute(connection, asked, Asked(key, [key])) == [(True, str(key))]
