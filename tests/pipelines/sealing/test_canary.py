"""A marked word in all that users say: where it is found in what Postgres and the broker have on disk."""

from __future__ import annotations

import logging
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
from redis import Redis

from strandline import Memory
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.sealing.enabling import enable, prepare_owners
from strandline.pipelines.sealing.resealing import Pace, reseal_namespace
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import Settings, load_settings
from tests.conftest import OTHER_SERVER, rows_of
from tests.support.canary.places import Places, holds, written_forms
from tests.support.canary.saying import MAX_FACTS, Speaker
from tests.support.opened_rows import clear_only
from tests.support.servers.model_server import ModelServer

KEYS = f"main {b64encode(b'k' * 32).decode()}"
# A broker's database of its own, emptied in the end.
BROKER_DATABASE = 9
# Where nothing would be found without encryption either: what a test plants there shows that it is looked at.
NEVER_CONTENT = {"broker", "temporary", "logs"}
HELD_IN_CLEAR = {
    *(f"table {table}" for table in ("message", "shared_message", "fact", "fact_revision", "fact_candidate")),
    *(f"table {table}" for table in ("fact_event", "chunk", "block_state", "answer", "store_item")),
    *("table kept_response", "dump", "archive", "base", "pg_wal", "server.log"),
}

pytestmark = [
    pytest.mark.skipif(OTHER_SERVER is not None, reason="reads the server's files"),
    clear_only("encrypts by itself, with a keyring of its own"),
]


@pytest.fixture
def mark() -> str:
    return f"zq{uuid4().hex[:10]}"


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, database_url: str, model_server: ModelServer) -> Settings:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    return load_settings(database_url=database_url, max_facts=MAX_FACTS)


@pytest.fixture
def content(settings: Settings) -> SealedContent:
    return sealed_content(settings)


@pytest.fixture
def opened(settings: Settings, database_url: str, content: SealedContent) -> Iterator[Database]:
    database = Database.connect(ConnectionOptions.from_settings(database_url, settings), content)
    yield database
    database.close()


@pytest.fixture
def places(
    stack: EmbeddedStack, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Places]:
    """Where to look; Postgres writes each statement with its values into its log, and we into ours."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = urlsplit(database_url).path[1:]
        connection.execute(f"ALTER DATABASE {name} SET log_statement = 'all'".encode())
    (tmp_path / "logs").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    handler = logging.FileHandler(tmp_path / "logs" / "service.log")
    handler.setLevel(logging.DEBUG)
    loggers = [logging.getLogger(name) for name in ("strandline", "uvicorn")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    folders = {name: tmp_path / name for name in ("temporary", "archive", "logs")}
    broker_url = urlunsplit(urlsplit(stack.broker_url or "")._replace(path=f"/{BROKER_DATABASE}"))
    yield Places(stack, database_url, broker_url, folders)
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)
    handler.close()
    with Redis.from_url(broker_url) as broker:
        broker.flushdb()


@pytest.fixture
def speaker(
    mark: str, places: Places, opened: Database, settings: Settings, model_server: ModelServer, tmp_path: Path
) -> Speaker:
    archive = f"file://{tmp_path}/archive"
    return Speaker(mark, places.database_url, places.broker_url, opened, settings, model_server, archive)


def encrypt(database: Database, content: SealedContent) -> None:
    """As the command does."""
    assert enable(database, content, "default", "main", "clear")
    for _made in prepare_owners(database, content, "default"):
        pass


def test_it_is_found_wherever_it_is_planted(places: Places, mark: str) -> None:
    assert places.find(mark) == set()
    with psycopg.connect(places.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE strandline.planted (word bytea)")
        connection.execute("INSERT INTO strandline.planted VALUES (%s)", (mark.encode(),))
    with Redis.from_url(places.broker_url) as broker:
        broker.set("planted", mark)
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(b64encode(b"x" + mark.encode() + b"y"))
    places.folders["archive"].mkdir()
    (places.folders["archive"] / "object").write_text(f'"{mark.encode().hex()}"')
    logging.getLogger("strandline.planted").info(mark.upper())
    wanted = {"table planted", "dump", *NEVER_CONTENT, "archive", "base", "pg_wal"}
    assert wanted <= places.find(mark)


@pytest.mark.parametrize("before", range(4))
def test_base64_is_seen_through_wherever_a_word_begins_in_it(before: int) -> None:
    needles = written_forms("zq0123456789")
    assert holds(b64encode(b"a" * before + b"zq0123456789" + b"bcd"), needles)
    assert not holds(b64encode(b"a" * before + b"zq0123056789" + b"bcd"), needles)


@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_nothing_of_what_was_said_is_on_disk(
    when: str, speaker: Speaker, places: Places, opened: Database, content: SealedContent
) -> None:
    mark = speaker.mark
    if when == "before":
        encrypt(opened, content)
    speaker.say_everything()
    memory = Memory.from_defaults("s", user_id="u", database_url=places.database_url, shared_scope="team")
    hits = memory.search(f"{mark}haven", scope="owner")
    assert any(f"{mark}haven" in hit.text for hit in hits)
    shown = str(memory.get(input=f"Where is {mark}haven?"))
    assert f"{mark}town" in shown
    found = places.find(mark)
    if when == "before":
        assert found == set()
    else:
        assert HELD_IN_CLEAR - found == set()
        assert found & NEVER_CONTENT == set()
    if when == "after":
        encrypt(opened, content)
        aged = "UPDATE strandline.data_key SET created_at = created_at - interval '1 day' RETURNING 1"
        rows_of(places.database_url, aged)
        memory.close()  # a process that knew nothing of it has a few seconds to find out
        memory = Memory.from_defaults("s", user_id="u", database_url=places.database_url, shared_scope="team")
        for _progress in reseal_namespace(opened, content, "default", cache_seconds=300, pace=Pace()):
            pass
        found = {place for place in places.find(mark) if place == "dump" or place.startswith("table")}
        assert found == set()
        assert [hit.text for hit in memory.search(f"{mark}haven", scope="owner")] == [
            hit.text for hit in hits
        ]
        assert str(memory.get(input=f"Where is {mark}haven?")) == shown
    assert verify(opened, deep=True).violations == ()
    memory.close()
