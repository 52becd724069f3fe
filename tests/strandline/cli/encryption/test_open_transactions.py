"""Keys are not given up behind a transaction that is open: what it holds may be committed later."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from strandline import Memory
from strandline.administration import encryption
from strandline.cli.entry import run
from strandline.pipelines.sealing import resealing
from strandline.pipelines.sealing.enabling import change_key, enable, find_encryption
from strandline.pipelines.sealing.resealing import Pace, Progress, reseal_namespace, retire_old_keys
from strandline.pipelines.sealing.rotating import renew_data_keys, rewrap_keys
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.statements import function_names, function_source, statements
from strandline.schemas.queries.application.sealing import RewrapDataKey
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from tests.conftest import MakeMemory, lock_is_awaited, rows_of, wait_until
from tests.support.messages import user
from tests.support.opened_rows import clear_only

pytestmark = clear_only("encrypts by itself, with a keyring of its own")

Capture = pytest.CaptureFixture[str]
KEYS = [f"{name} {b64encode(name[:1].encode() * 32).decode()}" for name in ("first", "second", "third")]
WRAPPED_BY = "SELECT DISTINCT kek_id FROM strandline.data_key ORDER BY 1"
AGED = """UPDATE strandline.data_key SET created_at = created_at - interval '1 day',
    settled_at = settled_at - interval '1 day' RETURNING 1"""


@pytest.fixture
def content(monkeypatch: pytest.MonkeyPatch) -> SealedContent:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", ";".join(KEYS))
    return sealed_content(load_settings())


@pytest.fixture
def encrypted(database_url: str, content: SealedContent) -> Iterator[Database]:
    database = Database.connect(ConnectionOptions.from_settings(database_url, load_settings()), content)
    assert enable(database, content, "default", "first", "clear")
    yield database
    database.close()


@pytest.fixture
def command(database_url: str, capfd: Capture) -> Callable[..., str]:
    def call(*arguments: str, code: int = 0) -> str:
        assert run(["encryption", *arguments, "--database-url", database_url]) == code
        return "".join(capfd.readouterr())

    return call


def test_a_rotation_does_not_pass_a_transaction_that_wraps(
    encrypted: Database,
    command: Callable[..., str],
    make_memory: MakeMemory,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = make_memory("s", user_id="new")
    with psycopg.connect(database_url) as connection:
        memory.put(user("in the caller's transaction"), connection=connection)
        monkeypatch.setenv("STRANDLINE_STATEMENT_TIMEOUT_SECONDS", "0.5")
        assert "keys that the former key wraps" in command("rotate", "default", "--key", "second", code=1)
        assert "'first' must stay in the keyring" in command("retire", "first", code=1)
    command("rotate", "default", "--key", "second")
    assert "wraps nothing" in command("retire", "first")
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS[1])
    assert make_memory("s", user_id="new").get_all()[0].text == "in the caller's transaction"


def test_a_rotation_waits_for_an_asynchronous_transaction(
    encrypted: Database, command: Callable[..., str], make_memory: MakeMemory, database_url: str
) -> None:
    async def put_while_rotated(pool: ThreadPoolExecutor) -> Any:
        memory = Memory.from_defaults("s", user_id="new", database_url=database_url)
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            await memory.aput(user("hello"), connection=connection)
            rotated = pool.submit(command, "rotate", "default", "--key", "second")
            wait_until(lambda: lock_is_awaited(database_url), timeout=10, what="the rotation to wait")
        await memory.aclose()
        return rotated

    with ThreadPoolExecutor(1) as pool:
        asyncio.run(put_while_rotated(pool)).result()
    assert rows_of(database_url, WRAPPED_BY) == [("second",)]


def test_who_knew_the_former_key_wraps_with_the_present_one(
    encrypted: Database, content: SealedContent, database_url: str
) -> None:
    before = find_encryption(encrypted, "default")
    change_key(encrypted, content, "default", "second")
    encrypted.run(content.make_keys("default", uuid4(), before))
    assert rows_of(database_url, WRAPPED_BY) == [("second",)]


def test_a_rotation_that_another_one_overtook_wraps_with_the_last_key(
    encrypted: Database, content: SealedContent, make_memory: MakeMemory, database_url: str
) -> None:
    for number in range(3):
        make_memory(f"s{number}", user_id=f"u{number}").put(user("hello"))
    change_key(encrypted, content, "default", "second")
    rotation = rewrap_keys(encrypted, content, "default")
    next(rotation)
    change_key(encrypted, content, "default", "third")
    ((owner, wrapped),) = rows_of(database_url, "SELECT shard_key, wrapped FROM strandline.data_key LIMIT 1")
    encrypted.fetch(
        RewrapDataKey(
            shard_key=owner,
            number=1,
            namespace="default",
            kek_id="second",
            wrapped=wrapped,
            old_kek_id="first",
        )
    )
    assert sum(rotation) == 3
    assert rows_of(database_url, WRAPPED_BY) == [("third",)]


def test_a_key_is_not_retired_beside_a_transaction_that_may_begin_to_use_it(
    encrypted: Database,
    command: Callable[..., str],
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encryption, "OPEN_SECONDS", 0.2)
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO strandline.encryption SELECT 'shop', 'third', probe, vectors"
                           " FROM strandline.encryption")  # fmt: skip
        said = command("retire", "third", code=1)
        assert "A transaction is open that may hold data keys wrapped by 'third'" in said
        assert "End the transaction (see pg_stat_activity and pg_prepared_xacts)" in said
    assert "'third' must stay in the keyring" in command("retire", "third", code=1)
    assert "wraps nothing" in command("retire", "second")


def reseal(database: Database, content: SealedContent) -> Progress:
    *_, last = reseal_namespace(database, content, "default", cache_seconds=0, pace=Pace())
    return last


def test_a_data_key_that_an_open_transaction_sealed_with_stays(
    encrypted: Database,
    content: SealedContent,
    make_memory: MakeMemory,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resealing, "QUIET_SECONDS", 0.2)
    memory = make_memory("s", user_id="u")
    memory.put(user("before"))
    with psycopg.connect(database_url) as connection:
        memory.put(user("with the first data key"), connection=connection)
        assert sum(renew_data_keys(encrypted, content, "default")) == 1
        rows_of(database_url, AGED)
        assert [reseal(encrypted, content).settled for _pass in range(2)] == [0, 0]
        rows_of(database_url, "UPDATE strandline.data_key SET settled_at = created_at RETURNING 1")
        assert retire_old_keys(encrypted, content, "default", pace=Pace(), after_seconds=0) == 0
    assert retire_old_keys(encrypted, content, "default", pace=Pace(), after_seconds=0) == 0  # it seals first
    assert retire_old_keys(encrypted, content, "default", pace=Pace(), after_seconds=0) == 1
    texts = [message.text for message in make_memory("s", user_id="u").get_all()]
    assert texts == ["before", "with the first data key"]


def test_data_keys_are_written_under_the_lock_of_their_namespace() -> None:
    """Each statement and function that stores a wrapped key locks the row that says by which key."""
    texts = [function_source(name, "strandline") for name in function_names()]
    texts += map(str, statements("strandline").values())
    writes = ("INTO strandline.data_key", "UPDATE strandline.data_key k SET kek_id")
    writing = [text for text in texts if any(write in text for write in writes)]
    assert len(writing) == 2
    assert all("FROM strandline.encryption" in text and "FOR SHARE" in text for text in writing)
