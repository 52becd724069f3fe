"""A marked word in all that users say: where it is found in what Postgres and the broker have on disk."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from redis import Redis

from strandline import Facts, Memory
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
from tests.support.workers.draining import drain_everything

KEYS = f"main {b64encode(b'k' * 32).decode()}"

pytestmark = pytest.mark.skipif(OTHER_SERVER is not None, reason="reads the server's files")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, database_url: str) -> Settings:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
    return load_settings(database_url=database_url, text_backend="local", embedding_backend="local")


@pytest.fixture
def content(settings: Settings) -> SealedContent:
    return sealed_content(settings)


@pytest.fixture
def opened(settings: Settings, database_url: str, content: SealedContent) -> Iterator[Database]:
    database = Database.connect(ConnectionOptions.from_settings(database_url, settings), content)
    yield database
    database.close()


def say_everything(url: str, mark: str, database: Database, settings: Settings) -> Memory:
    """Use the mark in each field that holds content, and have everything derived from it."""
    made: dict[str, Any] = {"user_id": "u", "database_url": url, "shared_scope": "team"}
    memory = Memory.from_defaults("s", **made)
    call = {
        "id": f"call{mark}",
        "type": "function",
        "function": {"name": "find", "arguments": f'"{mark}arg"'},
    }
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": f"My favourite harbour is {mark}haven. I live in {mark}town.",
            "name": f"{mark}name",
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call],
            "metadata": {f"{mark}key": f"{mark}value"},
        },
        {"role": "tool", "content": f"{mark}result", "tool_call_id": f"call{mark}"},
        {"role": "assistant", "content": f"Then I remember {mark}haven for you."},
        {"role": "user", "content": f"I work at the {mark}works since May 2024."},
    ]
    memory.put_messages(messages)
    memory.flush(all=True)
    drain_everything(database, url, settings)
    facts = Facts.for_owner(user_id="u", database_url=url)
    kept = facts.add(f"I own a {mark}boat", topics=[f"{mark}topic"], input=f"{mark}input")
    facts.feedback(kept.fact_id, f"{mark}praise")
    gone = facts.add(f"I sail to {mark}island")
    facts.replace(gone.fact_id, f"I never sail to {mark}island")
    facts.delete(gone.fact_id)
    memory.put({"role": "user", "content": f"Taken back: {mark}back", "id": "back"})
    memory.replace(memory.history()[-1].seq or 0, f"Replaced: {mark}other", idempotency_key="once")
    other = Memory.from_defaults("s2", **made)
    other.put({"role": "user", "content": f"I dislike {mark}weather."})
    other.flush(all=True)
    drain_everything(database, url, settings)
    other.reset(derived=True)
    return memory


def on_disk(stack: EmbeddedStack, url: str, mark: str) -> set[str]:
    """The files of the server, and the tables of a dump, that hold the mark in any case."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'strandline'"
        ).fetchall()
        found = set()
        for (table,) in tables:
            rows = connection.execute(f"SELECT t::text FROM strandline.{table} t".encode()).fetchall()
            found |= {f"table {table}" for (row,) in rows if mark in row.lower()}
    folder = Path(stack.home)
    needle = mark.encode()
    for path in folder.rglob("*"):
        if path.is_file() and needle in path.read_bytes().lower():
            found.add(path.relative_to(folder).parts[1] if len(path.parts) else path.name)
    assert stack.broker_url is not None
    with Redis.from_url(stack.broker_url) as broker:
        for key in broker.scan_iter():
            assert isinstance(key, bytes)
            if needle in (broker.dump(key) or b""):
                found.add("broker")
    return found


@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_nothing_of_what_was_said_is_on_disk(
    when: str,
    stack: EmbeddedStack,
    database_url: str,
    opened: Database,
    content: SealedContent,
    settings: Settings,
) -> None:
    mark = f"zq{uuid4().hex[:10]}"
    if when == "before":
        enable(opened, content, "default", "main", "clear")
    memory = say_everything(database_url, mark, opened, settings)
    hits = memory.search(f"{mark}haven", scope="owner")
    assert any(f"{mark}haven" in hit.text for hit in hits)
    shown = str(memory.get(input=f"Where is {mark}haven?"))
    assert f"{mark}town" in shown
    found = on_disk(stack, database_url, mark)
    if when == "before":
        assert found == set()
    else:
        assert {"table message", "table fact", "table chunk", "table answer"} - found <= {"table answer"}
    if when == "after":
        enable(opened, content, "default", "main", "clear")
        for _made in prepare_owners(opened, content, "default"):
            pass
        rows_of(
            database_url,
            "UPDATE strandline.data_key SET created_at = created_at - interval '1 day' RETURNING 1",
        )
        memory.close()  # a process that knew nothing of it has a few seconds to find out
        memory = Memory.from_defaults("s", user_id="u", database_url=database_url, shared_scope="team")
        for _progress in reseal_namespace(opened, content, "default", cache_seconds=300, pace=Pace()):
            pass
        tables = {name for name in on_disk(stack, database_url, mark) if name.startswith("table")}
        assert tables == set()
        assert [hit.text for hit in memory.search(f"{mark}haven", scope="owner")] == [
            hit.text for hit in hits
        ]
        assert str(memory.get(input=f"Where is {mark}haven?")) == shown
    assert verify(opened, deep=True).violations == ()
    memory.close()
