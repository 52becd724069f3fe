"""A database that cannot be reached is told at once, in one sentence that says where it was looked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg_pool import ConnectionPool

from strandline import DatabaseTimeoutError, DatabaseUnavailableError
from strandline.cli.entry import run
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.queries.derived.generations import ServingGenerations
from strandline.schemas.settings import load_settings
from tests.chaos.servers import PostgresServer
from tests.conftest import MakeMemory, wait_until
from tests.support.messages import user

REFUSED = "postgresql://someone:opensesame@127.0.0.1:1/nothing"
UNRESOLVED = "postgresql://someone:opensesame@nowhere.invalid:5433/nothing"
PLACES = pytest.mark.parametrize(
    ("url", "place"), [(REFUSED, "127.0.0.1 port 1"), (UNRESOLVED, "nowhere.invalid port 5433")]
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _endless_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that whoever waits for the pool, and not for the reason, waits until the test has failed."""
    monkeypatch.setenv("STRANDLINE_POOL_TIMEOUT_SECONDS", "10000")


@PLACES
def test_a_script_is_told_at_once_where_and_why(
    url: str, place: str, make_memory: MakeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    memory = make_memory(database_url=url, memory_blocks=[])
    for call in (lambda: memory.put(user("hello")), memory.get):
        with pytest.raises(DatabaseUnavailableError) as told:
            call()
        assert not isinstance(told.value, DatabaseTimeoutError)
        assert place in str(told.value)
        assert "opensesame" not in str(told.value)
        assert "\n" not in str(told.value)
    assert [record.name for record in caplog.records if record.name.startswith("psycopg")] == []


@PLACES
def test_a_coroutine_is_told_at_once_where_and_why(
    url: str, place: str, make_memory: MakeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    memory = make_memory(database_url=url, memory_blocks=[])

    async def main() -> list[int | BaseException]:
        puts = (memory.aput(user(f"{n}")) for n in range(5))
        told = await asyncio.gather(*puts, return_exceptions=True)
        await memory.aclose()
        return told

    for error in asyncio.run(main()):
        assert type(error) is DatabaseUnavailableError
        assert place in str(error)
    assert [record.name for record in caplog.records if record.name.startswith("psycopg")] == []


@PLACES
@pytest.mark.parametrize("command", [["status"], ["verify"], ["migrate"]])
def test_commands_say_the_same_and_end_with_1(
    command: list[str],
    url: str,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", url)
    assert run(command) == 1
    (sentence,) = capfd.readouterr().err.splitlines()
    assert place in sentence
    assert "opensesame" not in sentence


def test_doctor_names_the_place_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", REFUSED)
    assert run(["doctor", "--no-model-call"]) == 1
    said = capfd.readouterr()
    assert "127.0.0.1 port 1: the connection was refused" in said.out
    assert "opensesame" not in said.out + said.err
    assert said.err == ""


def test_a_pool_of_somebody_else_logs_as_it_always_did(caplog: pytest.LogCaptureFixture) -> None:
    with ConnectionPool(REFUSED, min_size=1, name="theirs", reconnect_timeout=0.1, open=True):
        wait_until(lambda: "error connecting in 'theirs'" in caplog.text, timeout=20, what="its own record")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A Postgres that these tests may end."""
    running = PostgresServer(tmp_path_factory.mktemp("unreachable"))
    running.start()
    migrate(running.url, "strandline")
    yield running
    running.stop()


def test_a_database_that_does_not_exist_is_named(server: PostgresServer) -> None:
    options = ConnectionOptions.from_settings(
        server.url.replace("/postgres?", "/elsewhere?"), load_settings()
    )
    database = Database.connect(options)
    with pytest.raises(DatabaseUnavailableError, match='database "elsewhere" does not exist'):
        database.fetch(ServingGenerations())
    database.close()


def test_a_loss_is_logged_once_and_its_end_once(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """However many threads meet it, and however often they try."""
    caplog.set_level(logging.WARNING)
    options = ConnectionOptions.from_settings(server.url, load_settings(), pool_size=8)
    database = Database.connect(options)

    def look(_number: int) -> None:
        database.fetch(ServingGenerations())

    for loss in (1, 2):
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(look, range(64)))
            server.crash()
            waiting = [threads.submit(look, n) for n in range(32)]
            wait_until(lambda: caplog.text.count("database away") == loss, timeout=20, what="the loss")  # noqa: B023
            server.start()
            for done in waiting:
                done.result(300)
        said = [record.message for record in caplog.records if record.name.startswith("strandline")]
        assert said == ["database away", "database is back"] * loss
    database.close()
